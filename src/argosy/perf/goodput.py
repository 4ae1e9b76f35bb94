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

from argosy.perf.base import Floats
from argosy.perf.catalogue import key_of

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
