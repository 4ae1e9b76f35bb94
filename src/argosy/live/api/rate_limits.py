"""Limits the rate of requests by token buckets: each request takes a token, and a bucket refills with time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MOST_KNOWN = 10_000  # buckets kept; the least recently used one is dropped, and would start full again


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit of `per_s` requests per second on average, and of `burst` at once; a `per_s` of 0 means no limit."""

    per_s: float
    burst: float


class Buckets:
    """Token buckets with the same rate, one for each key."""

    def __init__(self, rate: Rate, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rate, now
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # by key: tokens left, and when

    def take(self, key: Hashable) -> float:
        """Take a token and return 0; if there is none, return the seconds until there will be one."""
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
