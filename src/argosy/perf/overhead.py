"""What starting, stopping, moving and resizing a job costs, in seconds during which its GPUs do no work.

The published re-allocation delays (Sia's simulator) count one stop with one restore; they are divided 1 : 5,
as in DL2's example of one minute to stop and five to restore. A resize costs that delay when cold
(checkpoint, restart) and about what Gandiva reports for moving a warm process (1–2 s) when hot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import polars as pl

from argosy.errors import InputError
from argosy.perf.base import Floats
from argosy.perf.catalogue import key_of

COLUMNS = ("start_s", "suspend_s", "resume_s", "migrate_s", "cold_resize_s", "hot_resize_s")
USUAL_DELAY_S = 30.0
PUBLISHED_DELAY_S: Mapping[str, float] = MappingProxyType(
    {"cifar10": 50.0, "deepspeech2": 25.0, "bert": 120.0, "yolov3": 80.0, "imagenet": 250.0, "ncf": 15.0}
)


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds for a model with the usual delay. `delay_s` names models with another re-allocation delay: all
    their costs, except a hot resize, are larger or smaller in that proportion."""

    start_s: float = 25.0  # first cold start: as a restore, with nothing to stop
    suspend_s: float = 5.0
    resume_s: float = 25.0
    migrate_s: float = 30.0
    cold_resize_s: float = 30.0
    hot_resize_s: float = 2.0
    hot: bool = False  # which of the two resizes happens
    delay_s: Mapping[str, float] = field(default_factory=lambda: PUBLISHED_DELAY_S)

    def __post_init__(self) -> None:
        for name in COLUMNS:
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"overhead {name} must be a time ≥ 0, is {getattr(self, name)}")

    @classmethod
    def realistic(cls) -> Overheads:
        return cls()

    @classmethod
    def zero(cls) -> Overheads:
        """Free actions, as several published simulators assume."""
        return cls(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, delay_s={})

    @property
    def resize_s(self) -> float:
        return self.hot_resize_s if self.hot else self.cold_resize_s

    def for_models(self, names: Sequence[str | None] | pl.Series) -> Floats:
        """[name, COLUMNS] in seconds; a name that is missing or unknown has the usual delay."""
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
        return costs
