"""A small event loop for the supervisor: it watches descriptors and timers in one thread.

There is one supervisor for each run, perhaps hundreds of them, so it must be small and start fast.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import time
from collections.abc import Callable
from typing import Any


class Reactor:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._running = False

    def watch(self, readable: Any, call: Callable[[], None]) -> None:
        """Call the function whenever this descriptor or socket is readable or has been closed by its peer."""
        self._selector.register(readable, selectors.EVENT_READ, call)

    def unwatch(self, readable: Any) -> None:
        self._selector.unregister(readable)

    def watch_room(self, stream: Any, wanted: bool) -> None:
        """Call the function of a watched socket also when it has room for what we send, as long as that is wanted."""
        key = self._selector.get_map().get(stream)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
        if key is not None and key.events != events:
            self._selector.modify(stream, events, key.data)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), call))

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        def again() -> None:
            call()
            self.later(seconds, again)

        self.later(seconds, again)

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        self._running = True
        while self._running:
            wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, _ in self._selector.select(wait):
                known = self._selector.get_map().get(key.fd)
                if known is not None and known.data is key.data:  # an earlier callback may have closed it
                    key.data()
            while self._running and self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()
