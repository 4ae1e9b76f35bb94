"""Handles SIGTERM, which asks a job to save and exit. The handler only notes it; the loop acts after its step."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_calls: list[Callable[[], None]] = []


def take_over(call: Callable[[], None]) -> Any:
    """Call this function on every SIGTERM. Returns the former handler."""
    if threading.current_thread() is not threading.main_thread():
        return None  # Python allows handlers only in the main thread; messages of the supervisor still arrive
    _calls[:] = [call]
    return signal.signal(signal.SIGTERM, _note)


def give_back(before: Any) -> None:
    if signal.getsignal(signal.SIGTERM) is _note and before is not None:
        signal.signal(signal.SIGTERM, before)
        _calls.clear()


def _note(number: int, frame: FrameType | None) -> None:
    for call in _calls:
        call()


def _in_child() -> None:
    """Restore the default action in processes that the script forks: they have nothing to save."""
    if signal.getsignal(signal.SIGTERM) is _note:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_in_child)
