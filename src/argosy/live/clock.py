"""The daemon's clock: seconds since the home was made. It never goes back, whatever happens to the wall clock.

Durations are differences of this clock. It follows the machine's monotonic clock and continues over restarts of the
daemon; only after a reboot does the wall clock say how much time has passed. Wall time itself is for display.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return an identifier of the time since the last boot, during which the monotonic clock is continuous."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


@dataclass
class Clock:
    """`now()` in seconds since the epoch of the home; `wall()` in Unix seconds, for people."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    boot: str = field(default_factory=boot_id)
    _offset: float | None = None

    def __post_init__(self) -> None:
        if self._offset is None:
            self._offset = -self.monotonic()

    def now(self) -> float:
        assert self._offset is not None
        return self.monotonic() + self._offset

    def mark(self) -> dict[str, Any]:
        """Return what `resume` needs to continue from here."""
        return {"boot": self.boot, "monotonic": self.monotonic(), "wall": self.wall(), "now": self.now()}

    def resume(self, mark: Mapping[str, Any]) -> None:
        """Continue from where a former daemon's clock stood."""
        passed = self.monotonic() - float(mark["monotonic"])
        if mark["boot"] != self.boot or passed < 0:
            passed = max(0.0, self.wall() - float(mark["wall"]))
        self._offset = float(mark["now"]) + passed - self.monotonic()
