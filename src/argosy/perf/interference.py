"""Model how much two jobs on the same GPU slow each other down.

    speed of a beside b = 1 / (1 + sensitivity_a · pressure_b)

Sensitivity and pressure of each network are fitted, per GPU type, to Gavel's measured pairs, both with a
power of the batch size relative to the network's usual one. A network without measured pairs has the average
of the others. Memory is not part of the model: the placer checks whether a pair fits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from argosy.perf import gpus
from argosy.perf.base import Floats
from argosy.perf.catalogue import key_of


@cache
def _facts() -> dict[str, Any]:
    text = resources.files("argosy.perf").joinpath("data/interference.json").read_text("utf-8")
    facts: dict[str, Any] = json.loads(text)
    facts["like"] = {key_of(name): key_of(other) for name, other in facts["like"].items()}
    for entry in facts["types"].values():
        entry["models"] = {key_of(name): values for name, values in entry["models"].items()}
    return facts


def traits(model: str | None, gpu_type: str, batch: float | None = None) -> tuple[float, float]:
    """Return (sensitivity, pressure) of one network; `batch` is per GPU."""
    facts = _facts()
    entry = facts["types"][gpus.nearest(gpu_type, facts["types"])]
    key = key_of(model) if model else ""
    found = entry["models"].get(facts["like"].get(key, key))
    if found is None:
        return float(entry["default"]["sensitivity"]), float(entry["default"]["pressure"])
    relative = 1.0 if not batch or not found["batch"] else float(np.clip(batch / found["batch"], 1 / 16, 16))
    return (
        float(found["sensitivity"] * relative ** entry["sensitivity_power"]),
        float(found["pressure"] * relative ** entry["pressure_power"]),
    )


def pair_factor(
    model_a: str | None,
    model_b: str | None,
    gpu_type: str,
    batch_a: float | None = None,
    batch_b: float | None = None,
) -> tuple[float, float]:
    """Return the speeds of a and of b while they share a GPU, each relative to running alone."""
    sensitivity_a, pressure_a = traits(model_a, gpu_type, batch_a)
    sensitivity_b, pressure_b = traits(model_b, gpu_type, batch_b)
    return 1 / (1 + sensitivity_a * pressure_b), 1 / (1 + sensitivity_b * pressure_a)


def pair_matrix(models: Sequence[tuple[str | None, float | None]], gpu_type: str) -> Floats:
    """Return [row, column], the speed of the row's (model, batch per GPU) packed with the column's."""
    sensitivity, pressure = np.array([traits(model, gpu_type, batch) for model, batch in models]).T
    return np.asarray(1 / (1 + np.outer(sensitivity, pressure)))
