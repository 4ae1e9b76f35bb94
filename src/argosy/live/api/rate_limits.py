"""How often somebody may ask: a bucket for each, which every request empties a little and time fills again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MOST_KNOWN = 10_000  # buckets kept; one that is forgotten is full


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests a second in the long run, and `burst` at once. A rate of 0 is no limit."""

    per_s: float
    burst: float


class Buckets:
    """One bucket for each key, all alike."""

    def __init__(self, rate: Rate, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rate, now
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # by key: what is left, and when it was

    def take(self, key: Hashable) -> float:
        """0 if there was something to take; otherwise the seconds until there is."""
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
