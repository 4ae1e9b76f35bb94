"""Fit performance models to measurements.

Iteration model: L-BFGS-B, as in Pollux, on

    RMSLE(T_grad) + RMSLE(T_iter) + 1e-3(γ−1)² + 1e-2[(b_across/a_across)² + (b_local/a_local)²]

from α, a = .1, β, b = .01; parameters that were never observed are fixed, optimistically, at no cost. Two things
differ from Pollux: times are searched as logarithms, since they span six decades, and because an RMSLE has a kink
at zero, a least-squares step follows and is kept if it lowers the same loss.

Parameter servers: the speed functions are linear in their coefficients once inverted, so non-negative least
squares of relative errors is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from argosy.errors import InputError
from argosy.perf.base import Floats, Level, Links
from argosy.perf.iteration import IterationParams, overlapped_s, step_time_s
from argosy.perf.parameter_server import async_features, surface_features, sync_features

COLUMNS = ("nodes", "gpus", "local_batch", "step_s", "sync_s")
FLOOR_S, CEILING_S = 1e-8, 1e4  # bounds of every time parameter; the floor is Pollux'
START_S = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01)
START_GAMMAS = (1.001, 2.0, 4.0)
AS_MEASURED = Links(island=1.0, cluster=1.0)


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Relative errors |predicted − measured| / measured."""

    mean: float
    median: float
    p90: float
    rows: int

    @classmethod
    def of(cls, predicted: ArrayLike, measured: ArrayLike) -> ErrorReport:
        true = np.asarray(measured, np.float64)
        relative = np.abs(np.asarray(predicted, np.float64) - true) / true
        return cls(
            float(relative.mean()),
            float(np.median(relative)),
            float(np.quantile(relative, 0.9)),
            len(relative),
        )


@dataclass(frozen=True, slots=True)
class FitResult:
    params: IterationParams
    error: ErrorReport  # errors of the step time


def placement_shape(placement: str) -> tuple[int, int]:
    """Read a placement as (nodes, GPUs): '124' means 3 nodes with 7 GPUs in total."""
    if not placement.isdigit():
        raise InputError(f"a placement is one digit per node (its GPUs), not {placement!r}")
    return len(placement), sum(int(digit) for digit in placement)


def rows_of_placements(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows for `fit_iteration` from the format (placement, local_bsz, step_time, sync_time)."""
    shapes = [placement_shape(p) for p in frame["placement"]]
    return pl.DataFrame(
        {
            "nodes": [n for n, _ in shapes],
            "gpus": [k for _, k in shapes],
            "local_batch": frame["local_bsz"],
            "step_s": frame["step_time"],
            "sync_s": frame["sync_time"],
        }
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """The columns of `fit_iteration` as arrays; `grad_s` is NaN where it is not known."""

    nodes: Floats
    gpus: Floats
    batch: Floats
    step_s: Floats
    grad_s: Floats

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Measured:
        missing = [c for c in COLUMNS if c not in rows.columns]
        if missing or rows.is_empty():
            what = f"column {missing[0]!r} is missing" if missing else "there are no rows"
            raise InputError(f"cannot fit: {what}", hint=f"give one row per measurement with {', '.join(COLUMNS)}")
        nodes, gpus, batch, step, sync = (rows[c].cast(pl.Float64).fill_null(float("nan")).to_numpy() for c in COLUMNS)
        if not (np.isfinite(step).all() and (step > 0).all() and (gpus >= 1).all() and (batch > 0).all()):
            raise InputError("cannot fit: step_s and local_batch must be > 0 and gpus ≥ 1 in every row")
        sync = np.where(np.isnan(sync) & (gpus == 1), 0.0, sync)  # a single GPU does not wait for others
        return cls(nodes, gpus, batch, step, np.maximum(step - sync, FLOOR_S))

    def predict(self, params: IterationParams) -> Floats:
        """Return the step times of the shipped model, where the sync lines may cap each other."""
        local = step_time_s(params, self.gpus, Level.NODE, self.batch, 0, AS_MEASURED)
        across = step_time_s(params, self.gpus, Level.RACK, self.batch, 0, AS_MEASURED)
        return np.where(self.nodes > 1, across, local)

    def log_residuals(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the errors of T_grad (known rows) and T_iter; each of the two sync lines is fitted to its own rows."""
        alpha, beta, across_a, across_b, local_a, local_b = np.exp(x[:6])
        grad = alpha + beta * self.batch
        more = self.gpus - 2
        sync = np.where(self.nodes > 1, across_a + across_b * more, local_a + local_b * more)
        sync = np.where(self.gpus > 1, np.maximum(sync, 0.0), 0.0)
        known = np.isfinite(self.grad_s)
        step = overlapped_s(grad, sync, float(x[6]))
        return np.log(grad[known] / self.grad_s[known]), np.log(step / self.step_s)


def fit_iteration(rows: pl.DataFrame) -> FitResult:
    """Fit an iteration model to rows (nodes, gpus, local_batch, step_s, sync_s).

    sync_s, the part of a step that only waits for gradients, may be null.
    """
    from scipy.optimize import least_squares, minimize

    data = Measured.of(rows)
    several, local = data.nodes > 1, (data.nodes == 1) & (data.gpus > 1)
    pinned = _pins(data, several, local)
    free = np.array([i for i in range(7) if i not in pinned])
    low = np.array([np.log(FLOOR_S)] * 6 + [1.0])
    high = np.array([np.log(CEILING_S)] * 6 + [10.0])

    def complete(y: Floats, gamma: float = 1.0) -> Floats:
        x = np.append(np.log(START_S), gamma)
        for index, value in pinned.items():
            x[index] = value
        x[free] = y
        return x

    def loss(y: Floats) -> float:
        x = complete(y)
        grad, step = data.log_residuals(x)
        ratios = np.exp(2 * (x[3] - x[2])) + np.exp(2 * (x[5] - x[4]))
        rmsle = sum(float(np.sqrt(np.mean(r**2))) for r in (grad, step) if len(r))
        return float(rmsle + 1e-3 * (x[6] - 1) ** 2 + 1e-2 * ratios)

    tries: list[Floats] = []
    for gamma in START_GAMMAS:
        start = np.append(np.log(START_S), gamma)[free]
        found = minimize(loss, start, method="L-BFGS-B", bounds=list(zip(low[free], high[free]))).x
        inside = np.clip(found, low[free] + 1e-9, high[free] - 1e-9)
        polished = least_squares(
            lambda y: np.concatenate(data.log_residuals(complete(y))),
            inside,
            bounds=(low[free], high[free]),
            xtol=1e-12,
            ftol=1e-12,
            max_nfev=60,
        ).x
        tries += [found, polished]
    x = complete(min(tries, key=loss))
    times = np.exp(x[:6])
    if not several.any():  # never measured across nodes: assume a little more than inside one
        times[2:4] = np.maximum(times[2:4], 1.1 * times[4:6])
    params = IterationParams(*(float(v) for v in (*times, np.clip(x[6], 1.0, 10.0))))
    return FitResult(params, ErrorReport.of(data.predict(params), data.step_s))


def _pins(data: Measured, several: NDArray[np.bool_], local: NDArray[np.bool_]) -> dict[int, float]:
    """Return the parameters that the rows do not determine, with their values (logarithms of times)."""
    nothing = float(np.log(FLOOR_S))
    pins: dict[int, float] = {}
    if len(np.unique(data.batch)) == 1:  # α and β·m cannot be told apart: each gets half
        known = data.grad_s[np.isfinite(data.grad_s)]
        pins[0] = float(np.log((known if len(known) else data.step_s).mean() / 2))
    if not several.any():
        pins |= {2: nothing, 3: nothing}
    if not local.any():
        pins |= {4: nothing, 5: nothing}
    if not (data.gpus > 2).any():
        pins |= {3: nothing, 5: nothing}
    if not (several | local).any():
        pins |= {6: 1.0}
    return pins


def fit_speed_sync(
    ps: ArrayLike, workers: ArrayLike, steps_per_s: ArrayLike, batch: float, *, ridge: float = 0.0
) -> Floats:
    """Return the five θ of Optimus' synchronous speed; at least five points.

    A small `ridge` divides a time between terms that the points cannot tell apart, such as θ1 and θ2·w/p if there
    were always as many servers as workers; without it one of them gets all.
    """
    return _inverse_fit(sync_features(ps, workers, batch), steps_per_s, ridge)


def fit_speed_async(ps: ArrayLike, workers: ArrayLike, steps_per_s: ArrayLike, *, ridge: float = 0.0) -> Floats:
    """Return the four θ of Optimus' asynchronous speed; at least four points."""
    w = np.asarray(workers, np.float64)
    return _inverse_fit(async_features(ps, w), np.asarray(steps_per_s, np.float64) / w, ridge)


def fit_surface(ps: ArrayLike, workers: ArrayLike, steps_per_s: ArrayLike, batch: float) -> Floats:
    """Return the seven coefficients of the smooth surface; at least seven points."""
    return _inverse_fit(surface_features(ps, workers, batch), steps_per_s)


def _inverse_fit(features: Floats, speed: ArrayLike, ridge: float = 0.0) -> Floats:
    """Return the coefficients θ ≥ 0 of 1/speed = features·θ, by least squares of relative errors."""
    from scipy.optimize import lsq_linear, nnls

    known = np.asarray(speed, np.float64)
    if len(known) < features.shape[1] or not (known > 0).all():
        raise InputError(
            f"cannot fit {features.shape[1]} coefficients to {len(known)} speeds",
            hint="measure more points, all with a speed above 0",
        )
    rows, target = features * known[:, None], np.ones(len(known))
    size = np.linalg.norm(rows, axis=0)
    rows = rows / size
    if ridge > 0:
        rows = np.vstack([rows, np.sqrt(ridge) * np.eye(len(size))])
        target = np.concatenate([target, np.zeros(len(size))])
    try:
        theta, _ = nnls(rows, target)
    except RuntimeError:  # the solver does not terminate if terms are nearly equal
        theta = lsq_linear(rows, target, bounds=(0.0, np.inf)).x
    return np.asarray(theta / size, np.float64)


def outliers(ps: Sequence[int], workers: Sequence[int], speeds: Sequence[float]) -> list[bool]:
    """Return the implausible points of a (servers, workers) grid: those that are 0, or below half of every neighbour.

    A median of the neighbours would delete true corners, such as one server with one worker.
    """
    known = {(p, w): s for p, w, s in zip(ps, workers, speeds)}
    around = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]

    def lonely(p: int, w: int, speed: float) -> bool:
        beside = [known[p + i, w + j] for i, j in around if (p + i, w + j) in known]
        return speed <= 0 or (bool(beside) and speed < 0.5 * min(beside))

    return [lonely(p, w, s) for p, w, s in zip(ps, workers, speeds)]
