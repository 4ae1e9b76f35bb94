"""A growth on trial: the state from before it, and the probation in which it is judged."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.grow.training import workers
from argosy.grow.training.guard import Probation
from argosy.grow.training.kept import FILE, Kept
from argosy.grow.training.run import Run


@dataclass
class Trial:
    """Holds a growth that can still be rolled back; growth during its probation belongs to it."""

    kept: Kept
    probation: Probation
    decisions: list[int]  # positions in the history of the decisions of this trial
    lines: int  # of the history, before the growth
    done: int  # surgeries before it
    first: bool  # whether the network had not been grown before

    def state(self) -> dict[str, Any]:
        """Return everything but the kept run in memory as plain data."""
        return {
            "file": str(self.kept.file) if self.kept.file else None,
            "probation": self.probation.state(),
            **{name: getattr(self, name) for name in ("decisions", "lines", "done", "first")},
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any], kept: Run | None) -> Trial | None:
        """Return the trial that `state` described, with the run that was kept in memory; None if its file is gone."""
        file = Path(state["file"]) if state["file"] else None
        if file is not None and workers.size() > 1:
            file = file.with_name(FILE.format(place=state["decisions"][0], rank=workers.rank()))
        if kept is None and (file is None or not file.is_file()):
            warnings.warn(f"{file} is missing: the last growth cannot be rolled back any more", stacklevel=3)
            return None
        more = {name: state[name] for name in ("lines", "done", "first")}
        return cls(Kept(kept, file), Probation.restored(state["probation"]), list(state["decisions"]), **more)
