"""Compute statistical efficiency: how much progress a sample makes when the batch grows (Pollux, OSDI'21).

φ = M0·var/sqr            gradient noise scale, from the gradient's variance and squared norm at batch M0
E(M) = (φ + M0)/(φ + M)   progress per sample relative to batch M0
gain = E·M/M0             progress per step; AdaScale multiplies the learning rate by it
goodput = throughput · E

φ grows as training goes on, so large batches waste much at the beginning and little at the end. `NoiseScale` has the
published φ of a network by progress, fitted to measurements at several batch sizes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from argosy.errors import InputError
from argosy.perf.base import Floats
from argosy.perf.catalogue import key_of
from argosy.perf.iteration import IterationModel
from argosy.slack import COUNT_SLACK, RELATIVE_SLACK

GRID = 50  # batch sizes tried between M0 and Mmax
PARTS = 10  # equal parts of a training for which φ is given


def noise_scale(m0: float, grad_var: ArrayLike, grad_sqr: ArrayLike) -> Floats:
    return np.asarray(m0 * np.asarray(grad_var, np.float64) / np.asarray(grad_sqr, np.float64))


def efficiency(batch: ArrayLike, phi: ArrayLike, m0: float) -> Floats:
    return np.asarray(
        (np.asarray(phi, np.float64) + m0) / (np.asarray(phi, np.float64) + np.asarray(batch, np.float64))
    )


def gain(batch: ArrayLike, phi: ArrayLike, m0: float) -> Floats:
    """Return the steps at batch M0 that one step at this batch is worth; the learning-rate factor of AdaScale."""
    return np.asarray(efficiency(batch, phi, m0) * np.asarray(batch, np.float64) / m0)


@dataclass(frozen=True, slots=True)
class BatchChoice:
    batch: float
    accumulation: int  # passes before the one that synchronises
    throughput: float  # samples/s
    goodput: float  # samples/s, each counted as much as a sample at batch M0


def best_batch(
    model: IterationModel, gpu_type: str, workers: int, level: int, phi: float, m0: float, mmax: float
) -> BatchChoice:
    """Return the batch on a geometric grid M0..Mmax with the highest goodput.

    A single GPU with more than M0 samples accumulates at least once, because without a second replica gradient noise
    is measured between passes. Every GPU gets at least one sample, so with more than M0 GPUs the grid starts at their
    number.
    """
    low = max(m0, float(workers))
    if workers < 1 or not 0 < m0 <= mmax or low > mmax:
        raise InputError(
            f"no batch size lies between {low:g} and {mmax:g} for {workers} GPUs",
            hint="raise the largest batch or use fewer GPUs",
        )

    def choice(batch: float) -> BatchChoice:
        forced = int(workers == 1 and batch > m0 * (1 + RELATIVE_SLACK))
        passes = max(int(np.ceil(batch / workers / model.max_local_batch(gpu_type) - COUNT_SLACK)), 1 + forced)
        rate = float(model.throughput(gpu_type, workers, level, batch, min_accumulation=forced))
        return BatchChoice(batch, passes - 1, rate, rate * float(efficiency(batch, phi, m0)))

    sizes = np.geomspace(low, mmax, GRID if mmax > low else 1)
    return max((choice(float(batch)) for batch in sizes), key=lambda c: c.goodput)


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """A network's φ in each tenth of its training, and the batch M0 to which it refers.

    Gradients are measured a little noisier at some batch sizes than at others: φ is proportional to
    (M / M0)^`batch_power`. `error` is the mean relative error of the efficiency over all measured epochs and batches.
    """

    m0: float
    mmax: float
    tenths: tuple[float, ...]
    batch_power: float = 0.0
    error: float = 0.0

    def phi(self, progress: ArrayLike, batch: ArrayLike | None = None) -> Floats:
        """Return φ at a share of the training done, interpolated in logarithms between the middles of the tenths.

        Without a `batch`, at batch M0.
        """
        middles = (np.arange(PARTS) + 0.5) / PARTS
        at_m0 = np.exp(np.interp(np.asarray(progress, np.float64), middles, np.log(self.tenths)))
        relative = 1.0 if batch is None else np.asarray(batch, np.float64) / self.m0
        return np.asarray(at_m0 * relative**self.batch_power)


@cache
def _facts() -> dict[str, Any]:
    text = resources.files("argosy.perf").joinpath("data/noise_scale.json").read_text("utf-8")
    models: dict[str, Any] = json.loads(text)["models"]
    return {key_of(name): entry for name, entry in models.items()}


def known_noise_scale(model: str) -> NoiseScale | None:
    """Return the noise scale of a network from published measurements; None if there are none."""
    entry = _facts().get(key_of(model))
    if entry is None:
        return None
    tenths = tuple(float(v) for v in entry["phi_tenths"])
    error = float(entry["efficiency_error"])
    return NoiseScale(float(entry["m0"]), float(entry["mmax"]), tenths, float(entry["batch_power"]), error)
