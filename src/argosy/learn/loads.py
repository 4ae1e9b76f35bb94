"""Jobs of a scenario at other loads, to train policies that are to serve all loads.

A policy that has seen only one load fails at others. Each seed makes another case of a scenario: another number of
nodes, another number of jobs, another rate of arrivals, other lengths. The case of a seed is always the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.scenario import Scenario
from argosy.scenario.changes import Changes
from argosy.seeding import stream
from argosy.sim.metrics import Window
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace


@dataclass(frozen=True)
class Range:
    """Says what is drawn: numbers uniformly on a logarithmic scale between two bounds, or one of several values."""

    nodes: tuple[float, float] = (0.01, 0.4)  # of the scenario's
    jobs: tuple[int, int] = (40, 90)
    pace: tuple[float, float] = (0.15, 1.0)  # of the scenario's arrivals
    lengths: tuple[float, ...] = (1.0, 1.0, 0.3, 0.1)  # of the scenario's
    spreads: tuple[float, ...] = (0.0, 0.0, 1.5)  # sigma of lengths

    def __post_init__(self) -> None:
        for name in ("nodes", "jobs", "pace"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise InputError(f"{name} must be a range of numbers > 0, is {low}..{high}")


@dataclass(frozen=True, eq=False)
class Case:
    """A scenario at another load: a source for environments and rollouts."""

    scenario: Scenario
    cluster: Cluster
    changes: Changes
    pace: float  # of arrivals, relative to the scenario's
    slot_s: float  # jobs come at the beginning of a slot
    name: str

    @property
    def settings(self) -> Settings:
        return self.scenario.settings

    def trace(self, seed: int) -> Trace:
        """Return the jobs that `seed` draws; the case says how many there are and how fast they come."""
        drawn = self.scenario.trace(seed)
        slower = drawn.frame.with_columns((pl.col("submit_s") / self.pace / self.slot_s).floor() * self.slot_s)
        return self.changes.apply(Trace.of(slower, drawn.name), seed, self.cluster.total_gpus)

    def window(self, trace: Trace) -> Window | None:
        return None

    def spec(self, policy: str) -> str:
        return self.scenario.spec(policy)


def draw_case(
    scenario: Scenario,
    seed: int,
    ranges: Range | None = None,
    *,
    load: float = 1.0,
    jobs: float = 1.0,
    slot_s: float = 1200.0,
) -> Case:
    """Return the case of a seed. A curriculum may make it easier: `load` and `jobs` multiply what is drawn."""
    rng, r = stream(seed, "learn.loads"), ranges or Range()
    nodes = scenario.cluster.nodes
    share = _log_uniform(rng, *r.nodes) / load
    count = max(2, round(int(rng.integers(r.jobs[0], r.jobs[1] + 1)) * jobs))
    machines = replace(scenario.cluster, nodes=nodes[: max(1, min(len(nodes), round(share * len(nodes))))])
    pace, length, spread = _log_uniform(rng, *r.pace), rng.choice(r.lengths), rng.choice(r.spreads)
    changes = Changes(lengths=float(length), spread=float(spread) or None)
    return Case(scenario.with_count(count), machines, changes, pace, slot_s, f"{scenario.name}~{seed}")


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
