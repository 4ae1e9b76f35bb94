"""Builds an engine from a snapshot: the jobs in their places, with their accounts, and the policy's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from argosy.live.planner.durations import Durations, Expected
from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.job_index import JobIndex
from argosy.live.planner.job_kinds import JobKinds
from argosy.live.planner.memory import Json
from argosy.live.planner.messages import Active, Setup
from argosy.live.planner.takeover import put_back
from argosy.policies.base import create


class Built(NamedTuple):
    engine: LiveEngine
    tracked: JobIndex
    homeless: list[int]  # jobs that cannot be where the snapshot says


def build(
    setup: Setup,
    kinds: JobKinds,
    durations: Durations,
    now_s: float,
    jobs: list[Active],
    memory: Json | None,
    former: Mapping[int, Expected],
    *,
    renumber: bool = False,
) -> Built:
    """Build the engine. `former` is what was expected of jobs so far; with `renumber` indices need not be kept."""
    if memory:
        kinds.restore(memory["words"])
    kinds.learn([job.facts for job in jobs])
    by_id = {job.facts.id: job for job in jobs}
    numbers, first, new = _indices(by_id, memory, renumber)
    engine = LiveEngine(kinds.trace(), setup.cluster, create(setup.policy), setup.settings, first + len(new))
    engine.prefer_cheap_victims(setup.by_stake)
    if memory and memory["state"]:
        engine.policy.restore(memory["state"])
    engine.pass_until(now_s)
    index = JobIndex(users=dict(memory["users"]), apps=dict(memory["apps"])) if memory else JobIndex()
    order = [*(id for id in memory["slots"] if id in by_id), *new] if memory else new
    facts = [by_id[id].facts for id in order]
    where = np.array([numbers[id] for id in order], np.int64)
    expected = [former.get(f.id) or durations.expect(f) for f in facts]
    if order:
        rows = index.rows(engine, kinds, facts, expected)
        index.number_apps(rows, facts, where)
        for i, f in zip(where.tolist(), facts):
            engine.job_names[i] = f"job {abs(f.id)}"
        engine.write(where, rows)
        engine.seat(where)
    measured = set(memory["measured"]) if memory else set()
    for f, i, e in zip(facts, where.tolist(), expected):
        index.add(engine, f, i, e).measured = f.id in measured
    slots = {id: slot for slot, id in enumerate(order)}
    nodes = {node.name: i for i, node in enumerate(setup.cluster.nodes)}
    homeless = put_back(engine, [by_id[id] for id in order], slots, nodes, memory)
    _restore_timers(engine, index, memory)
    return Built(engine, index, homeless)


def _indices(by_id: Mapping[int, Active], memory: Json | None, renumber: bool) -> tuple[dict[int, int], int, list[int]]:
    """Return the index of each job, the first index that was never used, and the jobs that had no index before."""
    known = {int(id): i for id, i in memory["index"].items()} if memory else {}
    index = {id: known[id] for id in by_id if id in known}
    first = int(memory["next"]) if memory else 0
    if renumber:
        index = {id: i for i, id in enumerate(sorted(index, key=lambda id: index[id]))}
        first = len(index)
    new = sorted((id for id in by_id if id not in index), key=lambda id: (by_id[id].facts.submitted_s, id))
    return index | {id: first + i for i, id in enumerate(new)}, first, new


def _restore_timers(engine: LiveEngine, index: JobIndex, memory: Json | None) -> None:
    """Set minimum run times, the events that the policy has not been told yet, and timers."""
    for job in index.jobs.values():
        engine.set_job(job.index, keep_for_s=job.facts.min_runtime_s)
        if job.facts.core:
            engine.set_job(job.index, lease=np.inf)
    engine.set_untold_events(memory["told"] if memory else [])
    engine.request_decision()
    if memory:
        engine.restore_counters(memory["turn"], memory["rng"])
        if memory["at"] == engine.now:  # nothing has happened since, so the policy need not be asked
            engine.wake_at = np.inf if memory["wake"] is None else memory["wake"]
            engine.request_decision(False)
