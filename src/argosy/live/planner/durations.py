"""Estimates how long a job will take, from the user's own estimate or from similar jobs that have ended.

It uses the first of these that exists: the user's own estimate; the decayed mean over the user's jobs with a similar
name and the same GPUs; the user's mean at that size; the queue's mean; the mean over all; an hour. This is the rolling
part of `argosy.workload.estimate.History`, kept up to date job by job.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from argosy.live.planner.messages import JobFacts
from argosy.workload.duration_draws import Draws, Floats
from argosy.workload.durations import DEFAULT_S, RollingMeans

LEAST_S = 1.0
DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Expected:
    seconds: float  # at the size it asks for
    source: str


class Durations:
    """Means of the durations of ended jobs, from which those of new jobs are estimated."""

    def __init__(self) -> None:
        self._means: RollingMeans[tuple[object, ...]] = RollingMeans()
        self._draws = Draws()

    def learn(self, facts: JobFacts, seconds: float) -> None:
        groups = [group for group, _ in _groups(facts)]
        self._draws.learn(groups, seconds)
        if facts.expected_s is not None:
            self._draws.learn(_of_estimates(facts), seconds / max(facts.expected_s, LEAST_S))
        self._means.add((group for group, _ in _groups(facts)), seconds)

    def expect(self, facts: JobFacts) -> Expected:
        if facts.expected_s is not None:
            return Expected(max(facts.expected_s, LEAST_S), "the user's estimate")
        for group, source in _groups(facts):
            mean = self._means.mean(group)
            if not math.isnan(mean):
                return Expected(max(mean, LEAST_S), f"learned from {source}")
        return Expected(DEFAULT_S, "a guess: no job has ended yet")

    def draw(self, facts: JobFacts, expected_s: float, done_s: float, uniform: Floats) -> Floats:
        """Return how long a job may take that has done `done_s`, one length for each number between 0 and 1."""
        if facts.expected_s is not None:
            return self._draws.draw(_of_estimates(facts), expected_s, done_s, uniform)
        known = [group for group, _ in _groups(facts) if len(self._draws.of(group))]
        return self._draws.draw(known, 1.0 if known else expected_s, done_s, uniform)


def _of_estimates(facts: JobFacts) -> list[tuple[object, ...]]:
    """Return the groups that tell how wrong a user's estimate may be."""
    return [("estimates", facts.user), ("estimates",)]


def _groups(facts: JobFacts) -> list[tuple[tuple[object, ...], str]]:
    """Return the groups whose means include the job, the most specific first, and a name of each for people."""
    user, gpus = facts.user, facts.gpus
    return [
        ((user, gpus, DIGITS.sub("#", facts.name)), "the user's jobs of this name and size"),
        ((user, gpus), "the user's jobs of this size"),
        (("queue", facts.queue), "the queue's jobs"),
        ((), "all jobs that have ended"),
    ]
