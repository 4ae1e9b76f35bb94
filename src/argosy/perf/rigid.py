"""The rigid model, for jobs of which only the duration is known.

    throughput = k · speed(GPU type) · slowdown(level)

Relative to its own requested size, a job on k of its k GPUs runs at exactly 1. Default slowdowns are medians
over five networks (AlexNet … Inception) of speed on two and on four nodes relative to one; the four-node
figure is used for crossing racks, for which no public measurement exists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from argosy.errors import InputError
from argosy.perf import gpus
from argosy.perf.base import Floats, Unit, Workers


@cache
def locality_facts() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(resources.files("argosy.perf").joinpath("data/locality.json").read_text("utf-8"))
    return facts


def default_slowdowns() -> tuple[float, float, float, float]:
    """Return the relative speed by level: 1 inside a node, then the medians."""
    median = locality_facts()["median"]
    return (1.0, 1.0, float(median["two_nodes"]), float(median["four_nodes"]))


@dataclass(frozen=True, slots=True)
class RigidModel:
    """The rigid model; `level_speed` is by level and must not grow, `type_speed` overrides the general type ratios."""

    name: str = "rigid"
    level_speed: tuple[float, float, float, float] = field(default_factory=default_slowdowns)
    type_speed: Mapping[str, float] = field(default_factory=dict)
    unit: Unit = "relative"
    per_gpu_batch: bool = False

    def __post_init__(self) -> None:
        if not all(0 < b <= a <= 1 for a, b in zip((1.0, *self.level_speed), self.level_speed)):
            raise InputError(f"model {self.name!r}: speeds by level must fall from 1, are {self.level_speed}")

    @property
    def gpu_types(self) -> tuple[str, ...]:
        return tuple(self.type_speed)

    def max_local_batch(self, gpu_type: str) -> float:
        return float("inf")

    def throughput(self, gpu_type: str, workers: Workers, level: int, batch_size: float | None = None) -> Floats:
        k = np.asarray(workers, np.float64)
        speed = self.type_speed.get(gpus.canonical(gpu_type), gpus.speed(gpu_type))
        return np.asarray(k * speed * np.where(k > 1, self.level_speed[level], 1.0))
