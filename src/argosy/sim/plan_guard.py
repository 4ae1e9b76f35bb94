"""Make a policy's plan obey the rules that hold for ranks and bids too: minimum run times, leases and limits of queues.

A plan that obeys them is carried out as it is. A job that the plan may not stop yet (it has just started, holds a
lease, or was preempted as often as the run allows) stays where it is. Then only a part of the plan is carried out: its
other stops, and the starts for which there is room; moves, packs and turns wait until the policy is asked again, which
is when the first of those jobs may be stopped. A start or a growth beyond the limit of a queue waits. The plan's
reasons say so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from argosy.cluster.view import WHOLE, JobState, NodeState
from argosy.mechanism.free_nodes import Claim, FreeNodes
from argosy.mechanism.plan import Placement, Plan, Reason, Why
from argosy.slack import GPU_SLACK, TIME_SLACK_S

if TYPE_CHECKING:
    from argosy.sim.engine import Engine

YOUNG = "a job that may not be stopped yet keeps its GPUs"


def allowed(engine: Engine, plan: Plan) -> Plan:
    """Return the plan, or the part of it that may be carried out now.

    In a simulation, plans of a policy that remembers where it put jobs are carried out as they are: a part of such a
    plan would leave the policy with a wrong picture. A live engine tells it what came of the plan.
    """
    if engine.policy.keeps_books and not engine.is_live:
        return plan
    until = protected_until(engine)
    stopped = [row for row in until if _would_stop(plan, row)]
    if stopped:
        plan = _without(engine, plan, set(until), min(until[row] for row in stopped))
    return _within_limits(engine, plan) if np.isfinite(engine.queues.limit).any() else plan


def protected_until(engine: Engine) -> dict[int, float]:
    """Return the running jobs (by row) that may not be stopped yet, and until when."""
    jobs, rules = engine.jobs, engine.rules
    until = np.maximum(jobs.started + np.maximum(rules.min_run_s, jobs.keep_for_s), jobs.lease)
    until = np.where(jobs.preemptions >= rules.max_preemptions, np.inf, until)
    rows = np.flatnonzero((jobs.state == JobState.RUNNING) & (until > engine.now + TIME_SLACK_S))
    return dict(zip(rows.tolist(), until[rows].tolist(), strict=True))


def _would_stop(plan: Plan, row: int) -> bool:
    """Return whether the plan would stop the job. (A resize, a move or taking turns with others does not stop it.)"""
    return row in plan.stops or (not plan.keeps and row not in plan.placements and row not in plan.packs)


def _stops(engine: Engine, plan: Plan) -> set[int]:
    """Return the jobs that the plan stops, named or not."""
    if plan.keeps:
        return set(plan.stops)
    named = set(plan.placements) | set(plan.packs) | {row for rows, _ in plan.slices for row in rows}
    return plan.stops | ({int(row) for row in np.flatnonzero(engine.jobs.state != JobState.WAITING)} - named)


def _without(engine: Engine, plan: Plan, young: set[int], until: float, why: str = YOUNG) -> Plan:
    """Stop the jobs that may be stopped, then start those for which there is room; change nothing else."""
    state = engine.jobs.state
    stops = {row for row in _stops(engine, plan) if row not in young}
    rooms = Rooms(engine, stops)
    sliced = {row for rows, _ in plan.slices for row in rows}
    starts, reasons = dict[int, Placement](), dict(plan.reasons)
    for row, placement in plan.placements.items():
        if not 0 <= row < len(state):
            starts[row] = placement  # which is refused where plans are checked
        elif state[row] != JobState.WAITING:
            continue
        elif row not in sliced and rooms.take(row, placement):
            starts[row] = placement
        else:
            reasons[row] = Reason(Why.NO_GPUS, why)
    wake = plan.wake_at if until == np.inf else until if plan.wake_at is None else min(until, plan.wake_at)
    batches = {row: batch for row, batch in plan.batches.items() if row in starts or row not in plan.placements}
    return Plan(True, starts, stops, {}, [], plan.leases, reasons, wake, batches)


def _within_limits(engine: Engine, plan: Plan) -> Plan:
    """Return the plan without starts and growths beyond the limits of queues; jobs that shrink are counted first."""
    jobs, held, limit = engine.jobs, engine.queues.held.copy(), engine.queues.limit
    for row in _stops(engine, plan):
        held[jobs.queue[row]] -= jobs.held[row]
    more = {
        row: (sum(placement.gpus.values()) if jobs.gpus[row] >= 1 else float(jobs.gpus[row])) - float(jobs.held[row])
        for row, placement in plan.placements.items()
        if 0 <= row < len(jobs) and jobs.peer[row] < 0
    }
    placements, reasons = dict(plan.placements), dict(plan.reasons)
    for row in sorted(more, key=lambda row: (jobs.state[row] == JobState.WAITING, more[row] > 0, row)):
        queue = int(jobs.queue[row])
        if more[row] > 0 and held[queue] + more[row] > limit[queue] + GPU_SLACK:
            reasons[row] = Reason(Why.QUOTA, f"its queue has {held[queue]:g} of {limit[queue]:g} GPUs")
            del placements[row]
        else:
            held[queue] += more[row]
    if len(placements) == len(plan.placements):
        return plan
    gone = plan.placements.keys() - placements.keys()
    packs = {guest: host for guest, host in plan.packs.items() if host not in gone}
    slices = [(rows, quantum) for rows, quantum in plan.slices if not gone & set(rows)]
    kept = plan if plan.keeps else replace(plan, keeps=True, stops=_stops(engine, plan))
    kept = replace(kept, placements=placements, packs=packs, slices=slices, reasons=reasons)
    if all(jobs.state[row] == JobState.WAITING for row in gone):
        return kept
    return _without(engine, kept, set(), np.inf, "a job whose queue is at its limit stays where it is")


class Rooms:
    """What is free on each node once some jobs have stopped."""

    def __init__(self, engine: Engine, stops: set[int]) -> None:
        self._engine, self._jobs, jobs = engine, engine.jobs, engine.jobs
        self._supply, self._devices = engine.supply(), engine.free_devices()
        self._free = FreeNodes(self._supply.whole(), self._supply.cpus.copy(), self._supply.memory.copy())
        self._queue = engine.queues.held.copy()
        self._named: dict[int, bool] = {}  # node → whether starts there name their devices
        for row in stops:
            if jobs.state[row] != JobState.RUNNING or jobs.peer[row] >= 0:
                continue
            self._queue[jobs.queue[row]] -= jobs.held[row]
            for part in engine.parts_of(row):
                whole = part.devices if part.milli == WHOLE else 0
                self._devices[part.node] |= whole
                units = part.devices.bit_count() + part.servers if jobs.gpus[row] >= 1 else 1
                self._free.give([self._claim(row, part.node, whole.bit_count(), units)])

    def _claim(self, row: int, node: int, gpus: int, units: int) -> Claim:
        return Claim(node, gpus, units * float(self._jobs.cpu_unit[row]), units * float(self._jobs.memory_unit[row]))

    def take(self, row: int, placement: Placement) -> bool:
        """Return whether there is room for a start, and reserve it if so."""
        nodes = set(placement.gpus) | set(placement.servers)
        asked, queue = float(self._jobs.gpus[row]), int(self._jobs.queue[row])
        if 0 < asked < 1 or self._queue[queue] + asked > self._engine.queues.limit[queue] + GPU_SLACK:
            return False  # starts on a share of a device wait, too: thousandths are not counted here
        claims = []
        for node in nodes:
            gpus, devices = placement.gpus.get(node, 0), placement.devices.get(node, 0)
            units = gpus + placement.servers.get(node, 0) if asked >= 1 else 1
            # a start without named devices might get those that another start names
            alike = self._named.get(node, devices > 0) == (devices > 0)
            if not alike or devices & ~self._devices[node] or self._supply.state[node] != NodeState.UP:
                return False
            claims.append(self._claim(row, node, gpus, units))
        if any(self._free.lacks(claim) for claim in claims):
            return False
        self._free.take(claims)
        for node in nodes:
            devices = placement.devices.get(node, 0)
            self._named[node] = devices > 0
            self._devices[node] &= ~devices
        self._queue[queue] += asked
        return True
