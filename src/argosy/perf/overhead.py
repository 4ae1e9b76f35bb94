"""The costs of starting, stopping, moving and resizing a job, in seconds during which its GPUs do no work.

The published re-allocation delays (Sia's simulator) count one stop with one restore; they are divided 1 : 5,
as in DL2's example of one minute to stop and five to restore. A resize costs that delay when cold
(checkpoint, restart) and about what Gandiva reports for moving a warm process (1–2 s) when hot.

`Overheads.read` takes what a live cluster has measured instead (`argosy history -o overheads`): a CSV file with the
columns model, kind (start, suspend, resume, migrate, resize) and seconds. Rows without a model are for all models
that have none of their own.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import polars as pl

from argosy.config import read_text
from argosy.errors import InputError, UnknownName
from argosy.perf.base import Floats
from argosy.perf.catalogue import key_of

COLUMNS = ("start_s", "suspend_s", "resume_s", "migrate_s", "cold_resize_s", "hot_resize_s")
MEASURED = {"start": 0, "suspend": 1, "resume": 2, "migrate": 3, "resize": 5}  # kind → index in COLUMNS
USUAL_DELAY_S = 30.0
PUBLISHED_DELAY_S: Mapping[str, float] = MappingProxyType(
    {"cifar10": 50.0, "deepspeech2": 25.0, "bert": 120.0, "yolov3": 80.0, "imagenet": 250.0, "ncf": 15.0}
)


@dataclass(frozen=True, slots=True)
class Overheads:
    """The overheads in seconds, for a model with the usual re-allocation delay.

    `delay_s` lists models with another delay: all their costs, except a hot resize, are scaled in proportion.
    """

    start_s: float = 25.0  # first cold start: costs as much as a restore
    suspend_s: float = 5.0
    resume_s: float = 25.0
    migrate_s: float = 30.0
    cold_resize_s: float = 30.0
    hot_resize_s: float = 2.0
    hot: bool = False  # whether resizes are hot
    delay_s: Mapping[str, float] = field(default_factory=lambda: PUBLISHED_DELAY_S)
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by model ("": all others) and kind

    def __post_init__(self) -> None:
        for name in COLUMNS:
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"overhead {name} must be a time ≥ 0, is {getattr(self, name)}")

    @classmethod
    def realistic(cls) -> Overheads:
        return cls()

    @classmethod
    def zero(cls) -> Overheads:
        """Return overheads of zero for all actions, as several published simulators assume."""
        return cls(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, delay_s={})

    @classmethod
    def of(cls, name: str) -> Overheads:
        """Return the overheads that a setting names: realistic, none, or a CSV file of measurements."""
        return cls.zero() if name == "none" else cls.realistic() if name == "realistic" else cls.read(Path(name))

    @classmethod
    def read(cls, path: Path) -> Overheads:
        """Read measured overheads; those that were not measured keep their defaults."""
        measured: dict[str, dict[str, float]] = {}
        lines = csv.DictReader(read_text(path).splitlines())
        wanted = ("model", "kind", "seconds")
        if missing := [name for name in wanted if name not in (lines.fieldnames or ())]:
            hint = "a file of measured overheads has the columns model, kind, seconds: argosy history -o overheads"
            raise InputError(f"there is no column {missing[0]!r}", where=f"{path}:1", hint=hint)
        for row in lines:
            where, kind = f"{path}:{lines.line_num}", row["kind"] or ""
            if kind not in MEASURED:
                raise UnknownName("kind of overhead", kind, MEASURED, where=where)
            try:
                seconds = float(row["seconds"])
            except (TypeError, ValueError):
                seconds = math.nan
            if not 0 <= seconds < math.inf:
                raise InputError(f"seconds must be a time ≥ 0, is {row['seconds']!r}", where=where)
            measured.setdefault(row["model"] or "", {})[kind] = seconds
        return cls(measured=measured)

    @property
    def resize_s(self) -> float:
        return self.hot_resize_s if self.hot else self.cold_resize_s

    def for_models(self, names: Sequence[str | None] | pl.Series) -> Floats:
        """Return the costs [name, COLUMNS] in seconds; a name that is missing or unknown has the usual delay."""
        column = pl.Series("model", names, dtype=pl.String)
        delays = {key_of(name): delay for name, delay in self.delay_s.items()}
        scale = {
            name: delays.get(key_of(name), USUAL_DELAY_S) / USUAL_DELAY_S
            for name in column.drop_nulls().unique().to_list()
        }
        factor = np.ones(len(column))
        if scale:
            factor = column.replace_strict(scale, default=1.0, return_dtype=pl.Float64).to_numpy()
        costs = np.outer(factor, [getattr(self, name) for name in COLUMNS])
        costs[:, -1] = self.hot_resize_s
        if self.measured:
            known = {key_of(model): kinds for model, kinds in self.measured.items() if model}
            for row, name in enumerate(column.to_list()):
                found = known.get(key_of(name)) if name is not None else None
                _replace(costs[row], self.measured.get("", {}) if found is None else found)
        return costs


def _replace(costs: Floats, kinds: Mapping[str, float]) -> None:
    """Replace costs by those measured for one model; a cold resize costs a suspension and a resumption."""
    for kind, seconds in kinds.items():
        costs[MEASURED[kind]] = seconds
    if "suspend" in kinds and "resume" in kinds:
        costs[COLUMNS.index("cold_resize_s")] = kinds["suspend"] + kinds["resume"]
