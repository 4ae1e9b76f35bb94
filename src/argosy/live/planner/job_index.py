"""The jobs that have not ended: the daemon's numbers, the engine's indices, and what is known of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from argosy.live.planner.durations import Expected
from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.job_kinds import JobKinds
from argosy.live.planner.messages import JobFacts
from argosy.mechanism.world import Floats, Ints, set_owners

ALONE = 10**9  # a job without an application counts as its own, numbered by this plus its index


@dataclass(slots=True)
class Tracked:
    """A job that has not ended."""

    facts: JobFacts
    index: int
    expected: Expected
    measured: bool = False  # its work is known from its own reports


@dataclass
class JobIndex:
    """Jobs by number, numbers by index, and numbers for the names of users and applications."""

    jobs: dict[int, Tracked] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    apps: dict[str, int] = field(default_factory=dict)

    def rows(
        self, engine: LiveEngine, kinds: JobKinds, facts: Sequence[JobFacts], expected: Sequence[Expected]
    ) -> Floats:
        """Return the engine's columns for these jobs; applications are numbered later, when indices are known."""
        seconds = np.array([e.seconds for e in expected])
        rows = kinds.rows(facts, seconds, engine.tables, engine.names.queues)
        set_owners(rows, user=[self.users.setdefault(f.user, len(self.users)) for f in facts])
        return rows

    def number_apps(self, rows: Floats, facts: Sequence[JobFacts], index: Ints) -> None:
        numbers = [
            self.apps.setdefault(f.app, len(self.apps)) if f.app else ALONE + i for f, i in zip(facts, index.tolist())
        ]
        set_owners(rows, app=numbers)

    def add(self, engine: LiveEngine, facts: JobFacts, index: int, expected: Expected) -> Tracked:
        self.jobs[facts.id] = job = Tracked(facts, index, expected)
        self.ids[index] = facts.id
        if facts.min_runtime_s > 0:
            engine.set_job(index, keep_for_s=facts.min_runtime_s)
        if facts.exclusive:
            engine.exclusive.add(index)
        return job

    def drop(self, engine: LiveEngine, id: int) -> None:
        index = self.jobs.pop(id).index
        del self.ids[index]
        engine.exclusive.discard(index)
        engine.losses.pop(index, None)
        engine.steps.pop(index, None)

    def state(self) -> dict[str, Any]:
        measured = [id for id, job in self.jobs.items() if job.measured]
        return {"users": self.users, "apps": self.apps, "measured": measured}
