"""The plan of a window: how many rounds each job gets, as a mixed-integer program for HiGHS, and in which rounds.

    maximise   Σ_j w_j · log(progress_j at the end of the window) / (J · T)  −  k · max_j remaining_j
    subject to Σ_j GPUs_j · n_j ≤ T · GPUs;   end of the window + remaining_j / share ≤ ρ_max · fair finish_j

The logarithm is piecewise linear between 0, 0.2, 0.4, 0.6, 0.8 and 1 (log 0 counts as log 1e-6). If the finish times
cannot be kept, that constraint is dropped, and the logarithms of late jobs are weighted by a power of their lateness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.policies.base import Floats, Ints
from argosy.slack import COUNT_SLACK

BASES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
LOG_BASES = np.log(np.maximum(BASES, 1e-6))
SLOPES = np.diff(LOG_BASES) / np.diff(BASES)
ALMOST_DONE_POWER = 100.0  # to which the lateness of a job is raised if it can end within one round
TIE = 1e-5  # on one linear piece of the logarithm all divisions of rounds are worth the same: prefer the most equal one
MOST_WEIGHT = 1e6  # larger weights only make the solver inaccurate


@dataclass(frozen=True, slots=True)
class Window:
    """What the plan of a window depends on, by job."""

    gpus: Ints
    progress: Floats  # share of the epochs done
    epoch_s: Floats  # mean length of the epochs seen
    epochs: Ints
    remaining_s: Floats
    fair_finish: Floats
    now: float
    round_s: float
    rounds: int
    total_gpus: int
    k: float
    power: float  # of the lateness
    rho: float

    @property
    def share(self) -> float:
        return min(1.0, self.total_gpus / max(len(self.gpus), 1))

    def lateness(self) -> Floats:
        """Return the expected end of each job on an equal share, relative to its fair one."""
        return np.asarray((self.now + self.remaining_s / self.share) / np.maximum(self.fair_finish, 1e-9))

    def weights(self) -> Floats:
        """Return the weights of jobs when not all can end in time."""
        late = self.lateness()
        power = np.where(self.remaining_s < self.round_s, ALMOST_DONE_POWER, self.power)
        with np.errstate(over="ignore"):
            return np.minimum(np.where(late > self.rho, np.maximum(late, 1.0) ** power, 1.0), MOST_WEIGHT)


def plan(window: Window, limit_s: float = 15.0) -> tuple[Ints, Floats]:
    """Return the rounds that each job gets in the window, and its priority among them."""
    ones = np.ones(len(window.gpus))
    rounds = solve(window, ones, in_time=True, limit_s=limit_s)
    if rounds is not None:
        return rounds, ones
    weights = window.weights()
    rounds = solve(window, weights, in_time=False, limit_s=limit_s)
    return np.zeros(len(ones), np.int64) if rounds is None else rounds, weights


def solve(window: Window, weights: Floats, *, in_time: bool, limit_s: float) -> Ints | None:
    """Return the rounds of each job, or None if finish times cannot be kept.

    Columns are, for each job: rounds (whole), seconds of work planned, logarithm, seconds remaining; then the largest
    number of seconds remaining, and that of rounds, by which ties are broken.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    jobs = len(window.gpus)
    end = window.now + window.rounds * window.round_s
    late = (window.rho * window.fair_finish - end) * window.share
    if in_time and (late < 0).any():
        return None
    rounds, work, log, left, longest, most = 0, jobs, 2 * jobs, 3 * jobs, 4 * jobs, 4 * jobs + 1
    columns = most + 1
    each = np.arange(jobs)
    rows: list[NDArray[np.float64]] = []
    bounds: list[float] = []

    def at_most(limit: float, *terms: tuple[int, float]) -> None:
        for column, value in terms:
            rows.append(np.array([len(bounds), column, value]))
        bounds.append(limit)

    at_most(window.rounds * window.total_gpus, *((rounds + j, float(window.gpus[j])) for j in each.tolist()))
    per_s = 1.0 / np.maximum(window.epoch_s * window.epochs, 1e-9)  # progress of a second of work
    for j in each.tolist():
        at_most(0.0, (work + j, 1.0), (rounds + j, -window.round_s))
        for base, value, slope in zip(BASES, LOG_BASES, SLOPES):  # log ≤ value + slope · (progress − base)
            at_most(value + slope * (window.progress[j] - base), (log + j, 1.0), (work + j, -slope * per_s[j]))
        at_most(-window.remaining_s[j], (work + j, -1.0), (left + j, -1.0))
        at_most(0.0, (left + j, 1.0), (longest, -1.0))
        at_most(0.0, (rounds + j, 1.0), (most, -1.0))
        if in_time:
            at_most(float(late[j]), (left + j, 1.0))
    entries = np.array(rows)
    matrix = coo_array(
        (entries[:, 2], (entries[:, 0].astype(int), entries[:, 1].astype(int))), shape=(len(bounds), columns)
    ).tocsr()
    gain = np.zeros(columns)
    gain[log : log + jobs] = -weights / (jobs * window.rounds)
    gain[longest], gain[most] = window.k, TIE
    low, high = np.zeros(columns), np.full(columns, np.inf)
    low[log : log + jobs] = LOG_BASES[0] - 1.0
    needed = np.ceil(window.remaining_s / window.round_s - COUNT_SLACK)
    high[rounds : rounds + jobs] = np.minimum(np.maximum(needed, 1), window.rounds)
    high[work : work + jobs] = np.maximum(1.0 - window.progress, 0.0) / per_s
    whole = np.zeros(columns)
    whole[rounds : rounds + jobs] = 1
    found = milp(
        gain,
        integrality=whole,
        bounds=Bounds(low, high),
        constraints=LinearConstraint(matrix, -np.inf, np.array(bounds)),
        options={"mip_rel_gap": 1e-3, "time_limit": limit_s},
    )
    return None if found.x is None else np.round(found.x[:jobs]).astype(np.int64)


def arrange(rounds: Ints, gpus: Ints, priority: Floats, total_gpus: int, length: int) -> list[list[int]]:
    """Return the jobs of each round: those with priority early, large ones first; what does not fit waits."""
    free = np.full(length, total_gpus)
    schedule: list[list[int]] = [[] for _ in range(length)]
    for j in np.lexsort((np.arange(len(rounds)), -gpus, -priority)).tolist():
        left = int(rounds[j])
        for t in range(length):
            if left and free[t] >= gpus[j]:
                schedule[t].append(j)
                free[t] -= gpus[j]
                left -= 1
    return schedule
