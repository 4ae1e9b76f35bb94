"""Putting running jobs where they are: a mirror that takes over from a snapshot.

Nothing is decided here. A job that can not be where the snapshot says (two on one device, a node that is gone) is left
waiting, and the next decision then does not name it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from argosy.errors import InvalidPlan
from argosy.live.backends.base import Part
from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.memory import OWN_F, Json, Kept, kept, recall_job
from argosy.live.planner.messages import Active
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Plan

HALF = L.WHOLE // 2


def put_back(
    engine: LiveEngine, jobs: Sequence[Active], slots: Mapping[int, int], nodes: Mapping[str, int], memory: Json | None
) -> list[int]:
    """Place the jobs, which all have slots; returns the numbers of those that could not be placed."""
    limits = engine.world.qu[L.Q_LIMIT].copy()
    engine.world.qu[L.Q_LIMIT] = np.inf  # what runs, runs
    remembered = kept(memory)
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
    engine.world.qu[L.Q_LIMIT] = limits
    for job in jobs:
        known = remembered.get(job.facts.id)
        slot = slots[job.facts.id]
        holds = engine.world.ji[L.STATE, slot] != L.WAITING
        if known and memory and (memory["at"] == engine.now or (holds and _same(known, job, nodes))):
            recall_job(engine, slot, known)
        else:
            _account(engine, slot, job, known)
    return [id for id in homeless if engine.world.ji[L.STATE, slots[id]] == L.WAITING]


def _entries(parts: Sequence[Part], nodes: Mapping[str, int]) -> list[tuple[int, int, int]] | None:
    """(node, devices as bits, servers) of each part; None if a node is unknown."""
    if any(part.node not in nodes for part in parts):
        return None
    return [(nodes[p.node], sum(1 << d for d in p.devices), p.servers) for p in parts]


def _run(plan: Plan, slot: int, where: list[tuple[int, int, int]]) -> None:
    workers = {node: bits.bit_count() for node, bits, servers in where if bits or not servers}
    devices = {node: bits for node, bits, _ in where if bits}
    plan.run(slot, workers, {node: servers for node, _, servers in where if servers}, devices)


def _is_done(engine: LiveEngine, plan: Plan) -> bool:
    try:
        engine._writer.carry_out(plan)
    except InvalidPlan:
        return False
    return True


def _same(known: Kept, job: Active, nodes: Mapping[str, int]) -> bool:
    """Is the job still in the place that is remembered?"""
    there = [(node, bits, servers) for node, bits, _, servers in known.parts]
    return there == _entries(job.parts, nodes) or job.paused


def _groups(
    engine: LiveEngine, jobs: Sequence[Active], slots: Mapping[int, int], nodes: Mapping[str, int], memory: Json | None
) -> set[int]:
    """Form the groups again whose members are all where they were; returns the members."""
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
            _set_turns(engine, {slots[id]: rows[id] for id in present}, group["due"])
    return members


def _is_there(job: Active, rows: list[list[int]], nodes: Mapping[str, int]) -> bool:
    """A member holds its place, or waits for its first turn in it."""
    entries = [(node, bits, servers) for node, bits, servers, _ in rows]
    return not job.parts or sorted(_entries(job.parts, nodes) or []) == sorted(entries)


def _set_turns(engine: LiveEngine, rows: Mapping[int, list[list[int]]], due: float | None) -> None:
    """Who had a turn when, and when this one ends."""
    w = engine.world
    group = int(w.ji[L.GROUP, next(iter(rows))])
    for i in range(int(w.si[L.GROUP_ROWS])):
        if w.gp[i, L.G_GROUP] == group:
            w.gp[i, L.G_TURN] = rows[int(w.so[w.gp[i, L.G_JOB]])][0][-1]
    heap = w.hp[: w.si[L.HEAP_N]]
    mine = (heap[:, L.H_KIND] == L.DUE_SLICE) & (heap[:, L.H_JOB] == group)
    if due is not None and mine.any():
        heap[mine, L.H_TIME] = max(due, engine.now)
        heap[:] = heap[np.lexsort((heap[:, L.H_SEQ], heap[:, L.H_KIND], heap[:, L.H_TIME]))]  # sorted, so a heap


def _account(engine: LiveEngine, slot: int, job: Active, known: Kept | None) -> None:
    """What the daemon knows of a job; of a former planner's memory only how much work it is, and when it stopped."""
    w, now, account = engine.world, engine.now, job.account
    jf, ji = w.jf, w.ji
    former = dict(zip(OWN_F, known.f.tolist())) if known else {}
    jf[L.WORK, slot] = former.get(L.WORK, jf[L.WORK, slot])
    jf[L.EXPECTED, slot] = former.get(L.EXPECTED, jf[L.EXPECTED, slot])
    work = float(jf[L.WORK, slot])
    left = work - account.executed_s if account.progress is None else (1.0 - account.progress) * work
    if left <= 0:  # it has outlived what was expected: as much again
        done = max(account.executed_s, 1.0)
        work, left = 2 * done, done
    jf[L.WORK, slot], jf[L.LEFT, slot], jf[L.SAFE_LEFT, slot], jf[L.NOW_LEFT, slot] = work, left, left, left
    jf[L.NOW_EXPECTED_LEFT, slot], jf[L.NOW_PROGRESS, slot] = left, 1.0 - left / work
    jf[L.ATTAINED, slot] = jf[L.NOW_ATTAINED, slot] = jf[L.USEFUL, slot] = account.attained_gpu_s
    jf[L.EXECUTED, slot] = jf[L.NOW_EXECUTED, slot] = account.executed_s
    ji[L.PREEMPTIONS, slot], ji[L.FAULTS, slot] = account.preemptions, account.faults
    ji[L.RUNS, slot] = max(account.runs, int(ji[L.STATE, slot] == L.RUNNING))
    since = former.get(L.WAIT_SINCE, jf[L.SUBMIT, slot])
    jf[L.WAIT_SINCE, slot] = since if account.waiting_since_s is None else account.waiting_since_s
    if ji[L.STATE, slot] == L.RUNNING:
        started = now if job.started_s is None else job.started_s
        jf[L.STARTED, slot] = started
        jf[L.READY, slot] = max(now, started + w.ov[ji[L.CLASS, slot], L.O_START])
        jf[L.SAFE_AT, slot] = started if job.checkpoint_s is None else job.checkpoint_s
    else:
        jf[L.SAFE_AT, slot] = jf[L.WAIT_SINCE, slot]
