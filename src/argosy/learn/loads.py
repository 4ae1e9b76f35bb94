"""Jobs of a scenario at other loads, for training policies that have to work at all loads.

A policy that has seen only one load fails at others. Each seed gives another case of a scenario: another number of
nodes, another number of jobs, another rate of arrivals, other lengths. The case of a seed is always the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.scenario import Scenario
from argosy.scenario.changes import Changes
from argosy.seeding import stream
from argosy.sim.metrics import Window
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace


@dataclass(frozen=True)
class Range:
    """Holds what cases are drawn from: two bounds (uniform on a logarithmic scale), or a choice of values."""

    nodes: tuple[float, float] = (0.01, 0.4)  # relative to the scenario's
    jobs: tuple[int, int] = (40, 90)
    pace: tuple[float, float] = (0.15, 1.0)  # rate of arrivals, relative to the scenario's
    lengths: tuple[float, ...] = (1.0, 1.0, 0.3, 0.1)  # relative to the scenario's
    spreads: tuple[float, ...] = (0.0, 0.0, 1.5)  # sigma of a random factor on lengths

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
    pace: float  # rate of arrivals, relative to the scenario's
    slot_s: float  # jobs arrive at the beginning of a slot
    name: str

    @property
    def settings(self) -> Settings:
        return self.scenario.settings

    def trace(self, seed: int) -> Trace:
        """Return the jobs that `seed` draws; the case says how many there are and how fast they arrive."""
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


@dataclass(frozen=True, eq=False)
class Variant:
    """A whole scenario at another load, on a cluster of another size, with jobs of another length."""

    scenario: Scenario
    cluster: Cluster
    load: float  # factor on the scenario's
    name: str
    lengths: float = 1.0  # jobs are so many times as long, and arrive as many times as slowly

    @property
    def settings(self) -> Settings:
        return replace(self.scenario.settings, oversized="skip")  # a smaller cluster may be too small for some jobs

    def trace(self, seed: int) -> Trace:
        """Return the jobs that `seed` draws, none larger than the cluster."""
        drawn = self.scenario.trace(seed)
        gpus = self.cluster.total_gpus
        fitting = Changes(largest_gpus=float(gpus), lengths=self.lengths).apply(drawn, seed, gpus)
        return fitting.at_load(self.load * gpus / self.scenario.cluster.total_gpus / self.lengths)

    def window(self, trace: Trace) -> Window | None:
        return None

    def spec(self, policy: str) -> str:
        return self.scenario.spec(policy)


LOADS = (0.55, 1.5)  # of a variant, relative to the scenario
SIZES = (0.25, 0.5, 1.0, 1.0, 1.0, 2.0)  # of its cluster
LENGTHS = (1.0, 1.0, 1.0, 1.0, 6.0)  # a real log has jobs that last for weeks
AS_IT_IS = 0.4  # share of the seeds that bring the scenario itself


def draw_variant(scenario: Scenario, seed: int) -> Scenario | Variant:
    """Return the scenario itself, or a variant; a seed always gives the same."""
    rng = stream(seed, "learn.variant")
    if rng.random() < AS_IT_IS:
        return scenario
    size, load, lengths = float(rng.choice(SIZES)), _log_uniform(rng, *LOADS), float(rng.choice(LENGTHS))
    return Variant(scenario, scaled(scenario.cluster, size), load, f"{scenario.name}~{seed}", lengths)


def scaled(cluster: Cluster, factor: float) -> Cluster:
    """Return a cluster with so many times as many nodes of each GPU type, at least one of each."""
    kinds: dict[str, list[Node]] = {}
    for node in cluster.nodes:
        kinds.setdefault(node.gpu_type, []).append(node)
    nodes = []
    for alike in kinds.values():
        for i in range(max(1, round(factor * len(alike)))):
            copy, original = divmod(i, len(alike))
            node = alike[original]
            nodes.append(replace(node, name=f"{node.name}-{copy}") if copy else node)
    return replace(cluster, nodes=tuple(nodes))


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
