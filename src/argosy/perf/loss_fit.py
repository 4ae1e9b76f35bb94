"""Predict when a job will converge, by Optimus' fit of its loss curve.

    loss(k) = 1 / (b0·k + b1) + b2,  b ≥ 0

by weighted least squares: points are split into three equal segments and the standard deviation of a segment's
points is a quarter of that of the segment before, so that late points count most. Many jobs are fitted at once
(matrices with a row per job), because a scheduler does so in every interval: first a search over b1/b0, given which the
rest is linear, then a few steps of Levenberg–Marquardt from the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from argosy.perf.base import Floats
from argosy.slack import RELATIVE_SLACK

LEAST_POINTS = 3
SEGMENTS, RATIO = 3, 4.0
SHIFTS = np.concatenate([[0.0], np.geomspace(1e-2, 1e4, 100)])  # first guesses of b1/b0, in epochs
ITERATIONS = 10
TINY = 1e-12
FLAT = 1e-9  # 1/b0 of a curve that does not fall


def loss_at(b: Floats, epoch: Floats) -> Floats:
    """Return the curves with coefficients `b` (last axis: b0, b1, b2)."""
    return np.asarray(1.0 / np.maximum(b[..., 0] * epoch + b[..., 1], TINY) + b[..., 2])


def fit_losses(epochs: Sequence[Floats], losses: Sequence[Floats], *, clean: bool = False) -> Floats:
    """Return the coefficients (b0, b1, b2) of each job, a row per job; NaN for a job with fewer than three points.

    `clean` first replaces outliers: points above all of the three before them, or below all of the three after them,
    become the mean of their neighbours.
    """
    count = np.array([len(e) for e in epochs], np.int64)
    result = np.full((len(count), 3), np.nan)
    rows = np.flatnonzero(count >= LEAST_POINTS).tolist()
    if not rows:
        return result
    n = count[rows]
    k, y = np.ones((len(rows), int(n.max()))), np.zeros((len(rows), int(n.max())))
    there = np.arange(k.shape[1]) < n[:, None]
    k[there] = np.concatenate([epochs[r] for r in rows])
    y[there] = np.concatenate([losses[r] for r in rows])
    if clean:
        y = without_outliers(y, n)
    scale = np.maximum(np.where(there, np.abs(y), 0.0).max(axis=1), TINY)[:, None]  # makes the largest loss 1
    segment = np.arange(k.shape[1]) // np.ceil(n / SEGMENTS)[:, None]
    weight = np.where(there, RATIO**segment, 0.0)
    b = polish(first_guess(k, y / scale, weight), k, y / scale, weight)
    result[rows] = b * np.concatenate([1.0 / scale, 1.0 / scale, scale], axis=1)
    return result


def without_outliers(y: Floats, n: NDArray[np.int64]) -> Floats:
    """Replace losses that lie outside the range of those before or after them."""
    cells = np.pad(y, ((0, 0), (3, 3)), constant_values=np.nan)
    cells[:, 3:-3][np.arange(y.shape[1]) >= n[:, None]] = np.nan
    width = y.shape[1]
    near = {shift: cells[:, 3 + shift : 3 + shift + width] for shift in (-3, -2, -1, 1, 2, 3)}
    above = np.all([~(y <= near[s]) & ~np.isnan(near[-1]) for s in (-3, -2, -1)], axis=0)
    below = np.all([~(y >= near[s]) & ~np.isnan(near[1]) for s in (1, 2, 3)], axis=0)
    inside = ~np.isnan(near[-1]) & ~np.isnan(near[1])
    return np.where((above | below) & inside, 0.5 * (near[-1] + near[1]), y)


def first_guess(k: Floats, y: Floats, weight: Floats) -> Floats:
    """Return the best fit for many s = b1/b0, given which loss = (1/b0) / (k + s) + b2 is linear in 1/b0 and b2."""
    column = np.unique(k)
    cells = (np.arange(len(k))[:, None] * len(column) + np.searchsorted(column, k)).ravel()
    sums = (np.bincount(cells, part.ravel(), len(k) * len(column)) for part in (weight**2, weight**2 * y))
    heavy, loss = (part.reshape(len(k), len(column)) for part in sums)
    curve = 1.0 / (column + SHIFTS[:, None])
    total, total_loss = heavy.sum(axis=1)[:, None], loss.sum(axis=1)[:, None]
    of_curve, squares, products = heavy @ curve.T, heavy @ (curve**2).T, loss @ curve.T
    spread = np.maximum(total * squares - of_curve**2, TINY)
    a = np.maximum((total * products - of_curve * total_loss) / spread, 0.0)
    b2 = (total_loss - a * of_curve) / total
    a = np.where(b2 < 0, np.maximum(products, 0.0) / np.maximum(squares, TINY), a)
    b2 = np.maximum(b2, 0.0)
    error = a * a * squares + 2 * a * b2 * of_curve + b2 * b2 * total - 2 * a * products - 2 * b2 * total_loss
    best = error.argmin(axis=1)
    chosen = (np.arange(len(k)), best)
    b0 = 1.0 / np.maximum(a[chosen], FLAT)
    return np.stack([b0, b0 * SHIFTS[best], b2[chosen]], axis=1)


def polish(b: Floats, k: Floats, y: Floats, weight: Floats) -> Floats:
    """Improve the fits by Levenberg–Marquardt within b ≥ 0, all rows together; rows that are done stay as they are."""

    def residuals(b: Floats, rows: NDArray[np.int64]) -> Floats:
        return weight[rows] * (loss_at(b[:, None], k[rows]) - y[rows])

    result = b.copy()
    rows = np.arange(len(b))
    damping = np.full(len(b), 1e-3)
    r = residuals(b, rows)
    error = (r * r).sum(axis=1)
    for _ in range(ITERATIONS):
        inverse = 1.0 / np.maximum(b[:, :1] * k[rows] + b[:, 1:2], TINY)
        slope = -weight[rows] * inverse * inverse
        jacobian = np.stack([slope * k[rows], slope, weight[rows]], axis=2)
        normal = jacobian.transpose(0, 2, 1) @ jacobian
        gradient = (jacobian * r[:, :, None]).sum(axis=1)
        pinned = (b <= 0.0) & (gradient > 0.0)  # at the bound, and pushed against it
        normal[pinned[:, :, None] | pinned[:, None, :]] = 0.0
        diagonal = np.einsum("rii->ri", normal)
        diagonal[pinned] = 1.0
        diagonal += damping[:, None] * diagonal + TINY**2
        step = np.linalg.solve(normal, np.where(pinned, 0.0, gradient)[:, :, None])[:, :, 0]
        trial = np.maximum(b - step, 0.0)
        trial_r = residuals(trial, rows)
        trial_error = (trial_r * trial_r).sum(axis=1)
        better = trial_error < error
        done = better & (error - trial_error <= 1e-10 * error) | (error <= 1e-24)
        damping = np.where(better, damping * 0.2, damping * 5.0)
        done |= damping > 1e9
        b = np.where(better[:, None], trial, b)
        r = np.where(better[:, None], trial_r, r)
        error = np.where(better, trial_error, error)
        result[rows] = b
        going = ~done
        if not going.any():
            break
        rows, b, r, error, damping = rows[going], b[going], r[going], error[going], damping[going]
    return result


def last_epoch(b: Floats, threshold: Floats, window: int, most: int = 100) -> Floats:
    """Return the first epoch at which the fitted loss fell by no more than the threshold in the last `window` epochs.

    It is NaN if that takes more than `most` epochs, or if there is no fit.
    """
    epochs = np.arange(window, most + 1, dtype=np.float64)
    fall = loss_at(b[:, None], epochs - window) - loss_at(b[:, None], epochs)
    converged = fall <= threshold[:, None] * (1.0 + RELATIVE_SLACK)
    return np.where(converged.any(axis=1), epochs[converged.argmax(axis=1)], np.nan)
