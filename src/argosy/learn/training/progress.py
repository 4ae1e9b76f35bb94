"""The progress of training: listeners that are called after updates and validations, and one that logs to a folder.

The folder gets TensorBoard's events, and the same figures as JSON lines for other tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from argosy.errors import InputError
from argosy.learn.training.validation import ValidationResult

CURVE = "curve.jsonl"


class ProgressListener:
    """Is called after every update and validation, and does nothing; derive from it."""

    def updated(self, stage: str, done: int, total: int, figures: Mapping[str, float]) -> None:
        """Handle an update that has been made."""

    def validated(self, validation: ValidationResult, best: bool) -> None:
        """Handle a validation; `best` says whether the weights are the best so far."""


class ProgressLog(ProgressListener):
    """Logs all figures to a folder; use it in a `with` block."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lines = (folder / CURVE).open("a", encoding="utf-8")
        except OSError as problem:
            hint = "choose a folder that can be written"
            raise InputError(f"cannot write to the folder: {problem.strerror}", where=str(folder), hint=hint) from None
        from torch.utils.tensorboard import SummaryWriter

        self._tensorboard: Any = SummaryWriter(str(folder))

    def updated(self, stage: str, done: int, total: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._tensorboard.add_scalar(f"{stage}/{name}", value, done)
        self._write({"stage": stage, "update": done, **figures})

    def validated(self, validation: ValidationResult, best: bool) -> None:
        figures = {"score": validation.score, "over_teacher": validation.over_teacher}
        figures |= {f"hours {label}": hours for label, hours in validation.hours.items()}
        for name, value in figures.items():
            self._tensorboard.add_scalar(f"{validation.stage} validation/{name}", value, validation.update)
        self._tensorboard.flush()
        self._write({"stage": validation.stage, "update": validation.update, "best": best, **figures})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tensorboard.close()
        self._lines.close()


class ProgressGroup(ProgressListener):
    """Passes everything on to several listeners."""

    def __init__(self, *listeners: ProgressListener) -> None:
        self._listeners = listeners

    def updated(self, stage: str, done: int, total: int, figures: Mapping[str, float]) -> None:
        for listener in self._listeners:
            listener.updated(stage, done, total, figures)

    def validated(self, validation: ValidationResult, best: bool) -> None:
        for listener in self._listeners:
            listener.validated(validation, best)
