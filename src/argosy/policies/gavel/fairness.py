"""Gavel's fair policies: max-min (least attained service), finish-time fairness and makespan.

Each also exists in a form that does not know the GPU types (`-agnostic`).

Decision: X(m, j), the fraction of time that job m runs on GPU type j, from a linear program; rounds then give jobs
turns so that every job receives X (mechanism/rounds.py). A new allocation is made when jobs have come or gone.
State used: demands, weights, throughput profiles by GPU type (not the agnostic ones); finish-time fairness and makespan
also the estimate of the time left.
Parameters: `round_s`, length of a round; `min_interval_s`, least time between two allocations; `placement_aware`, two
columns per GPU type, consolidated and spread; `partitions`, into how many equal parts cluster and jobs are divided,
each solved separately; `authors`, rounds as in the authors' simulator, and shares where their solver stops
(central_path.py); makespan then stops within 5 % of the shortest, and agnostic forms take a V100's speed for all.
Max-min and makespan: `packing`, pairs of jobs may share GPUs; `estimator`, how the speeds of pairs are known: `oracle`
knows them, `completion` measures a fraction `measured` of the pairs with known job classes and completes the matrix.
Differences from the paper: time that the objective leaves unused goes where it adds most work, instead of depending on
the vertex at which the solver stops. Without `authors`, GPUs that become free within a round go to waiting jobs, and in
a round's selection jobs without a share on any free type come last, each on its fastest. Finish-time fairness is solved
by a sequence of programs instead of bisection, makespan by one instead of a binary search. If all types look alike and
every job may use them, max-min is water filling. For more than two hundred jobs that all differ, prices are computed
instead of a solution of the program (prices.py).
References: Narayanan et al., Heterogeneity-aware cluster scheduling policies for deep learning workloads, OSDI'20;
code at stanford-futuredata/gavel; Narayanan et al., Solving large-scale granular resource allocation problems
efficiently with POP, SOSP'21, for `partitions`.

    eff(m, X) = Σ_j T(m, j) X(m, j),   X ≥ 0,   Σ_j X(m, j) ≤ 1,   Σ_m gpus(m) X(m, j) ≤ n(j)
    max-min:    max min_m gpus(m) / weight(m) · eff(m, X) / eff(m, X_eq)          X_eq(j) = n(j) / Σ n
    ftf:        min max_m (age + left / eff(m, X)) / (isolated age + left / eff(m, X_iso))
                X_iso(m, j) = n(j) / (jobs · gpus(m)), at most all the time; isolated age: work done over eff(m, X_iso)
    makespan:   min T with eff(m, X) ≥ left(m) / T
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from argosy.cluster.view import Context
from argosy.policies.base import POLICIES, Floats, register
from argosy.policies.gavel.allocation import SOURCE, Gavel, Problem, TimedGavel
from argosy.policies.gavel.linear_program import fairest, soonest, water_level
from argosy.policies.gavel.packing import PackingGavel


def isolated(problem: Problem) -> Floats:
    """Return the shares if each job had an equal part of the cluster to itself."""
    share = problem.by_column(problem.capacity) / (len(problem.gpus) * problem.gpus[:, None])
    share = share / np.maximum(share.sum(axis=1), 1.0)[:, None]
    return np.where(problem.speed > 0, share, 0.0)


def max_min(problem: Problem, weight: Floats) -> Floats:
    """Return max-min fair shares, measured by what an equal split of every GPU type is worth to each job."""
    due = weight * problem.equal_speed() / problem.gpus
    return problem.fairest(due)


@register("gavel-max-min", "equal shares of a cluster whose GPU types suit jobs differently", SOURCE)
class MaxMin(PackingGavel):
    def solve(self, problem: Problem) -> Floats:
        return max_min(problem, problem.weight)


POLICIES.also("gavel-las", "gavel-max-min")  # the paper's name for it


@register("gavel-max-min-agnostic", "equal shares of time, whatever the GPU type", SOURCE)
class MaxMinAgnostic(Gavel):
    aware = False
    uses = Gavel.uses - {"profile"}

    def solve(self, problem: Problem) -> Floats:
        anywhere = self.authors or bool((problem.speed[:, self.capacity[self.column_type] > 0] > 0).all())
        if not anywhere:
            return max_min(problem, problem.weight)
        total = float(problem.capacity.sum())
        x = water_level(problem.gpus, problem.weight, total)
        return np.outer(x, problem.by_column(problem.capacity / max(total, 1.0)))


@register("gavel-ftf", "jobs finish late by the same factor, compared with an equal part of the cluster each", SOURCE)
class FinishTimeFairness(TimedGavel):
    def reset(self, context: Context) -> None:
        super().reset(context)
        self._before: dict[int, tuple[float, float, float]] = {}  # job → isolated age, work left, isolated speed

    def solve(self, problem: Problem) -> Floats:
        speed, left, age = problem.speed, problem.columns["left_s"], problem.columns["age_s"]
        alone = (speed * isolated(problem)).sum(axis=1)
        able = np.flatnonzero(alone > 0)
        share = np.zeros(speed.shape)
        if not len(able):
            return share
        isolated_age = np.zeros(len(left))
        for i, job in enumerate(problem.index.tolist()):
            if job in self._before:
                spent, left_then, speed_then = self._before[job]
                isolated_age[i] = spent + max(left_then - left[i], 0.0) / speed_then
        now = {int(problem.index[i]): (float(isolated_age[i]), float(left[i]), float(alone[i])) for i in able.tolist()}
        self._before = now if self.partitions == 1 else self._before | now
        left, age = left[able], age[able]
        alone_s = isolated_age[able] + left / alone[able]

        def worst(speeds: Floats) -> float:
            return float(((age + left / np.maximum(speeds, 1e-12)) / alone_s).max())

        def due_at(ratio: float) -> Floats:
            return np.asarray(left / (ratio * alone_s - age))

        start = worst(alone[able])
        share[able], _ = soonest(
            speed[able], problem.gpus[able], due_at, start, problem.capacity, problem.column_type, worst, problem.extra
        )
        return share

    def state(self) -> dict[str, Any]:
        return super().state() | {"before": {str(job): list(values) for job, values in self._before.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._before = {int(job): (v[0], v[1], v[2]) for job, v in state["before"].items()}


@register("gavel-ftf-agnostic", "finish-time fairness, whatever the GPU type", SOURCE)
class FinishTimeFairnessAgnostic(FinishTimeFairness):
    aware = False
    uses = TimedGavel.uses - {"profile"}


def bisected(shortest_s: float) -> float:
    """Return the time that the authors' bisection stops at, up to 5 % above the shortest one."""
    low, high, most, found = 100.0, 1e6, 1e6, 0.0
    while not found:
        while 1.05 * low < high:
            middle = (low + high) / 2.0
            if middle >= shortest_s:
                high = found = middle
            else:
                low = middle
        low, most = most, 10.0 * most
        high = most
    return found


@register("gavel-makespan", "everything done as soon as possible, on GPU types that suit jobs differently", SOURCE)
class Makespan(TimedGavel, PackingGavel):
    def solve(self, problem: Problem) -> Floats:
        left = problem.columns["left_s"]
        if problem.extra or problem.beside is not None:
            return problem.fairest(left)
        shares, t = fairest(problem.speed, problem.gpus, left, problem.capacity, problem.column_type, False)
        if t <= 0:
            return shares
        steps_per_s = problem.columns["steps_per_s"]
        in_steps = replace(problem, speed=problem.speed * steps_per_s[:, None])
        return in_steps.as_theirs(shares, least=left * steps_per_s / bisected(1.0 / t))


@register("gavel-makespan-agnostic", "everything done as soon as possible, whatever the GPU type", SOURCE)
class MakespanAgnostic(Makespan):
    aware = False
    uses = TimedGavel.uses - {"profile"}
