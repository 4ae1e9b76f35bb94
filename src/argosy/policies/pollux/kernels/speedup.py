"""Goodput at every size, at the best batch, and the throughput model's fit to what a job has shown.

    T_grad = ac + bc·m;  T_sync = 0 | ar + br·(K−2) | an + bn·(K−2);  T_iter = s·T_grad + (T_grad^γ + T_sync^γ)^(1/γ)
    goodput = K·m·(s+1) / T_iter · (φ + M0) / (φ + M),   M = K·m·(s+1)

A model is the seven numbers (ac, bc, an, bn, ar, br, γ).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from argosy._jit import entry_point, kernel
from argosy.slack import RELATIVE_SLACK

GRID = 50  # batch sizes that are tried between M0 and the largest
AC, BC, AN, BN, AR, BR, GAMMA = range(7)
FLOOR_S, CEILING_S, MOST_GAMMA = 1e-8, 1e4, 10.0
ROUNDS = 40  # of the fit
TOWARDS_OVERLAP, TOWARDS_LINEAR = 1e-6, 1e-5  # weights of the priors: γ near 1, and no loss of speed with K


@kernel
def step_s(model: Any, several: bool, k: int, local: float, passes: float) -> float:
    """Return the seconds of a step of `passes` passes, the last of which synchronises."""
    grad = model[AC] + model[BC] * local
    sync = FLOOR_S
    if several:
        sync = model[AN] + model[BN] * max(k - 2.0, 0.0)
    elif k > 1:
        sync = model[AR] + model[BR] * max(k - 2.0, 0.0)
    most = max(grad, sync)
    gamma = model[GAMMA]
    seconds: float = (passes - 1.0) * grad + most * ((grad / most) ** gamma + (sync / most) ** gamma) ** (1.0 / gamma)
    return seconds


@kernel
def best_goodput(
    model: Any, several: bool, k: int, phi: float, m0: float, most: float, largest_local: float, out: Any
) -> None:
    """Set out[0] to the largest goodput over batch sizes, and out[1] to the batch that has it."""
    out[0], out[1] = 0.0, max(m0, float(k))
    low = max(m0, float(k))
    if low > most * (1.0 + RELATIVE_SLACK):
        return
    for i in range(GRID):
        batch = low * (most / low) ** (i / (GRID - 1.0))
        local = batch / k
        passes = max(np.ceil(local / largest_local - 1e-8), 1.0)
        if k == 1 and batch > m0 * (1.0 + 1e-8):
            passes = max(passes, 2.0)  # a single GPU measures gradient noise between passes
        atomic = np.ceil(local / passes - 1e-8)
        total = k * atomic * passes
        goodput = total / step_s(model, several, k, atomic, passes) * (phi + m0) / (phi + total)
        if goodput > out[0]:
            out[0], out[1] = goodput, min(total, most)


@partial(entry_point, allocates=True)
def goodput_table(
    model: Any, phi: float, m0: float, most: float, largest_local: float, sizes: int, table: Any, batches: Any
) -> None:
    """Fill table[0 one node / 1 several, K] up to K = sizes, and the best batches; K = 0 is 0."""
    out = np.zeros(2)
    for several in range(2):
        table[several, 0] = 0.0
        for k in range(1, sizes + 1):
            best_goodput(model, several == 1 and k > 1, k, phi, m0, most, largest_local, out)
            table[several, k], batches[several, k] = out[0], out[1]


@partial(entry_point, allocates=True)
def goodputs_at(
    model: Any,
    phi: float,
    m0: float,
    most: float,
    largest_local: float,
    several: Any,
    sizes: Any,
    goodputs: Any,
    batches: Any,
) -> None:
    """Set goodputs[i] and the best batches[i] on sizes[i] GPUs, of several nodes if several[i] says so."""
    out = np.zeros(2)
    for i in range(len(sizes)):
        best_goodput(model, several[i] and sizes[i] > 1, sizes[i], phi, m0, most, largest_local, out)
        goodputs[i], batches[i] = out[0], out[1]


@partial(kernel, allocates=True)
def residuals(x: Any, free: Any, points: Any, out: Any) -> float:
    """Set the residuals at log parameters x; return their sum of squares. `points` are as in `fit`."""
    n = points.shape[0]
    model = np.exp(x)
    model[GAMMA] = 1.0 + x[GAMMA]
    for i in range(n):
        several, k, local = points[i, 0] > 1.0, int(points[i, 1]), points[i, 2]
        grad = model[AC] + model[BC] * local
        out[i] = (np.log(grad) - np.log(points[i, 3])) / np.sqrt(n)
        out[n + i] = (np.log(step_s(model, several, k, local, 1.0)) - np.log(points[i, 4])) / np.sqrt(n)
    out[2 * n] = np.sqrt(TOWARDS_OVERLAP) * (model[GAMMA] - 1.0)
    out[2 * n + 1] = np.sqrt(TOWARDS_LINEAR) * model[BN] / model[AN] if free[BN] else 0.0
    out[2 * n + 2] = np.sqrt(TOWARDS_LINEAR) * model[BR] / model[AR] if free[BR] else 0.0
    return float(np.sum(out**2))


@partial(entry_point, allocates=True)
def fit(points: Any, starts: Any) -> Any:
    """Return the model that fits measured (nodes, K, local batch, seconds of a pass, seconds of a step) best.

    By Levenberg and Marquardt, from each of `starts` (log seconds, γ − 1). What was never seen is optimistic: with
    one local batch a pass is half constant; without several nodes, or several GPUs of a node, their synchronisation is
    free; without more than two GPUs it does not grow. Several nodes are at least 1.1 times as slow as one, until seen.
    """
    best, least = np.empty(7), np.inf
    for i in range(starts.shape[0]):
        x, free = starts[i].copy(), np.ones(7, np.bool_)
        seen_several = pin(points, x, free)
        loss = descend(points, x, free)
        if loss < least:
            least = loss
            best[:] = np.exp(x)
            best[GAMMA] = 1.0 + x[GAMMA]
    if not seen_several:
        best[AN], best[BN] = max(best[AN], 1.1 * best[AR]), max(best[BN], 1.1 * best[BR])
    return best


@partial(kernel, allocates=True)
def pin(points: Any, x: Any, free: Any) -> bool:
    """Fix the parameters that were never seen, at no cost; return whether several nodes were."""
    n = points.shape[0]
    seen_several, seen_local, seen_more = False, False, False
    same = True
    for i in range(n):
        seen_several |= points[i, 0] > 1.0
        seen_local |= points[i, 0] == 1.0 and points[i, 1] > 1.0
        seen_more |= points[i, 1] > 2.0
        same &= points[i, 2] == points[0, 2]
    floor = np.log(FLOOR_S)
    if same:
        free[AC] = False
        x[AC] = np.log(max(np.mean(points[:, 3]) / 2.0, FLOOR_S))
    for bad, one, other in ((not seen_several, AN, BN), (not seen_local, AR, BR)):
        if bad:
            free[one] = free[other] = False
            x[one] = x[other] = floor
    if not seen_more:
        free[BN] = free[BR] = False
        x[BN] = x[BR] = floor
    return seen_several


@partial(kernel, allocates=True)
def descend(points: Any, x: Any, free: Any) -> float:
    """Improve log parameters in place; return the weighted sum of squares that is left."""
    n, floor = points.shape[0], np.log(FLOOR_S)
    out, trial, moved = np.zeros(2 * n + 3), np.zeros(2 * n + 3), np.zeros(2 * n + 3)
    slope = np.zeros((2 * n + 3, 7))
    loss, damping = residuals(x, free, points, out), 1e-3
    for _ in range(ROUNDS):
        for p in range(7):
            slope[:, p] = 0.0
            if free[p]:
                step = 1e-5
                x[p] += step
                residuals(x, free, points, moved)
                x[p] -= step
                slope[:, p] = (moved - out) / step
        square = slope.T @ slope
        down = slope.T @ out
        better = False
        for _ in range(8):
            matrix = square.copy()
            for p in range(7):
                matrix[p, p] += damping * square[p, p] + 1e-12
            y = x - np.linalg.solve(matrix, down)
            for p in range(6):
                y[p] = min(max(y[p], floor), np.log(CEILING_S)) if free[p] else x[p]
            y[GAMMA] = min(max(y[GAMMA], 0.0), MOST_GAMMA - 1.0)
            tried = residuals(y, free, points, trial)
            if tried < loss:
                better = True
                break
            damping *= 8.0
        if not better:
            break
        gained = loss - tried
        x[:], loss = y, tried
        out, trial = trial, out
        damping = max(damping / 8.0, 1e-9)
        if gained < 1e-10 * (1.0 + loss):
            break
    return loss
