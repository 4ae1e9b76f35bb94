"""Batch sizes that live jobs declare in their job files, where networks need not be known by name.

A live job gives its own smallest and largest batch, and how many samples fit a GPU. Its speed is assumed to be that of
its network if that is in the catalogue, otherwise in proportion to its GPUs; what it reports then replaces that. Tables
of speeds are made by names of networks, so a *declared name* carries these numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from argosy.perf.base import Floats, Links, Workers
from argosy.perf.batch_family import Efficiency, StepModel
from argosy.perf.goodput import known_noise_scale

UNKNOWN_PASS_S = 1.0  # of one sample on one GPU, where nothing is known: only ratios of speeds matter


def declared_name(model: str | None, smallest: float, largest: float, per_gpu: float | None) -> str:
    """Return the name under which a job's batch sizes are known."""
    fits = "" if per_gpu is None else f" of {per_gpu:g} on a GPU"
    return f"{model or ''} in batches {smallest:g}..{largest:g}{fits}"


@dataclass(frozen=True, slots=True)
class DeclaredEfficiency:
    """The range of a job's batch sizes. How much a sample is worth in each is not known before the job reports it."""

    m0: float
    mmax: float

    def parts(self, batches: Floats) -> tuple[Floats, Floats, Floats]:
        return np.ones(1), np.full((1, len(batches)), np.nan), np.ones((1, len(batches)))


@dataclass(frozen=True, slots=True)
class DeclaredSteps:
    """Steps of a job, as its network's where that is known."""

    known: StepModel | None
    per_gpu: float

    def max_local_batch(self, gpu_type: str) -> float:
        return self.per_gpu

    def throughput(
        self, gpu_type: str, workers: Workers, level: int, batch_size: float | None = None, *, min_accumulation: int = 0
    ) -> Floats:
        if self.known is None:
            return np.asarray(np.asarray(workers, np.float64) / UNKNOWN_PASS_S)
        return self.known.throughput(gpu_type, workers, level, batch_size, min_accumulation=min_accumulation)

    def step_times(self, gpu_type: str, workers: int, level: int, local_batch: float) -> tuple[float, float]:
        if self.known is None:
            return UNKNOWN_PASS_S * local_batch, UNKNOWN_PASS_S * local_batch
        return self.known.step_times(gpu_type, workers, level, local_batch)


@dataclass(frozen=True, slots=True)
class Declared:
    """Knows networks by declared names."""

    own_names = True

    def efficiency(self, model: str) -> Efficiency | None:
        found = _read(model)
        return None if found is None else DeclaredEfficiency(found[1], found[2])

    def steps(self, model: str, links: Links) -> StepModel | None:
        from argosy.perf.goodput_source import Fitted

        found = _read(model)
        if found is None:
            return None
        name, _, _, per_gpu = found
        return DeclaredSteps(Fitted().steps(name, links) if known_noise_scale(name) else None, per_gpu)


def _read(name: str) -> tuple[str, float, float, float] | None:
    """Return the network, the smallest and the largest batch, and the samples that fit a GPU."""
    model, between, rest = name.rpartition(" in batches ")
    if not between:
        return None
    sizes, _, fits = rest.partition(" of ")
    smallest, _, largest = sizes.partition("..")
    return model, float(smallest), float(largest), float(fits.split()[0]) if fits else np.inf
