"""Explains why jobs wait, with the daemon's job numbers."""

from __future__ import annotations

from collections.abc import Iterable

from argosy.cluster.view import JobState
from argosy.explain.pending import Situation
from argosy.explain.words import clock
from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.job_index import JobIndex
from argosy.live.planner.messages import Told


def reasons(engine: LiveEngine, index: JobIndex, jobs: Iterable[int]) -> dict[int, Told]:
    """Return why these jobs wait, except those that run; if the policy uses durations, also how they were estimated."""
    situation, told, ids = Situation(engine, from_now=True), {}, index.ids
    for id in jobs:
        job = index.jobs.get(id)
        row = engine.jobs.row_of(job.index) if job is not None else -1
        if job is None or engine.jobs.state[row] == JobState.RUNNING:
            continue
        reason = situation.reason(row)
        evidence = reason.evidence
        if {"estimate", "duration"} & engine.policy.uses:
            evidence += f"; expected to take {clock(job.expected.seconds)} ({job.expected.source})"
        behind = tuple(abs(ids[i]) for i in reason.behind if i in ids)
        category = reason.why.name.lower().replace("_", "-")
        told[id] = Told(category, f"{reason.why.value} ({evidence})", evidence, reason.remedy, behind)
    return told
