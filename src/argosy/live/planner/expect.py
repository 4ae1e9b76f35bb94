"""How long will a job take? The user's word, or what jobs like it have taken.

The first that exists of: the user's own estimate; the decayed mean over the user's jobs with a similar name and the
same GPUs; the user's mean at that size; the queue's mean; the mean over all; an hour. This is the rolling part of
`argosy.workload.estimate.History`, kept up to date job by job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from argosy.live.planner.messages import JobFacts
from argosy.workload.estimate import DEFAULT_S

DECAY = 0.8  # weight of a job relative to the next newer one of its kind
LEAST_S = 1.0
DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Expected:
    seconds: float  # at the size it asks for
    source: str


class Durations:
    """What ended jobs teach about new ones."""

    def __init__(self) -> None:
        self._means: dict[tuple[object, ...], tuple[float, float]] = {}  # sum of seconds, sum of weights

    def learn(self, facts: JobFacts, seconds: float) -> None:
        for (group, _), decay in zip(_groups(facts), (DECAY, 1.0, 1.0, 1.0)):
            total, weight = self._means.get(group, (0.0, 0.0))
            self._means[group] = (decay * total + seconds, decay * weight + 1.0)

    def expect(self, facts: JobFacts) -> Expected:
        if facts.expected_s is not None:
            return Expected(max(facts.expected_s, LEAST_S), "the user's estimate")
        for group, source in _groups(facts):
            if group in self._means:
                total, weight = self._means[group]
                return Expected(max(total / weight, LEAST_S), f"learned from {source}")
        return Expected(DEFAULT_S, "a guess: no job has ended yet")


def _groups(facts: JobFacts) -> list[tuple[tuple[object, ...], str]]:
    """In which means a job counts, most specific first, and how they are called."""
    user, gpus = facts.user, facts.gpus
    return [
        ((user, gpus, DIGITS.sub("#", facts.name)), "the user's jobs of this name and size"),
        ((user, gpus), "the user's jobs of this size"),
        (("queue", facts.queue), "the queue's jobs"),
        ((), "all jobs that have ended"),
    ]
