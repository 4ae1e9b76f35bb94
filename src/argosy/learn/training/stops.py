"""When a training ends before its time: Ctrl-C, or the clock.

The first Ctrl-C lets the update of the moment finish, so that nothing is lost; the second one does not wait.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Asked after every update."""

    def __init__(self, minutes: float | None = None) -> None:
        self._end = None if minutes is None else time.monotonic() + 60.0 * minutes
        self.interrupted = False

    @property
    def reason(self) -> str | None:
        """Why to end now, if at all."""
        if self.interrupted:
            return "interrupted"
        return "out of time" if self._end is not None and time.monotonic() >= self._end else None


@contextmanager
def ctrl_c(stop: Stop, say: Callable[[str], None]) -> Iterator[None]:
    """Within: Ctrl-C is a wish to end. Signals belong to the main thread; elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def wish(number: int, frame: FrameType | None) -> None:
        if stop.interrupted:
            raise KeyboardInterrupt
        stop.interrupted = True
        say("stopping after this update; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, wish)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
