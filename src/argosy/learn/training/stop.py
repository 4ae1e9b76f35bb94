"""Training can end early: by Ctrl-C, or when its time is up.

The first Ctrl-C lets the present update finish, so that nothing is lost; the second one does not wait.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = "interrupted"
OUT_OF_TIME = "out of time"


class OutOfTime(Exception):
    """The time is up, or would be before the next step is done. An unfinished step is dropped and changes nothing."""


class Stop:
    """Says when to stop; it is asked before every update, and while training waits for answers of workers."""

    def __init__(self, minutes: float | None = None, since_s: float | None = None) -> None:
        began_s = time.monotonic() if since_s is None else since_s
        self.end_s = math.inf if minutes is None else began_s + 60.0 * minutes
        self.interrupted = False


@contextmanager
def ctrl_c(stop: Stop, say: Callable[[str], None]) -> Iterator[None]:
    """Turn Ctrl-C into a request to stop. Only the main thread can handle signals; elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request(number: int, frame: FrameType | None) -> None:
        if stop.interrupted:
            raise KeyboardInterrupt
        stop.interrupted = True
        say("stopping after this update; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, request)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
