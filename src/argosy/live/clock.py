"""The daemon's clock: seconds since the home was made, never backwards, whatever happens to the wall clock.

Durations are differences of this clock. It runs by the machine's monotonic clock and goes on over restarts of the
daemon; only over a reboot is the wall clock asked how long that took. Wall time itself is for display.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """A name for the time since the machine was started, in which its monotonic clock runs on."""
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
        """What `resume` needs to go on from here."""
        return {"boot": self.boot, "monotonic": self.monotonic(), "wall": self.wall(), "now": self.now()}

    def resume(self, mark: Mapping[str, Any]) -> None:
        """Go on where a former daemon's clock stood."""
        passed = self.monotonic() - float(mark["monotonic"])
        if mark["boot"] != self.boot or passed < 0:
            passed = max(0.0, self.wall() - float(mark["wall"]))
        self._offset = float(mark["now"]) + passed - self.monotonic()
