"""Puts running jobs where they are when a planner takes over from a snapshot, and describes them for one.

Nothing is decided here. A job that cannot be where the snapshot says (two jobs on one device, an unknown node) is left
waiting, and the next decision does not place it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from argosy.cluster.view import WHOLE, JobState
from argosy.errors import InvalidPlan
from argosy.live.backends.base import Part, Placement
from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.job_index import Tracked
from argosy.live.planner.memory import Json, Kept, kept
from argosy.live.planner.messages import Account, Active
from argosy.mechanism.plan import Plan

HALF = WHOLE // 2


def as_active(engine: LiveEngine, job: Tracked, placement: Placement | None) -> Active:
    """Describe a job for the snapshot from which another planner takes over."""
    table, row = engine.jobs, engine.jobs.row_of(job.index)
    account = Account(
        float(table.settled_attained[row]),
        float(table.settled_executed_s[row]),
        int(table.runs[row]),
        int(table.preemptions[row]),
        int(table.faults[row]),
        None,
        float(table.wait_since[row]),
    )
    if placement is None:
        return Active(job.facts, account, checkpoint_s=float(table.saved_at[row]))
    started, saved = float(table.started[row]), float(table.saved_at[row])
    return Active(job.facts, account, placement.parts, placement.paused, started, saved, placement.batch)


def put_back(
    engine: LiveEngine, jobs: Sequence[Active], slots: Mapping[int, int], nodes: Mapping[str, int], memory: Json | None
) -> list[int]:
    """Place the jobs, which all have rows; return the numbers of those that cannot be placed."""
    remembered = kept(memory)
    with engine.without_queue_limits():
        homeless = _place(engine, jobs, slots, nodes, memory)
    chosen = {slots[job.facts.id]: job for job in jobs if job.batch is not None}
    adaptive = {row: float(job.batch or 0) for row, job in chosen.items() if engine.jobs.family[row] >= 0}
    engine.set_batches({row: min(batch, float(engine.jobs.max_batch[row])) for row, batch in adaptive.items()})
    for job in jobs:
        known = remembered.get(job.facts.id)
        row = slots[job.facts.id]
        holds = engine.jobs.state[row] != JobState.WAITING
        if known and memory and (memory["at"] == engine.now or (holds and _same(known, job, nodes))):
            engine.restore_accounts(int(engine.jobs.index[row]), known.accounts)
        else:
            _account(engine, row, job, known)
    return [id for id in homeless if engine.jobs.state[slots[id]] == JobState.WAITING]


def _place(
    engine: LiveEngine, jobs: Sequence[Active], slots: Mapping[int, int], nodes: Mapping[str, int], memory: Json | None
) -> list[int]:
    """Put the jobs where they are; return those that cannot be there."""
    takes_turns = _groups(engine, jobs, slots, nodes, memory)
    homeless: list[int] = []
    hosts: dict[tuple[tuple[int, int, int], ...], int] = {}
    for job in jobs:
        if not job.parts or job.facts.id in takes_turns:
            continue
        slot, where = slots[job.facts.id], _entries(job.parts, nodes)
        key = tuple(where) if where else ()
        packed = job.facts.gpus >= 1 and all(part.milli == HALF for part in job.parts)
        plan = Plan.keep(engine.view)
        if packed and key in hosts:
            plan.pack(slot, hosts.pop(key))
        elif where is not None:
            _run(plan, slot, where)
            hosts |= {key: slot} if packed else {}
        if job.paused or where is None or not _is_done(engine, plan):
            homeless.append(job.facts.id)
    return homeless


def _entries(parts: Sequence[Part], nodes: Mapping[str, int]) -> list[tuple[int, int, int]] | None:
    """Return (node, devices as bits, servers) of each part; None if a node is unknown."""
    if any(part.node not in nodes for part in parts):
        return None
    return [(nodes[p.node], sum(1 << d for d in p.devices), p.servers) for p in parts]


def _run(plan: Plan, slot: int, where: list[tuple[int, int, int]]) -> None:
    workers = {node: bits.bit_count() for node, bits, servers in where if bits or not servers}
    devices = {node: bits for node, bits, _ in where if bits}
    plan.run(slot, workers, {node: servers for node, _, servers in where if servers}, devices)


def _is_done(engine: LiveEngine, plan: Plan) -> bool:
    try:
        engine.carry_out(plan)
    except InvalidPlan:
        return False
    return True


def _same(known: Kept, job: Active, nodes: Mapping[str, int]) -> bool:
    """Return whether the job is still in the place that is remembered."""
    there = [(node, bits, servers) for node, bits, _, servers in known.parts]
    return there == _entries(job.parts, nodes) or job.paused


def _groups(
    engine: LiveEngine, jobs: Sequence[Active], slots: Mapping[int, int], nodes: Mapping[str, int], memory: Json | None
) -> set[int]:
    """Form the former groups again from the members that are still in their places; return these members."""
    active, members = {job.facts.id: job for job in jobs}, set()
    for group in memory["groups"] if memory else ():
        rows: dict[int, list[list[int]]] = {}
        for id, *where in group["rows"]:
            rows.setdefault(id, []).append(where)
        present = [id for id in rows if id in active and (_is_there(active[id], rows[id], nodes))]
        present.sort(key=lambda id: active[id].paused or not active[id].parts)  # those whose turn it is come first
        if len(present) < 2:
            continue
        plan = Plan.keep(engine.view)
        for id in present:
            _run(plan, slots[id], [(node, bits, servers) for node, bits, servers, _ in rows[id]])
        plan.slice([slots[id] for id in present], group["quantum"])
        if _is_done(engine, plan):
            members |= set(present)
            engine.set_turns({slots[id]: rows[id][0][-1] for id in present}, group["due"])
    return members


def _is_there(job: Active, rows: list[list[int]], nodes: Mapping[str, int]) -> bool:
    """Return whether a member holds its place in the group, or waits for its first turn there."""
    entries = [(node, bits, servers) for node, bits, servers, _ in rows]
    return not job.parts or sorted(_entries(job.parts, nodes) or []) == sorted(entries)


def _account(engine: LiveEngine, row: int, job: Active, known: Kept | None) -> None:
    """Write what the daemon knows about a job; a former planner's memory adds its work and since when it waits."""
    jobs, now, account = engine.jobs, engine.now, job.account
    former = known.accounts if known else None
    work = former.value("duration_s") if former else float(jobs.duration_s[row])
    expected = former.value("expected_s") if former else float(jobs.expected_s[row])
    left = work - account.executed_s if account.progress is None else (1.0 - account.progress) * work
    if left <= 0:  # it has run longer than expected: assume that as much again is left
        done = max(account.executed_s, 1.0)
        work, left = 2 * done, done
    running = bool(jobs.state[row] == JobState.RUNNING)
    waits_since = former.value("wait_since") if former else float(jobs.submitted[row])
    if account.waiting_since_s is not None:
        waits_since = account.waiting_since_s
    attained, executed = account.attained_gpu_s, account.executed_s
    index = int(jobs.index[row])
    engine.set_job(
        index,
        duration_s=work,
        expected_s=expected,
        settled_left_s=left,
        saved_left_s=left,
        remaining_s=left,
        expected_left_s=left,
        progress=1.0 - left / work,
        settled_attained=attained,
        attained=attained,
        settled_useful=attained,
        settled_executed_s=executed,
        executed_s=executed,
        preemptions=account.preemptions,
        faults=account.faults,
        runs=max(account.runs, int(running)),
        wait_since=waits_since,
    )
    if running:
        started = now if job.started_s is None else job.started_s
        ready = max(now, started + engine.start_overhead_s(index))
        engine.set_job(
            index, started=started, ready=ready, saved_at=started if job.checkpoint_s is None else job.checkpoint_s
        )
    else:
        engine.set_job(index, saved_at=waits_since)
