"""Every registered policy drives a small live cluster in which jobs crash and nodes are drained."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from planner_reality import Reality

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.live.planner.messages import Decision, JobFacts, Setup, Snapshot
from argosy.live.planner.planner import Planner
from argosy.policies.base import POLICIES

CLUSTER = Cluster(
    (Node("a", "v100", 8, 32.0), Node("b", "v100", 4, 16.0), Node("c", "p100", 4, 16.0), Node("d", gpus=0, cpus=8.0)),
    queues=(Queue("red", 4.0, 10.0), Queue("blue")),
)
MODELS = (None, "resnet50", "vgg16")


def work(seed: int, count: int = 60) -> list[tuple[JobFacts, float]]:
    """Return jobs of all kinds, with their true durations; half of the users give an estimate."""
    rng, jobs = np.random.default_rng(seed), []
    for id in range(1, count + 1):
        gpus = float(rng.choice([1, 1, 1, 2, 2, 4, 8, 0.5, 0]))
        true_s = float(rng.integers(20, 600))
        elastic = gpus >= 1 and rng.random() < 0.5
        jobs.append(
            (
                JobFacts(
                    id,
                    gpus,
                    float(rng.integers(0, 1200)),
                    f"train-{id % 5}",
                    f"u{id % 3}",
                    ("red", "blue")[id % 2],
                    min_gpus=1.0 if elastic else None,
                    max_gpus=min(gpus + 3, 8.0) if elastic else None,
                    cpus=max(gpus, 1.0),
                    memory_gib=1.0,
                    model=MODELS[id % 3] if gpus >= 1 else None,
                    servers=1 if id % 10 == 4 and gpus >= 1 else None,
                    expected_s=true_s * float(rng.uniform(0.3, 3)) if rng.random() < 0.5 else None,
                    min_runtime_s=30.0 if id % 4 == 0 else 0.0,
                    exclusive=id % 7 == 0,
                ),
                true_s,
            )
        )
    return jobs


def troubles(reality: Reality) -> None:
    for at in range(100, 2000, 170):
        reality.plan(float(at), "fall")
    for at, what, node in (
        (300, "draining", "b"),
        (700, "up", "b"),
        (400, "down", "c"),
        (650, "up", "c"),
        (900, "down", "a"),
        (1000, "draining", "a"),
        (1100, "up", "a"),
    ):
        reality.plan(float(at), what, node)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_it_serves_everybody(policy: str) -> None:
    reality = Reality(CLUSTER, work(seed=1), seed=1)
    troubles(reality)
    reality.run(Planner(Setup(CLUSTER, policy)))
    assert all(job.end_s is not None for job in reality.jobs.values())
    assert reality.falls > 5 and reality.updates > 100


@pytest.mark.parametrize("policy", list(POLICIES))
def test_a_planner_that_takes_over_makes_valid_decisions(policy: str) -> None:
    """Now and then the planner dies; the next knows what the daemon knows, and an old memory or none at all.

    Not for ever: a policy that counts how long a job has waited must once be left to count.
    """
    reality = Reality(CLUSTER, work(seed=2, count=40), seed=2)
    troubles(reality)
    memory: list[str | None] = [None]

    def dies(planner: Planner, decision: Decision) -> Planner:
        if reality.updates % 20 == 10:
            memory[0] = planner.memory()
        if reality.updates % 20 != 19 or reality.updates > 200:
            return planner
        known = planner.snapshot()
        old = memory[0] if reality.updates % 40 == 19 else None
        return Planner(planner.setup, Snapshot(known.now_s, known.jobs, (), known.nodes, known.overheads, old))

    reality.run(Planner(Setup(CLUSTER, policy)), dies)
    assert all(job.end_s is not None for job in reality.jobs.values())
    assert memory[0] is not None
