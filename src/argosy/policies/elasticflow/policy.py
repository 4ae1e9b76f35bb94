"""ElasticFlow: a deadline is promised when a job arrives, or not at all; promised jobs get as little as keeps them.

Decision: a job with a deadline is admitted if it and all jobs admitted before can keep their deadlines; otherwise it is
declined. Jobs that are admitted reserve GPUs in the order of their deadlines, each the smallest size that suffices (its
*minimum satisfactory share*; `reservations.py`). Spare GPUs then go to one job after the other: first to jobs that have
none, then to the one whose next larger size costs the fewest GPU-seconds for each GPU added. Everything is reserved
anew whenever jobs come or go, or a reservation begins.
State used: deadlines, ranges, throughput profiles, work done, the work that users declare (where they do not, the
run's estimate), what resizing costs, which nodes are up.
Parameters: `slot_s`, reservations end at whole slots; `growth`, `cheapest` first, or `dearest` as in the authors' code;
`admission`, whether a job that cannot be promised its deadline is declined, or else admitted like all others; `margin`,
by which share more work is reserved than is left.
Differences from the paper: a job that is declined is not sent away; like jobs without a deadline it runs on what is
spare, in the order of arrival. So does a job whose deadline has passed. Sizes are powers of two within a job's range,
and its smallest and present size. A job whose size changes is planned to be ready earlier, by what the change costs. On
several GPU types a job reserves on the one that keeps its deadline with the least GPU-time. A running job keeps a
larger size than it needs before others grow. A promise that can no longer be kept is given up, so that it breaks no
others. Nodes are chosen by the mechanism: a job waits rather than use more of them than it needs, which is what buddy
allocation is for.
References: Gu et al., ElasticFlow, ASPLOS'23; code at pkusys/ElasticFlow.

    share(j) = min { level : Σ over free periods before deadline(j) of speed(min(level, free)) · length ≥ left(j) }
    cost(j → next level) = (GPU-seconds of the new reservation − of the old one) / GPUs added
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Place, Policy, Sizes, register
from argosy.policies.common.candidates import CandidateTable
from argosy.policies.common.demands import Units
from argosy.policies.common.estimates import longest_where_unknown
from argosy.policies.common.node_shapes import NodeShapes
from argosy.policies.elasticflow.reservations import NOTHING, FreeGpus, Level, Reservation, raised, reserve
from argosy.slack import GPU_SLACK, TIME_SLACK_S

GROWTH = ("cheapest", "dearest")
UNFRAGMENTED = Place.CONSOLIDATE + Place.STRICT  # the speeds of reservations are those on as few nodes as possible
WAITS = 1e15  # rank of jobs that get nothing
SOURCE = "Gu et al., ASPLOS'23"


@dataclass(slots=True)
class Ladder:
    """The levels of a job on one GPU type, and the parameter servers and the cost of a change that go with each."""

    type: int
    levels: list[Level]
    servers: list[int]
    cost_s: float  # of the dearest change from what the job has now
    present: int = NOTHING


@dataclass(slots=True)
class Planned:
    """A job, and what it has reserved."""

    row: int
    work: float
    deadline: float  # infinite without a promise
    ladders: list[Ladder]
    ladder: Ladder
    reservation: Reservation | None = None
    level: int = NOTHING  # what it holds now


class Offer(NamedTuple):
    """The next level of a job; the smallest key is served first."""

    key: tuple[float, float, float]  # whether it runs, whether it has to change, what it costs
    ladder: Ladder
    level: int
    reservation: Reservation | None  # none for a job without a promise


@register("elasticflow", "deadlines promised on arrival, kept with the smallest elastic sizes", SOURCE)
class ElasticFlow(Policy):
    uses = frozenset({"demand", "placement", "nodes", "profile", "progress", "declared", "estimate", "service"})
    uses |= {"overhead"}
    preemptive = True

    def __init__(
        self, slot_s: float = 60.0, growth: str = "cheapest", admission: bool = True, margin: float = 0.05
    ) -> None:
        if not 0 <= slot_s < np.inf:
            raise InputError(f"elasticflow: slot_s must be a time ≥ 0, is {slot_s}")
        if growth not in GROWTH:
            raise InputError(f"elasticflow: growth must be one of {', '.join(GROWTH)}, is {growth!r}")
        if not 0 <= margin < np.inf:
            raise InputError(f"elasticflow: margin must be ≥ 0, is {margin}")
        self.slot_s, self.growth, self.admission, self.margin = slot_s, growth, admission, margin

    def reset(self, context: Context) -> None:
        self._candidates = CandidateTable(context)
        self._types = len(context.gpu_types)
        self._shapes = NodeShapes(self._types)
        self._admitted: dict[int, bool] = {}  # job with a deadline → whether it was promised
        self._next = np.inf  # when a reservation changes

    def rank(self, view: View) -> Floats:
        """Reserve, grow, and return promised jobs by deadline, then the others by arrival."""
        jobs, now = view.jobs, view.now
        planned = self._jobs(view)
        self._admit(view, planned)
        promised = [j for j in planned if j.deadline < np.inf]
        free, late = self._reserve_all(view, promised)
        while late:  # promises that can no longer be kept must not break others
            for job in late:
                job.deadline, job.reservation = np.inf, None
                self._admitted[int(jobs.index[job.row])] = False
            promised = [j for j in promised if j.deadline < np.inf]
            free, late = self._reserve_all(view, promised)
        for job in promised:
            assert job.reservation is not None
            job.level = job.reservation.level_at_once(now)
        self._grow(view, planned, free)
        changes = [part.start for j in promised if j.reservation for part in j.reservation.parts]
        self._next = min((t for t in changes if t > now + TIME_SLACK_S), default=np.inf)
        return self._answer(view, planned, jobs.submitted)

    def size(self, view: View) -> Sizes:
        return self._sized

    def wake_at(self, view: View) -> float | None:
        return float(max(self._next, view.now + max(self.slot_s, 1.0))) if np.isfinite(self._next) else None

    def _jobs(self, view: View) -> list[Planned]:
        """Return the jobs that need GPUs, in order of arrival, each with its levels."""
        jobs = view.jobs
        declared = jobs.declared_s - jobs.done_s
        left = np.where(declared > 0, declared, longest_where_unknown(jobs.expected_left_s))
        ladders = self._ladders(view)
        work = left * (1.0 + self.margin)
        return [
            Planned(row, float(work[row]), np.inf, ladders[row], ladders[row][0])
            for row in np.argsort(jobs.index).tolist()
            if jobs.gpus[row] > 0 and ladders[row]
        ]

    def _ladders(self, view: View) -> list[list[Ladder]]:
        """Return for each job its levels on each GPU type, fastest type first."""
        found: list[dict[int, Ladder]] = [{} for _ in range(len(view.jobs))]
        c = self._candidates.of(view)
        smallest = np.full(len(view.jobs), 2**60)
        np.minimum.at(smallest, c.job, c.workers)
        is_level = (c.workers & (c.workers - 1) == 0) | (c.workers == smallest[c.job]) | c.present
        is_level &= (c.speed > 0) & (c.type >= 0)
        units, servers_each = Units.of(view), c.servers / c.workers
        unit = units.worker[:, c.job] + units.server[:, c.job] * servers_each
        is_level &= (self._shapes.gangs_by_type(view, unit)[c.type, np.arange(len(c.job))] >= c.workers) | c.present
        rows = np.flatnonzero(is_level)
        rows = rows[np.lexsort((c.servers[rows], c.gpus[rows], c.job[rows]))]
        columns = (c.job, c.type, c.gpus, c.speed, c.workers, c.servers, c.overhead_s, c.present)
        for job, kind, gpus, speed, workers, servers, cost_s, present in zip(*(x[rows].tolist() for x in columns)):
            ladder = found[job].setdefault(kind, Ladder(kind, [], [], 0.0))
            ladder.cost_s = max(ladder.cost_s, cost_s)
            if (
                ladder.levels and ladder.levels[-1].gpus == gpus
            ):  # another number of servers: the faster one, or what it has
                if ladder.present == len(ladder.levels) - 1 or (speed <= ladder.levels[-1].speed and not present):
                    continue
                ladder.levels.pop(), ladder.servers.pop()
            ladder.levels.append(Level(gpus, speed, workers))
            ladder.servers.append(servers)
            if present:
                ladder.present = len(ladder.levels) - 1
        return [sorted(ladders.values(), key=lambda on_type: -on_type.levels[-1].speed) for ladders in found]

    def _admit(self, view: View, planned: list[Planned]) -> None:
        """Promise new jobs their deadlines, one after the other, if that breaks no other promise."""
        jobs = view.jobs
        here = set(jobs.index.tolist())
        self._admitted = {job: yes for job, yes in self._admitted.items() if job in here}
        promised, new = [], []
        for job in planned:
            index, deadline = int(jobs.index[job.row]), float(jobs.deadline[job.row])
            if deadline <= view.now or not np.isfinite(deadline):
                continue
            if index not in self._admitted:
                new.append((job, deadline))
            elif self._admitted[index]:
                job.deadline = deadline
                promised.append(job)
        late = len(self._reserve_all(view, promised)[1]) if new else 0
        for job, deadline in new:
            job.deadline = deadline
            yes = not self.admission or len(self._reserve_all(view, [*promised, job])[1]) <= late
            self._admitted[int(jobs.index[job.row])] = yes
            if yes:
                promised.append(job)
            else:
                job.deadline = np.inf

    def _reserve_all(self, view: View, promised: list[Planned]) -> tuple[list[FreeGpus], list[Planned]]:
        """Reserve for promised jobs by deadline; return what is then free by type, and the jobs that will be late."""
        nodes, late = view.nodes, []
        theirs = np.isin(nodes.owner, view.jobs.queue) | (nodes.owner < 0)
        up = np.where((nodes.state == 0) & theirs, nodes.gpus, 0)
        capacity = np.bincount(nodes.type, up, self._types)
        free = [FreeGpus([view.now], [float(n)]) for n in capacity]
        for job in sorted(promised, key=lambda j: (j.deadline, j.row)):
            best: tuple[tuple[bool, float], Ladder, Reservation] | None = None
            for ladder in job.ladders:
                ready = max(job.deadline - ladder.cost_s, view.now)
                plan = reserve(free[ladder.type], ladder.levels, job.work, ready, self.slot_s)
                key = (plan.finish > job.deadline + TIME_SLACK_S, plan.gpu_s if np.isfinite(plan.finish) else np.inf)
                if best is None or key < best[0]:
                    best = key, ladder, plan
            assert best is not None
            (is_late, _), job.ladder, job.reservation = best
            free[job.ladder.type].take(job.ladder.levels, job.reservation)
            if is_late:
                late.append(job)
        return free, late

    def _grow(self, view: View, planned: list[Planned], free: list[FreeGpus]) -> None:
        """Give away what is free now, level by level; a job that finds no room for its next level is out."""
        heap = [(offer.key, i) for i, job in enumerate(planned) if (offer := self._offer(view, job, free))]
        heapify(heap)
        while heap:
            key, i = heap[0]
            offer = self._offer(view, planned[i], free)  # others may have taken what it was to have
            if offer is not None and offer.key <= key:
                self._take(planned[i], offer, free)
                offer = self._offer(view, planned[i], free)
            if offer is None:
                heappop(heap)
            else:
                heapreplace(heap, (offer.key, i))

    def _offer(self, view: View, job: Planned, free: list[FreeGpus]) -> Offer | None:
        """Return the job's next level and what it costs, or None if it does not fit or does not pay."""
        if job.level < 0 and job.deadline == np.inf:
            for ladder in job.ladders:
                if ladder.levels[0].gpus <= free[ladder.type].free[0] + GPU_SLACK:
                    return Offer((0.0, 1.0, float(view.jobs.submitted[job.row])), ladder, 0, None)
            return None
        ladder, level = job.ladder, job.level + 1
        if level >= len(ladder.levels):
            return None
        spare, size = free[ladder.type], ladder.levels[level]
        added = size.gpus - (ladder.levels[job.level].gpus if job.level >= 0 else 0.0)
        if job.deadline == np.inf:
            if added > spare.free[0] + GPU_SLACK:
                return None
            now = ladder.levels[job.level]
            cost = job.work * (size.gpus / size.speed - now.gpus / now.speed) / added
            saved_s, plan = job.work / now.speed - job.work / size.speed, None
        else:
            assert job.reservation is not None
            spare = spare.copy()
            spare.take(ladder.levels, job.reservation, sign=-1)
            plan = raised(spare, ladder.levels, job.work, job.deadline, self.slot_s, level)
            if plan is None:
                return None
            cost = (plan.gpu_s - job.reservation.gpu_s) / added
            saved_s = job.reservation.finish - plan.finish
        keeps = level <= ladder.present
        if job.level >= 0 and not keeps and saved_s <= ladder.cost_s:
            return None  # the change would take longer than it saves
        sign = 1.0 if self.growth == "cheapest" else -1.0
        return Offer((float(job.level >= 0), float(not keeps), sign * cost), ladder, level, plan)

    def _take(self, job: Planned, offer: Offer, free: list[FreeGpus]) -> None:
        _, ladder, level, plan = offer
        spare = free[ladder.type]
        if plan is None:
            added = ladder.levels[level].gpus - (ladder.levels[job.level].gpus if job.level >= 0 else 0.0)
            spare.free[0] -= added  # what is spare later is not promised to it
        else:
            assert job.reservation is not None
            spare.take(ladder.levels, job.reservation, sign=-1)
            spare.take(ladder.levels, plan)
            job.reservation = plan
        job.ladder, job.level = ladder, level

    def _answer(self, view: View, planned: list[Planned], submitted: Floats) -> Floats:
        jobs = view.jobs
        workers = np.where(jobs.gpus > 0, 0, 1)
        servers, types = jobs.ps.copy(), jobs.types.copy()
        key = np.where(jobs.gpus > 0, WAITS, -1.0)
        last = max((j.deadline for j in planned if j.deadline < np.inf), default=0.0)
        for job in planned:
            if job.level < 0:
                continue
            row, ladder = job.row, job.ladder
            workers[row], servers[row] = ladder.levels[job.level].workers, ladder.servers[job.level]
            types[row] = 1 << ladder.type
            key[row] = job.deadline if job.deadline < np.inf else last + submitted[row]
        self._sized = Sizes(workers.astype(np.int64), servers, types, np.full(len(jobs), UNFRAGMENTED))
        return key

    def state(self) -> dict[str, Any]:
        return {"admitted": {str(job): yes for job, yes in self._admitted.items()}} if self._admitted else {}

    def restore(self, state: dict[str, Any]) -> None:
        self._admitted = {int(job): bool(yes) for job, yes in state.get("admitted", {}).items()}
