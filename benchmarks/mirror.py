"""A cluster in which jobs of a trace run for their true durations, and a planner decides that does not know them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from argosy.live.planner.messages import Active, Ended, JobFacts, Update

if TYPE_CHECKING:
    from argosy.live.planner.planner import Planner
    from argosy.workload.trace import Trace


@dataclass
class Mirrored:
    """A job with its true length, in seconds at the size that it asks for."""

    facts: JobFacts
    left_s: float
    rate: float = 0.0
    start_s: float | None = None
    end_s: float | None = None


@dataclass
class Mirror:
    """The real side: time passes until a job arrives or ends, or the policy wants to be asked."""

    jobs: dict[int, Mirrored]
    now: float = 0.0
    here: dict[int, Mirrored] = field(default_factory=dict)
    wake: float = math.inf
    _coming: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._coming = sorted(self.jobs, key=lambda id: (-self.jobs[id].facts.submitted_s, -id))

    @property
    def over(self) -> bool:
        return not self._coming and not self.here

    def step(self, planner: Planner) -> list[int]:
        """Go on to the next event, ask the planner and do what it says; return the jobs that arrived."""
        coming = self.jobs[self._coming[-1]].facts.submitted_s if self._coming else math.inf
        ends = [self.now + job.left_s / job.rate for job in self.here.values() if job.rate > 0]
        to = min([coming, self.wake, *ends])
        if not math.isfinite(to):
            raise RuntimeError(f"nothing ever happens, and {len(self.here)} jobs are left")
        for job in self.here.values():
            job.left_s -= job.rate * (to - self.now)
        self.now = to
        ended = [id for id, job in self.here.items() if job.left_s <= 1e-6]
        for id in ended:
            self.here.pop(id).end_s = to
        arrived = []
        while self._coming and self.jobs[self._coming[-1]].facts.submitted_s <= to:
            id = self._coming.pop()
            self.here[id] = self.jobs[id]
            arrived.append(id)
        update = Update(to, tuple(Active(self.jobs[i].facts) for i in arrived), dict.fromkeys(ended, "completed"))
        decision = planner.update(update)
        for id in decision.refused:
            self.here.pop(id, None)
        for id, job in self.here.items():
            placed = decision.running.get(id)
            runs = placed is not None and not placed.paused
            held = sum(len(part.devices) for part in placed.parts) if placed is not None and runs else 0
            job.rate = held / job.facts.gpus if job.facts.gpus >= 1 else float(runs)
            if runs and job.start_s is None:
                job.start_s = to
        self.wake = math.inf if decision.wake_at_s is None else max(decision.wake_at_s, to + 1e-3)
        return [id for id in arrived if id in self.here]

    def run(self, planner: Planner, each: Callable[[list[int]], bool] | None = None) -> None:
        """Run until all jobs have ended, or `each` returns True; it is called after every decision."""
        while not self.over:
            arrived = self.step(planner)
            if each is not None and each(arrived):
                return


def facts_of(trace: Trace, first_id: int = 1) -> list[tuple[JobFacts, float]]:
    """Return the jobs of a trace with GPUs, and their true durations."""
    found = []
    for number, row in enumerate(trace.frame.iter_rows(named=True), first_id):
        if row["gpus"] >= 1 and row["duration_s"]:
            facts = JobFacts(
                number,
                row["gpus"],
                row["submit_s"],
                name=row["name"] or "job",
                user=row["user"] or "",
                cpus=row["gpus"],
                memory_gib=row["gpus"],
            )
            found.append((facts, max(float(row["duration_s"]), 1.0)))
    return found


def history_of(jobs: list[tuple[JobFacts, float]]) -> tuple[Ended, ...]:
    """Return jobs as ones that have ended, from which a planner learns."""
    return tuple(Ended(facts, seconds) for facts, seconds in jobs)
