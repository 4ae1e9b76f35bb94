"""Reads the progress of a job without the SDK from its log, by the pattern in its job file.

A user's regular expression may take very long on some lines. So lines are truncated, only the last lines of a burst are
searched, and an alarm ends a search that takes too long; after three alarms the pattern is no longer used.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from types import FrameType
from typing import Any

LONGEST_LINE = 1000
LINES_OF_A_BURST = 50
LIMIT_S = 0.05


class _TooLong(Exception):
    pass


class ProgressReader:
    def __init__(self, pattern: str, total: float | None) -> None:
        self.pattern, self.total = re.compile(pattern), total
        self.given_up = False
        self._alarms = 0
        signal.signal(signal.SIGALRM, _on_alarm)

    def read(self, lines: Sequence[bytes]) -> dict[str, Any] | None:
        """Return a report of the newest step in these lines, or None if they have none."""
        if self.given_up:
            return None
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
                step = self._newest(lines[-LINES_OF_A_BURST:])
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except _TooLong:
            self._alarms += 1
            self.given_up = self._alarms >= 3
            return None
        if step is None:
            return None
        return {"step": step, "progress": min(1.0, max(0.0, step / self.total)) if self.total else None}

    def _newest(self, lines: Sequence[bytes]) -> float | None:
        for line in reversed(lines):
            found = self.pattern.search(line[:LONGEST_LINE].decode(errors="replace"))
            if found and found[1]:
                try:
                    step = float(found[1].replace(",", ""))
                except ValueError:
                    continue
                if step == step and abs(step) < 1e18:
                    return int(step) if step == int(step) else step
        return None


def _on_alarm(number: int, frame: FrameType | None) -> None:
    raise _TooLong
