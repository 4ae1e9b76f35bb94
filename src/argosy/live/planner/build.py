"""An engine for what a snapshot says: the jobs in their places, with their accounts, and the policy's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.expect import Durations, Expected
from argosy.live.planner.memory import Json
from argosy.live.planner.messages import Active, Setup
from argosy.live.planner.register import Register
from argosy.live.planner.takeover import put_back
from argosy.live.planner.vocabulary import Vocabulary
from argosy.mechanism.kernels import layout as L
from argosy.policies.base import create


class Built(NamedTuple):
    engine: LiveEngine
    register: Register
    homeless: list[int]  # jobs that can not be where the snapshot says


def build(
    setup: Setup, words: Vocabulary, durations: Durations, now_s: float, jobs: list[Active], memory: Json | None,
    former: Mapping[int, Expected], *, renumber: bool = False,
) -> Built:  # fmt: skip
    """`former`: what was expected of jobs so far; `renumber`: indices need not be kept."""
    if memory:
        words.restore(memory["words"])
    words.learn([job.facts for job in jobs])
    by_id = {job.facts.id: job for job in jobs}
    index, first, new = _indices(by_id, memory, renumber)
    engine = LiveEngine(words.trace(), setup.cluster, create(setup.policy), setup.settings, first + len(new))
    engine.world.si[L.BY_STAKE] = setup.by_stake
    if memory and memory["state"]:
        engine.policy.restore(memory["state"])
    engine.pass_until(now_s)
    register = Register(users=dict(memory["users"]), apps=dict(memory["apps"])) if memory else Register()
    order = [*(id for id in memory["slots"] if id in by_id), *new] if memory else new
    facts = [by_id[id].facts for id in order]
    where = np.array([index[id] for id in order], np.int64)
    expected = [former.get(f.id) or durations.expect(f) for f in facts]
    if order:
        rows = register.rows(engine, words, facts, expected)
        register.number_apps(rows, facts, where)
        for i, f in zip(where.tolist(), facts):
            engine.roll.names[i] = f"job {abs(f.id)}"
        engine.write(where, rows)
        engine.seat(where)
    measured = set(memory["measured"]) if memory else set()
    for f, i, e in zip(facts, where.tolist(), expected):
        register.add(engine, f, i, e).measured = f.id in measured
    slots = {id: slot for slot, id in enumerate(order)}
    nodes = {node.name: i for i, node in enumerate(setup.cluster.nodes)}
    homeless = put_back(engine, [by_id[id] for id in order], slots, nodes, memory)
    _wind_up(engine, register, memory)
    return Built(engine, register, homeless)


def _indices(by_id: Mapping[int, Active], memory: Json | None, renumber: bool) -> tuple[dict[int, int], int, list[int]]:
    """Index of each job, the first index that nobody ever had, and the jobs without a former one."""
    known = {int(id): i for id, i in memory["index"].items()} if memory else {}
    index = {id: known[id] for id in by_id if id in known}
    first = int(memory["next"]) if memory else 0
    if renumber:
        index = {id: i for i, id in enumerate(sorted(index, key=lambda id: index[id]))}
        first = len(index)
    new = sorted((id for id in by_id if id not in index), key=lambda id: (by_id[id].facts.submitted_s, id))
    return index | {id: first + i for i, id in enumerate(new)}, first, new


def _wind_up(engine: LiveEngine, register: Register, memory: Json | None) -> None:
    """What is not about single jobs: minimum run times, what the policy has yet to hear, and timers."""
    w = engine.world
    for job in register.jobs.values():
        w.jf[L.KEEP_FOR, w.so[job.index]] = job.facts.min_runtime_s
    told = np.array(memory["told"] if memory else []).reshape(-1, L.LG_FIELDS)
    engine.hear(told)
    w.si[L.DIRTY] = 1
    if memory:
        w.si[L.TURN], w.si[L.RNG] = memory["turn"], memory["rng"]
        if memory["at"] == engine.now:  # nothing has happened since: nor need anybody be asked
            w.sf[L.WAKE] = np.inf if memory["wake"] is None else memory["wake"]
            w.si[L.DIRTY] = 0
