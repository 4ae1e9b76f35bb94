"""Where speeds and efficiencies by batch size come from: fitted parameters that ship, or a folder of measurements.

`fitted` takes the iteration models and noise scales of the catalogue. A folder (as of a scenario with --data) has
`pollux_placements.csv.gz`, `pollux_scalability.csv.gz` and `pollux_validation.csv.gz`, in the columns of the Pollux
artifact: what it measured is then used directly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from argosy.perf import catalogue
from argosy.perf.base import Links
from argosy.perf.batch_family import Efficiency, FittedEfficiency, StepModel
from argosy.perf.declared_batches import Declared
from argosy.perf.goodput import known_noise_scale
from argosy.perf.iteration import IterationModel


class GoodputSource(Protocol):
    """Knows networks by name."""

    @property
    def own_names(self) -> bool:
        """Return whether it knows networks that are not in the catalogue, by the names that traces give them."""
        ...

    def efficiency(self, model: str) -> Efficiency | None:
        """Return the efficiency of a network by batch size; None where it is not known."""
        ...

    def steps(self, model: str, links: Links) -> StepModel | None: ...


@dataclass(frozen=True, slots=True)
class Fitted:
    """The parameters that ship."""

    own_names = False

    def efficiency(self, model: str) -> Efficiency | None:
        noise = known_noise_scale(model)
        known = noise is not None and isinstance(catalogue.lookup(model), IterationModel)
        return FittedEfficiency(noise) if noise is not None and known else None

    def steps(self, model: str, links: Links) -> StepModel | None:
        known = catalogue.lookup(model)
        return replace(known, links=links) if isinstance(known, IterationModel) else None


@cache
def _measured(folder: str) -> GoodputSource:
    from argosy.perf.measured_goodput import MeasuredGoodput

    return MeasuredGoodput.read(Path(folder))


def source_of(name: str) -> GoodputSource:
    """Return the source that a setting names: `fitted`, `declared` (by live jobs), or a folder of measurements."""
    if name == "declared":
        return Declared()
    return Fitted() if name == "fitted" else _measured(name)
