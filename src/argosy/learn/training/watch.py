"""Watching a training: what is told of it, and the folder where it can be written down.

A folder gets TensorBoard's events, and the same figures as JSON lines for everybody else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from argosy.errors import InputError
from argosy.learn.training.judge import Verdict

CURVE = "curve.jsonl"


class Watch:
    """Hears of everything, and does nothing about it."""

    def updated(self, stage: str, done: int, total: int, figures: Mapping[str, float]) -> None:
        """An update has been made."""

    def judged(self, verdict: Verdict, best: bool) -> None:
        """The weights have been validated; are they the best so far?"""


class Log(Watch):
    """Writes it all down; use it in a `with` block."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lines = (folder / CURVE).open("a", encoding="utf-8")
        except OSError as problem:
            hint = "choose a folder that you may write to"
            raise InputError(f"can not be written: {problem.strerror}", where=str(folder), hint=hint) from None
        from torch.utils.tensorboard import SummaryWriter

        self._board: Any = SummaryWriter(str(folder))

    def updated(self, stage: str, done: int, total: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._board.add_scalar(f"{stage}/{name}", value, done)
        self._write({"stage": stage, "update": done, **figures})

    def judged(self, verdict: Verdict, best: bool) -> None:
        figures = {"score": verdict.score, "over_teacher": verdict.over_teacher}
        figures |= {f"hours {label}": hours for label, hours in verdict.hours.items()}
        for name, value in figures.items():
            self._board.add_scalar(f"{verdict.stage} validation/{name}", value, verdict.update)
        self._board.flush()
        self._write({"stage": verdict.stage, "update": verdict.update, "best": best, **figures})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._board.close()
        self._lines.close()


class Several(Watch):
    """Tells several others."""

    def __init__(self, *watches: Watch) -> None:
        self._watches = watches

    def updated(self, stage: str, done: int, total: int, figures: Mapping[str, float]) -> None:
        for watch in self._watches:
            watch.updated(stage, done, total, figures)

    def judged(self, verdict: Verdict, best: bool) -> None:
        for watch in self._watches:
            watch.judged(verdict, best)
