"""The part that all adapters share: the connection to the supervisor, and checkpoints in the job's folder.

In a script that runs without a supervisor, the link does nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from argosy.sdk.checkpoints import files
from argosy.sdk.control import Control
from argosy.sdk.settings import folders

REPORT_S = 0.2  # the shortest time between two reports
SAVE_S = 600.0  # between two checkpoints, if the job file does not set it


class Link:
    def __init__(self) -> None:
        self.supervised = "ARGOSY_CONTROL" in os.environ
        self._folder, restore = folders(None, os.environ)
        found, self._problems = files.newest_whole(restore)
        self.restored = found  # the checkpoint to continue from; None: start from the beginning
        self._every_s = float(os.environ.get("ARGOSY_CHECKPOINT_EVERY") or SAVE_S)
        self._control: Control | None = None
        self._asked = False
        self._saved_at = time.monotonic()
        self._saved_step = -1
        self._report: dict[str, Any] | None = None  # the newest report, if it was not sent yet
        self._reported_at = -REPORT_S

    def open(self) -> None:
        """Connect to the supervisor when training begins."""
        if not self.supervised or self._control is not None:
            return
        self._control = Control.from_environment(exact=False, grow=False, fixed=True)
        self._saved_at = time.monotonic()
        for problem in self._problems:
            self._tell("story", text=f"a checkpoint is damaged, so the previous one is tried: {problem}")
        if self.restored is not None:
            self._tell("story", text=f"restored from {self.restored.parent.name}/{self.restored.name}")
        self._problems = []

    def close(self) -> None:
        """Disconnect after training has ended; from now on the supervisor can only send SIGTERM."""
        if self._control is not None:
            self._send_report()
            self._control.close()
            self._control = None

    def suspend(self) -> None:
        """Note that SIGTERM asks for a suspension. It takes no lock, because a signal handler calls it."""
        self._asked = True

    @property
    def suspending(self) -> bool:
        return self._asked or (self._control is not None and self._control.suspending)

    @property
    def due(self) -> bool:
        """Return whether it is time to save a checkpoint."""
        if self._control is None or self._folder is None:
            return False
        return self._control.saving or time.monotonic() - self._saved_at >= self._every_s

    def saved_at(self, step: int) -> bool:
        return self._saved_step == step

    def report(self, step: int, epoch: float, progress: float | None, metrics: Mapping[str, Any]) -> None:
        """Report progress. If reports come too fast, only the newest is sent, and later."""
        if self._control is None:
            return
        self._control.step = step
        numbers = {name: number for name, value in metrics.items() if (number := _number(value)) is not None}
        self._report = {"step": step, "epoch": int(epoch), "progress": _number(progress), "metrics": numbers}
        if time.monotonic() - self._reported_at >= REPORT_S:
            self._send_report()

    def save(self, step: int, epoch: float, write: Callable[[Path], object]) -> bool:
        """Call `write` to write a checkpoint into a folder. Returns False if that failed; the job goes on."""
        if self._control is None or self._folder is None:
            return False
        started = self._saved_at = time.monotonic()
        self._control.saving = False
        target = self._folder / f"step-{step}"
        try:
            with files.writing_folder(target, step=step, epoch=int(epoch)) as folder:
                write(folder)
        except (OSError, RuntimeError) as problem:
            reason = str(problem).strip().split("\n")[0][:300] or type(problem).__name__
            print(f"argosy: the checkpoint at step {step} could not be saved: {reason}", file=sys.stderr, flush=True)
            self._tell("checkpoint_failed", step=step, error=reason)
            return False
        self._saved_step = step
        files.prune(self._folder)
        size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        seconds = round(time.monotonic() - started, 4)
        self._tell("checkpoint", step=step, path=f"{self._folder.name}/{target.name}", seconds=seconds, bytes=size)
        return True

    def writing_to(self, step: int) -> Path:
        """Return the folder into which `save` writes on rank 0, for other ranks that must use the same one."""
        assert self._folder is not None
        return self._folder / f".writing-step-{step}"

    def leave(self, saved: bool | None) -> NoReturn:
        """Exit, because the job is suspended. `saved` says whether the work was saved; None if only rank 0 knows."""
        self._send_report()
        self._tell("left", version=0, **({} if saved is None else {"saved": saved}))
        self.close()
        raise SystemExit(0)

    def _send_report(self) -> None:
        if self._report is not None:
            self._tell("report", samples=0, **self._report)
            self._report, self._reported_at = None, time.monotonic()

    def _tell(self, op: str, **fields: Any) -> None:
        if self._control is not None:
            self._control.send(op, **fields)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < float("inf") else None
