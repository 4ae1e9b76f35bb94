"""Remembers the latest arrivals: jobs like them are expected to go on arriving."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from argosy.live.planner.messages import JobFacts
from argosy.seeding import stream

MOST_LATER = 1000  # jobs that arrive later


class Recent:
    """The latest arrivals, from which those of the future are drawn."""

    def __init__(self, kept: int = MOST_LATER) -> None:
        self._kept = kept
        self._facts: dict[int, JobFacts] = {}

    def add(self, facts: JobFacts) -> None:
        if facts.id <= 0:
            return
        self._facts.pop(facts.id, None)
        self._facts[facts.id] = facts
        if len(self._facts) > self._kept:
            del self._facts[next(iter(self._facts))]

    def resample(self, now_s: float, seed: int) -> list[JobFacts]:
        """Return jobs that arrive later: the latest jobs in another order, with their distances in time."""
        facts = sorted(self._facts.values(), key=lambda f: (f.submitted_s, f.id))
        if len(facts) < 2:
            return []
        gaps = np.diff([f.submitted_s for f in facts])
        rng = stream(seed, "arrivals")
        order = rng.integers(0, len(facts), len(facts))
        span = now_s - facts[0].submitted_s
        at = now_s + np.cumsum(rng.choice(gaps, len(facts)) * span / max(gaps.sum(), 1e-9))
        return [replace(facts[i], id=0, submitted_s=float(t), app=None) for i, t in zip(order.tolist(), at.tolist())]
