"""The authors' solver for linear programs: it stops where ECOS does, in the middle of the shares that are good enough.

Gavel's objectives leave many shares open, and its simulator takes what its solver returns. To answer as it does,
`authors` solves the programs in the same way: a homogeneous self-dual embedding, Mehrotra's predictor and corrector,
ECOS' first point, its step sizes, its scaling and its tolerances. For programs without cones of other kinds.

    min c·x    G x + s = h,  s ≥ 0        followed along  s∘z = μ,  κτ = μ,  μ → 0
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from argosy.policies.base import Floats, Ints
from argosy.policies.gavel.share_rows import ByJob, Newton, ShareRows, Whole

ACCURACY = 1e-8
STEP, LONGEST, LEAST_SIGMA = 0.99, 0.999, 1e-4
SCALINGS = 3
NOTHING = 1e-10
FEW = 110  # variables, up to which a dense matrix is the fastest


def solve(c: Floats, g: ShareRows, h: Floats) -> Floats | None:
    """Return the solution x that ECOS returns, or None if it finds none."""
    rows, columns = np.ones(len(h)), np.ones(len(c))
    for _ in range(SCALINGS):
        across, down = (np.sqrt(np.where(size > 0, size, 1.0)) for size in g.largest())
        g = g.divided(across, down)
        rows, columns = rows * across, columns * down
    with np.errstate(all="ignore"):  # where there is no solution, numbers grow without limit
        by_job = g.speed is not None and len(c) > FEW
        found = _follow(c / columns, g, h / rows, ByJob) if by_job else None
        if found is None:
            found = _follow(c / columns, g, h / rows, Whole)
    return None if found is None else found / columns


def _follow(c: Floats, g: ShareRows, h: Floats, newton_of: type[Newton]) -> Floats | None:
    begin = newton_of(g, np.ones(len(h)))
    x, minus_s = begin.solve(np.zeros(len(c)), h)
    s = _into_cone(-minus_s)
    z = _into_cone(begin.solve(-c, np.zeros(len(h)))[1])
    tau = kappa = 1.0
    for _ in range(newton_of.steps):
        if tau < NOTHING * max(kappa, 1.0):
            return None  # tau tends to 0: the program is infeasible or unbounded
        d, p = -(g.transposed_times(z) + c * tau), -(g.times(x) + s - h * tau)
        t = -(kappa + c @ x + h @ z)
        mu = (s @ z + kappa * tau) / (len(h) + 1)
        gap = abs(s @ z) / tau**2
        primal = float(np.linalg.norm(p)) / tau / max(1.0, float(np.linalg.norm(h)))
        dual = float(np.linalg.norm(d)) / tau / max(1.0, float(np.linalg.norm(c)))
        if primal < ACCURACY and dual < ACCURACY and (gap < ACCURACY or gap < ACCURACY * abs(c @ x) / tau):
            return np.asarray(x / tau)
        try:
            newton = newton_of(g, s / z)
            first = newton.solve(-c, h)
            ds = dz = np.zeros(len(h))
            dtau = dkappa = 0.0
            sigma = 0.0
            for corrected in (False, True):
                r_c = -s * z - ds * dz + sigma * mu
                r_k = -kappa * tau - dkappa * dtau + sigma * mu
                second = newton.solve((1 - sigma) * d, (1 - sigma) * p - r_c / z)
                above = (1 - sigma) * t - r_k / tau - c @ second[0] - h @ second[1]
                dtau = float(above / (c @ first[0] + h @ first[1] - kappa / tau))
                dx, dz = second[0] + dtau * first[0], second[1] + dtau * first[1]
                ds, dkappa = (r_c - s * dz) / z, float((r_k - kappa * dtau) / tau)
                length = _longest(np.concatenate([s, z, [tau, kappa]]), np.concatenate([ds, dz, [dtau, dkappa]]))
                if not corrected:
                    sigma = min(max((1 - min(length, 1.0)) ** 3, LEAST_SIGMA), 1.0)
        except np.linalg.LinAlgError:
            return None
        length = min(STEP * length, LONGEST)
        x, s, z = x + length * dx, s + length * ds, z + length * dz
        tau, kappa = tau + length * dtau, kappa + length * dkappa
    return None


def _into_cone(v: Floats) -> Floats:
    """Return v, moved along 1 if an entry is not positive."""
    least = float(v.min())
    return v if least > 0 else v + (1.0 - least)


def _longest(at: Floats, step: Floats) -> float:
    """Return how far one can go before an entry becomes 0."""
    falling = step < 0
    return float((-at[falling] / step[falling]).min()) if falling.any() else 1.0


def shares(
    speed: Floats,
    gpus: Floats,
    capacity: Floats,
    column_type: Ints,
    *,
    due: Floats | None = None,
    least: Floats | None = None,
    value: Floats | None = None,
) -> Floats | None:
    """Return shares X with the most Σ value·X, or work ≥ t·due with the largest t, or any with work ≥ `least`."""
    n, columns = speed.shape
    size = n * columns
    used = np.unique(column_type)
    taken = np.stack([np.where(column_type == t, gpus[:, None], 0.0) for t in used])
    g = ShareRows(-np.ones((n, columns)), taken, np.ones((n, columns)))
    h = np.concatenate([np.zeros(size), capacity[used], np.ones(n)])
    c = np.zeros(size)
    if value is not None:
        c = -value.ravel()
    elif least is not None:
        g, h = replace(g, speed=-speed), np.concatenate([h, -least])
    elif due is not None:
        g = replace(g, speed=-speed / due[:, None], unit=np.ones(n))
        h, c = np.concatenate([h, np.zeros(n)]), np.append(c, -1.0)
    x = solve(c, g, h)
    return None if x is None else x[:size].reshape(n, columns).clip(0.0, 1.0)
