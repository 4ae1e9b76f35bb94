"""Gandiva-fair: every user gets an equal share of GPU time, and users trade fast GPUs for more slow ones.

Decision: tickets are equal for all users with jobs (times their jobs' weights), and a user's jobs share the user's GPU
time equally. What a user cannot use goes to the others. The time is spread over the GPU types in proportion; then jobs
trade: those that gain most from fast GPUs get more of them, and nobody ends up slower than before. Rounds give jobs
turns so that every job receives its share (mechanism/rounds.py).
State used: demands, users, weights, throughput profiles by GPU type.
Parameters: `by`, who holds tickets: `user` or `job`; `trade`, whether GPU types are traded; `authors`, the shares of
Shockwave's code, where each of m jobs gets an m-th of the time on every GPU type, times the number of its GPUs;
`round_s` and `min_interval_s` as in fairness.py.
Differences from the paper: reconstructed from the abstract and from Shockwave's code. The paper trades pair by pair at
a price between the speed-ups of both; here a linear program finds the trade with the largest total speed, relative to
the untraded share, in which every job keeps the speed of its untraded share. Rounds replace split stride and migration.
References: Chaudhary et al., EuroSys'20; the baseline `gandiva_fair` in uw-mad-dash/shockwave.

    x(j, t) = tickets · capacity(t) / gpus(j),  Σ_t x ≤ 1       trade: max Σ_j speed(j, X) / speed(j, x)
    authors: x(j, t) = capacity(t) / m, scaled to Σ_t x ≤ 1      s.t. speed(j, X) ≥ speed(j, x)
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.policies.base import Floats, Ints, register
from argosy.policies.gavel.allocation import Gavel, Problem
from argosy.policies.gavel.efficiency import richest
from argosy.policies.gavel.linear_program import water_level

LEAST_SPEED = 1e-12
ROUNDING = 1e-7  # a job may lose this part of its speed to the solver
BY = ("user", "job")


def equal_time(gpus: Floats, weight: Floats, user: Ints, total: float) -> Floats:
    """Return each job's fraction of time: users' GPU time is equal, and equal for all jobs of a user."""
    names, member = np.unique(user, return_inverse=True)
    demand = np.asarray(np.bincount(member, gpus, len(names)), np.float64)
    tickets = np.bincount(member, weight, len(names)) / np.bincount(member, minlength=len(names))
    budget = water_level(demand, tickets, total) * demand  # in GPUs
    share = np.zeros(len(gpus))
    for u, gpu_time in enumerate(budget.tolist()):
        mine = member == u
        share[mine] = water_level(gpus[mine], weight[mine], gpu_time)
    return share


@register("gandiva-fair", "equal GPU time for users, who trade fast GPUs for slow ones", "Chaudhary et al., EuroSys'20")
class GandivaFair(Gavel):
    def __init__(
        self,
        round_s: float = 360.0,
        min_interval_s: float = 1920.0,
        authors: bool = False,
        by: str = "user",
        trade: bool = True,
    ) -> None:
        super().__init__(round_s, min_interval_s, authors)
        if by not in BY:
            raise InputError(f"{self.name}: by must be one of {', '.join(BY)}, is {by!r}")
        self.by, self.trade = by, trade

    def columns(self, view: View, places: Ints) -> dict[str, Floats]:
        holder = view.jobs.user[places] if self.by == "user" else view.jobs.index[places]
        return {"holder": holder.astype(np.float64)}

    def solve(self, problem: Problem) -> Floats:
        can = problem.speed > 0
        if self.authors:
            share = np.where(can, problem.by_column(problem.capacity) / len(problem.gpus), 0.0)
            return np.asarray(share / np.maximum(share.sum(axis=1), 1.0)[:, None])
        part = np.where(can, problem.by_column(problem.capacity), 0.0)
        part = part / np.maximum(part.sum(axis=1), LEAST_SPEED)[:, None]
        holder = problem.columns["holder"].astype(np.int64)
        time = equal_time(problem.gpus, problem.weight, holder, float(problem.capacity.sum()))
        share = time[:, None] * part
        used = np.bincount(problem.column_type, (problem.gpus[:, None] * share).sum(axis=0), len(problem.capacity))
        scarce = np.minimum(problem.capacity / np.maximum(used, LEAST_SPEED), 1.0)  # types that few jobs can avoid
        share = share * scarce[problem.column_type]
        speed = (share * problem.speed).sum(axis=1)
        if not self.trade or len(problem.capacity) < 2 or not (speed > 0).all():
            return np.asarray(share)
        traded = richest(problem, problem.speed / speed[:, None], speed * (1.0 - ROUNDING))
        return share if traded is None else traded
