"""Sends the progress reports of a job: only the newest, a few times a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

REPORT_S = 0.2  # the shortest time between two reports


class Reports:
    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._newest: dict[str, Any] | None = None
        self._sent_at = -math.inf

    def note(self, metrics: Mapping[str, Any], progress: float | None, **where: int) -> None:
        numbers = {name: _number(value) for name, value in metrics.items()}
        self._newest = {**where, "progress": _number(progress), "metrics": numbers}
        if time.monotonic() - self._sent_at >= REPORT_S:
            self.send()

    def send(self) -> None:
        if self._newest is not None:
            self._tell("report", **self._newest)
            self._newest, self._sent_at = None, time.monotonic()


def _number(value: Any) -> Any:
    """Convert a value to JSON: texts stay as they are, NaN and infinity become None."""
    if value is None or isinstance(value, str | bool):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
