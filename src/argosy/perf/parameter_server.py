"""Parameter-server jobs: speed as a function of servers p and workers w.

    synchronous   f(p,w) = 1 / (θ0·M/w + θ1 + θ2·w/p + θ3·w + θ4·p)      Optimus; M = total batch
    asynchronous  f(p,w) = w / (θ0 + θ1·w/p + θ2·w + θ3·p)               Optimus
    surface       f(p,w) = 1 / (… + θ5/p + θ6·p/w)                       synchronous with two more terms

in steps/s. The surface is a smooth form of DL2's measured tables, where Optimus' five terms alone miss jobs
whose few servers are the bottleneck.

All θ ≥ 0, so that every term is a time; no servers or no workers means no speed. Measured points can also be
used as they are, in a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from argosy.errors import InputError
from argosy.perf.base import Floats
from argosy.seeding import stream

Form = Literal["sync", "async", "surface"]
BUMPS = 64  # a rough surface differs from point to point up to this many servers and workers
COEFFICIENTS: dict[Form, int] = {"sync": 5, "async": 4, "surface": 7}


def sync_features(ps: ArrayLike, workers: ArrayLike, batch: float) -> Floats:
    p, w = np.broadcast_arrays(np.asarray(ps, np.float64), np.asarray(workers, np.float64))
    return np.stack([batch / w, np.ones_like(w), w / p, w, p], axis=-1)


def async_features(ps: ArrayLike, workers: ArrayLike) -> Floats:
    p, w = np.broadcast_arrays(np.asarray(ps, np.float64), np.asarray(workers, np.float64))
    return np.stack([np.ones_like(w), w / p, w, p], axis=-1)


def surface_features(ps: ArrayLike, workers: ArrayLike, batch: float) -> Floats:
    p, w = np.broadcast_arrays(np.asarray(ps, np.float64), np.asarray(workers, np.float64))
    return np.concatenate([sync_features(p, w, batch), np.stack([1 / p, p / w], axis=-1)], axis=-1)


@dataclass(frozen=True, slots=True)
class ParameterServerModel:
    """A fitted model of one job type; `batch` is the total batch, which stays the same when workers come and go."""

    name: str
    theta: tuple[float, ...]
    batch: float
    form: Form = "sync"

    def __post_init__(self) -> None:
        if len(self.theta) != COEFFICIENTS[self.form] or not all(t >= 0 for t in self.theta) or not any(self.theta):
            raise InputError(
                f"parameter-server model {self.name!r}: the {self.form} form takes {COEFFICIENTS[self.form]} "
                f"coefficients ≥ 0, not {self.theta}",
                hint="fit them with argosy.perf.fit",
            )

    def steps_per_s(self, ps: ArrayLike, workers: ArrayLike, batch: float | None = None) -> Floats:
        p, w = np.broadcast_arrays(np.asarray(ps, np.float64), np.asarray(workers, np.float64))
        running = (p > 0) & (w > 0)
        some_p, some_w = np.where(running, p, 1.0), np.where(running, w, 1.0)
        total = self.batch if batch is None else batch
        if self.form == "async":
            speed = some_w / (async_features(some_p, some_w) @ np.array(self.theta))
        else:
            features = sync_features if self.form == "sync" else surface_features
            speed = 1.0 / (features(some_p, some_w, total) @ np.array(self.theta))
        return np.where(running, speed, 0.0)

    def samples_per_s(self, ps: ArrayLike, workers: ArrayLike, batch: float | None = None) -> Floats:
        """Return samples/s; in the asynchronous form a step is one worker's own batch of `batch` samples."""
        return np.asarray(self.steps_per_s(ps, workers, batch) * (self.batch if batch is None else batch))


@dataclass(frozen=True, slots=True)
class TableParameterServer:
    """Measured samples/s of one job type: exact at its points, linear radial-basis functions between them.

        f(p, w) = Σ_i c_i · |(p, w) − (p_i, w_i)|,  held within 2% … 100% of the best measurement

    The batch is the one it was measured with.
    """

    name: str
    points: tuple[tuple[float, float], ...]  # (servers, workers)
    samples: tuple[float, ...]  # per second
    batch: float = 1.0
    least: float = 0.02  # lower bound of the surface, relative to the best measurement

    def __post_init__(self) -> None:
        if len(self.points) != len(self.samples) or len(set(self.points)) < max(len(self.points), 2):
            raise InputError(
                f"parameter-server table {self.name!r}: {len(self.points)} points, {len(set(self.points))} of them"
                f" different, for {len(self.samples)} speeds",
                hint="give two or more points (servers, workers), each with its speed, and each once",
            )
        if not all(speed > 0 for speed in self.samples):
            raise InputError(
                f"parameter-server table {self.name!r}: speeds must be > 0, one is {min(self.samples)} samples/s",
                hint="leave out what failed, e.g. with argosy.perf.fit.outliers",
            )

    def samples_per_s(self, ps: ArrayLike, workers: ArrayLike, batch: float | None = None) -> Floats:
        p, w = np.broadcast_arrays(np.asarray(ps, np.float64), np.asarray(workers, np.float64))
        known, speed = np.array(self.points), np.array(self.samples)
        weights = np.linalg.solve(np.linalg.norm(known[:, None] - known[None, :], axis=-1), speed)
        wanted = np.stack([p, w], axis=-1)
        surface = np.linalg.norm(wanted[..., None, :] - known, axis=-1) @ weights
        best = float(speed.max())
        return np.where((p > 0) & (w > 0), np.clip(surface, self.least * best, best), 0.0)


@dataclass(frozen=True, slots=True)
class RoughParameterServer:
    """A fitted model with deviations as in measurements, fixed by the name, with `error` as their mean.

    On a smooth surface a rule that follows the gradient finds the maximum; on a measured one it stops at the first dip.
    """

    fitted: ParameterServerModel
    error: float  # mean relative error

    @property
    def name(self) -> str:
        return self.fitted.name

    def samples_per_s(self, ps: ArrayLike, workers: ArrayLike, batch: float | None = None) -> Floats:
        sigma = self.error * (np.pi / 2) ** 0.5  # of a normal distribution with that mean error
        bumps = np.exp(sigma * stream(0, f"roughness.{self.name}").standard_normal((BUMPS, BUMPS)))
        p, w = (np.minimum(np.asarray(n, np.int64), BUMPS - 1) for n in (ps, workers))
        return np.asarray(self.fitted.samples_per_s(ps, workers, batch) * bumps[p, w])


ServerModel: TypeAlias = ParameterServerModel | TableParameterServer | RoughParameterServer
