"""How long a job will take: the user's own estimate, or what jobs like it have taken.

The first that exists of: the user's own estimate; the decayed mean over the user's jobs with a similar name and the
same GPUs; the user's mean at that size; the queue's mean; the mean over all; an hour. This is the rolling part of
`argosy.workload.estimate.History`, kept up to date job by job.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from argosy.live.planner.messages import JobFacts
from argosy.workload.durations import DEFAULT_S, RollingMeans

LEAST_S = 1.0
DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Expected:
    seconds: float  # at the size it asks for
    source: str


class Durations:
    """What ended jobs teach about new ones."""

    def __init__(self) -> None:
        self._means: RollingMeans[tuple[object, ...]] = RollingMeans()

    def learn(self, facts: JobFacts, seconds: float) -> None:
        self._means.add((group for group, _ in _groups(facts)), seconds)

    def expect(self, facts: JobFacts) -> Expected:
        if facts.expected_s is not None:
            return Expected(max(facts.expected_s, LEAST_S), "the user's estimate")
        for group, source in _groups(facts):
            mean = self._means.mean(group)
            if not math.isnan(mean):
                return Expected(max(mean, LEAST_S), f"learned from {source}")
        return Expected(DEFAULT_S, "a guess: no job has ended yet")


def _groups(facts: JobFacts) -> list[tuple[tuple[object, ...], str]]:
    """Return the means in which a job counts, most specific first, and what they are called."""
    user, gpus = facts.user, facts.gpus
    return [
        ((user, gpus, DIGITS.sub("#", facts.name)), "the user's jobs of this name and size"),
        ((user, gpus), "the user's jobs of this size"),
        (("queue", facts.queue), "the queue's jobs"),
        ((), "all jobs that have ended"),
    ]
