"""Derives the exit code and the message of a run from the ends of its workers."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import NamedTuple


class WorkerEnd(NamedTuple):
    """How one worker ended."""

    code: int  # negative: killed by that signal
    text: str
    done: bool = False  # it had reported that the training is complete
    left: bool = False  # it had announced that it leaves


def exit_status(ends: Sequence[WorkerEnd], *, hot: bool) -> tuple[int, str]:
    """Return the exit code and the message of a run that was not asked to stop; `ends` are in order of time.

    Without the SDK the first failure counts. With the SDK, workers may have been lost and replaced: the run has
    succeeded if a worker exited with 0, and none failed after reporting that the training is complete.
    """
    if not hot:
        return next(((end.code, end.text) for end in ends if end.code), (0, ""))
    stayed = [end for end in ends if not end.left]
    for end in stayed:
        if end.done and end.code > 0:
            return end.code, end.text
    if any(end.code == 0 for end in stayed):
        return 0, ""
    return (stayed[-1].code, stayed[-1].text) if stayed else (-signal.SIGTERM, "stopped by an outside signal")


def completed(ends: Sequence[WorkerEnd]) -> bool:
    """Return whether the training was completed before the request to stop took effect."""
    return any(end.done and end.code == 0 for end in ends) and not any(end.done and end.code > 0 for end in ends)


def stopped(ends: Sequence[WorkerEnd], *, at_once: bool) -> tuple[int, str]:
    """Return the exit code and the message of a run that ended because it was asked to stop."""
    if ends[-1].code == -signal.SIGKILL:
        return -signal.SIGKILL, "killed" if at_once else "killed: it did not stop in time"
    return -signal.SIGTERM, "stopped"


def describe_end(number: int, code: int, tail: bytes) -> str:
    """Describe in words how a worker ended; for a failure, with the last line of the log."""
    if code == 0:
        return f"worker {number} ended"
    how = f"exited with code {code}" if code > 0 else f"was killed by signal {-code} ({_signal_name(-code)})"
    last = next((line for line in reversed(tail.decode(errors="replace").splitlines()) if line.strip()), "")
    return f"worker {number} {how}" + (f"; last line of the log: {last.strip()[:200]}" if last else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
