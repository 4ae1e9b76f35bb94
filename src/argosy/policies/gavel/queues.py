"""Gavel's policies that need no linear program: first come, first served; AlloX; a part of the cluster for each job.

Decision: FIFO gives jobs, in order of arrival, all the time on the GPU type where they are fastest among those with
room, and no job overtakes one that finds none; its agnostic form takes any type with room, and keeps it. AlloX assigns
jobs to positions in queues of the GPUs so that the sum of completion times is smallest, and starts the first of each
queue; jobs that have started go on. Isolated gives every job an equal part of every GPU type.
State used: demands, throughput profiles (not the agnostic ones); AlloX also the estimate of the time left.
Parameters: as in fairness.py; AlloX: `alpha`, the fraction of waiting jobs, oldest first, to look at.
Differences from the paper: AlloX has no gangs; here a gang counts with its GPU-time, and starts when it is first in the
queue of a GPU of its type and enough others are free. AlloX looks at no more than the 300 jobs that have waited
longest, or as many as GPUs are free. FIFO and AlloX react to every arrival and end at once (with `authors`: at the
beginning of a round, not before `min_interval_s` have passed; FIFO then may give a job GPUs on which it cannot run, and
AlloX gives GPUs that are left over to jobs in no queue). The authors' agnostic FIFO draws a type and then does
not use it; ours does.
References: Narayanan et al., OSDI'20; code at stanford-futuredata/gavel; Le et al., AlloX: compute allocation in hybrid
clusters, EuroSys'20.

    AlloX: cost of job m as the k-th from the end on a GPU of type j = k · gpus(m) · left(m) / T(m, j) + age(m)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context
from argosy.errors import InputError
from argosy.policies.base import Floats, Ints, register
from argosy.policies.gavel.allocation import SOURCE, Gavel, Problem, TimedGavel
from argosy.policies.gavel.fairness import isolated
from argosy.seeding import stream
from argosy.slack import GPU_SLACK

LOOK_AT = 300  # most waiting jobs considered, unless more GPUs are free: an assignment takes cubic time


@register("gavel-fifo", "first come, first served, each on the GPU type where it is fastest", SOURCE)
class Fifo(Gavel):
    is_queue = True

    def solve(self, problem: Problem) -> Floats:
        share = np.zeros(problem.speed.shape)
        room, types = problem.capacity.tolist(), problem.column_type.tolist()
        gpus = problem.gpus.tolist()
        for m, speeds in enumerate(problem.speed.tolist()):
            fitting = [c for c, t in enumerate(types) if room[t] + GPU_SLACK >= gpus[m]]
            if not self.authors:  # theirs gives jobs GPUs on which they cannot run
                fitting = [c for c in fitting if speeds[c] > 0]
            if not fitting:
                if max(speeds) > 0 or self.authors:
                    break
                continue
            best = max(fitting, key=speeds.__getitem__)
            share[m, best] = 1.0
            room[types[best]] -= gpus[m]
        return share


class Sticky(Gavel):
    """The base of queue policies whose jobs keep the GPU type that they were first given."""

    is_queue = True

    def reset(self, context: Context) -> None:
        super().reset(context)
        self.given: dict[int, int] = {}  # job → column

    def keep(self, problem: Problem) -> tuple[Floats, Floats]:
        """Return the shares of jobs that have a type already, and the GPUs that are left."""
        share, room = np.zeros(problem.speed.shape), problem.capacity.copy()
        there = {}
        for m, job in enumerate(problem.index.tolist()):
            column = self.given.get(job, -1)
            if column >= 0 and room[problem.column_type[column]] + GPU_SLACK >= problem.gpus[m]:
                there[job] = column
                share[m, column] = 1.0
                room[problem.column_type[column]] -= problem.gpus[m]
        self.given = there
        return share, room

    def state(self) -> dict[str, Any]:
        return super().state() | {"given": {str(job): column for job, column in self.given.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.given = {int(job): int(column) for job, column in state["given"].items()}


@register("gavel-fifo-agnostic", "first come, first served, on any GPU type", SOURCE)
class FifoAgnostic(Sticky):
    aware = False
    uses = Gavel.uses - {"profile"}

    def __init__(self, round_s: float = 360.0, min_interval_s: float = 1920.0, authors: bool = False) -> None:
        super().__init__(round_s, min_interval_s, authors)

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._run_seed = context.seed

    def solve(self, problem: Problem) -> Floats:
        share, room = self.keep(problem)
        for m, job in enumerate(problem.index.tolist()):
            if job in self.given:
                continue
            is_room = room[problem.column_type] + GPU_SLACK >= problem.gpus[m]
            fitting = np.flatnonzero((problem.speed[m] > 0) & is_room)
            if not len(fitting):
                if problem.speed[m].any():
                    break
                continue
            column = int(stream(self._run_seed, "gavel.fifo", job).choice(fitting))
            self.given[job] = column
            share[m, column] = 1.0
            room[problem.column_type[column]] -= problem.gpus[m]
        return share


@register("gavel-allox", "smallest sum of completion times over GPU types, without preemption", "Le et al., EuroSys'20")
class AlloX(Sticky, TimedGavel):
    uses = TimedGavel.uses
    fills_up = True

    def __init__(
        self, round_s: float = 360.0, min_interval_s: float = 1920.0, authors: bool = False, alpha: float = 1.0
    ) -> None:
        super().__init__(round_s, min_interval_s, authors)
        if not 0 <= alpha <= 1:
            raise InputError(f"{self.name}: alpha must lie in 0..1, is {alpha}")
        self.alpha = alpha

    def solve(self, problem: Problem) -> Floats:
        share, room = self.keep(problem)
        types = problem.column_type
        waiting = [m for m, job in enumerate(problem.index.tolist()) if job not in self.given]
        free = np.floor(room + GPU_SLACK).astype(np.int64)
        able = [m for m in waiting if (problem.speed[m] * (free[types] > 0)).any()]
        able = able[: max(min(int(self.alpha * len(able)), LOOK_AT), int(free.sum()))]
        if not able:
            return share
        assign = self._assign_as_theirs if self.authors else self._assign
        for m, column in assign(problem, np.array(able), free):
            if room[types[column]] + GPU_SLACK >= problem.gpus[m]:
                share[m, column] = 1.0
                room[types[column]] -= problem.gpus[m]
                self.given[int(problem.index[m])] = column
        return share

    def _assign(self, problem: Problem, rows: Ints, free: Ints) -> list[tuple[int, int]]:
        """Return the jobs that are first in the queue of a GPU, with its column, in order of arrival."""
        from scipy.optimize import linear_sum_assignment  # imported late, because it is slow to load

        n = len(rows)
        column, position = [], []
        for c, t in enumerate(problem.column_type.tolist()):
            depth = -(-n // int(free[t])) if free[t] else 0
            position += [k for k in range(1, depth + 1) for _ in range(int(free[t]))]
            column += [c] * (depth * int(free[t]))
        place_column, place_position = np.array(column), np.array(position)
        speed = problem.speed[rows][:, place_column]
        work = (problem.gpus * problem.columns["left_s"])[rows][:, None]
        cost = place_position * work / np.maximum(speed, 1e-10) + problem.columns["age_s"][rows][:, None]
        jobs, places = linear_sum_assignment(cost)
        # each GPU serves one job per position, counted from the end: the job with the highest position begins
        firsts: dict[tuple[int, int], tuple[int, int]] = {}
        counts: dict[tuple[int, int], int] = {}
        for job, place in sorted(zip(jobs.tolist(), places.tolist()), key=lambda pair: pair[1]):
            c, k = int(place_column[place]), int(place_position[place])
            gpu = counts.get((c, k), 0)
            counts[c, k] = gpu + 1
            firsts[c, gpu] = (int(rows[job]), c)
        return sorted(firsts.values())

    def _assign_as_theirs(self, problem: Problem, rows: Ints, free: Ints) -> list[tuple[int, int]]:
        """Do as `_assign` does, with GPUs and positions in the authors' order, which decides between equal ones."""
        from scipy.optimize import linear_sum_assignment  # imported late, because it is slow to load

        column = np.repeat(self._columns[::-1], free[problem.column_type[self._columns[::-1]]])
        left, age = problem.columns["left_s"][rows], problem.columns["age_s"][rows]
        seconds = left[:, None] / np.maximum(problem.speed[rows][:, column], 1e-10)
        cost = np.concatenate([k * seconds + age[:, None] for k in range(1, len(rows) + 1)], axis=1)
        last: dict[int, tuple[int, int]] = {}  # GPU → the highest position in its queue, and the job there
        for job, place in zip(*(found.tolist() for found in linear_sum_assignment(cost))):
            position, gpu = divmod(place, len(column))
            last[gpu] = max(last.get(gpu, (-1, -1)), (position, job))
        return [(int(rows[job]), int(column[gpu])) for gpu, (_, job) in sorted(last.items())]


@register("gavel-isolated", "every job alone on an equal part of every GPU type", SOURCE)
class Isolated(Gavel):
    aware = False
    uses = Gavel.uses - {"profile"}

    def solve(self, problem: Problem) -> Floats:
        return isolated(problem)
