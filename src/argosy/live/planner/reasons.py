"""Why jobs wait, in the daemon's terms."""

from __future__ import annotations

from collections.abc import Iterable

from argosy.explain.pending import Situation
from argosy.explain.words import clock
from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.messages import Told
from argosy.live.planner.register import Register
from argosy.mechanism.kernels import layout as L


def reasons(engine: LiveEngine, register: Register, jobs: Iterable[int]) -> dict[int, Told]:
    """Of those among these jobs that hold nothing, as of the last decision; where durations count, whose word it is."""
    situation, told, ids = Situation(engine, from_now=True), {}, register.ids
    for id in jobs:
        job = register.jobs.get(id)
        slot = int(engine.world.so[job.index]) if job is not None else -1
        if job is None or engine.world.ji[L.STATE, slot] == L.RUNNING:
            continue
        reason = situation.reason(slot)
        evidence = reason.evidence
        if {"estimate", "duration"} & engine.policy.uses:
            evidence += f"; expected to take {clock(job.expected.seconds)} ({job.expected.source})"
        behind = tuple(abs(ids[i]) for i in reason.behind if i in ids)
        category = reason.why.name.lower().replace("_", "-")
        told[id] = Told(category, f"{reason.why.value} ({evidence})", evidence, reason.remedy, behind)
    return told
