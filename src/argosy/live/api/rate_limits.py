"""Limits how often a caller may ask, by token buckets: every request takes one token, and time refills the bucket."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MOST_KNOWN = 10_000  # buckets kept; a forgotten one starts full again


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second in the long run, and `burst` at once. A rate of 0 means no limit."""

    per_s: float
    burst: float


class Buckets:
    """Token buckets of one rate, one for each key."""

    def __init__(self, rate: Rate, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rate, now
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # by key: tokens left, and at what time

    def take(self, key: Hashable) -> float:
        """Take a token; return 0 if there was one, otherwise the seconds until there is."""
        if not self._rate.per_s:
            return 0.0
        now = self._now()
        left, at = self._left.pop(key, (self._rate.burst, now))
        left = min(self._rate.burst, left + (now - at) * self._rate.per_s)
        allowed = left >= 1.0
        self._left[key] = (left - 1.0 if allowed else left, now)
        if len(self._left) > MOST_KNOWN:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._rate.per_s
