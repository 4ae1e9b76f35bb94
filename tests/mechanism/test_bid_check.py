"""The fast check of bids agrees with the one that says what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InvalidPlan
from argosy.mechanism.bids import Bids, check_bids
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

RANGES = ((1, 4), (3, 3), (1, 1), (1, 1), (1, 1))  # of the following jobs
TYPES = ((0, 1), (0, 1), (0, 1), (0, 1), (0,))


@pytest.fixture(scope="module")
def engine() -> Engine:
    jobs = [
        Job("elastic", 0, 100, 2, min_gpus=1, max_gpus=4),
        Job("rigid", 0, 100, 3),
        Job("share", 0, 100, 0.5),
        Job("none", 0, 100, 0, cpus=1),
        Job("picky", 0, 100, 1, gpu_type="a"),
    ]
    cluster = Cluster((Node("x", "a", 8, 16.0), Node("y", "b", 8, 16.0)))
    engine = Engine(Trace.of_jobs(jobs), cluster, create("joint"), Settings.ideal())
    assert engine.advance()
    return engine


def random_bids(rng: np.random.Generator, n: int) -> Bids:
    """Return bids that are mostly right."""
    job = np.sort(rng.integers(0, 5, n))
    workers = np.array([rng.integers(low, high + 1) for low, high in (RANGES[j] for j in job.tolist())])
    gpu_type = np.array([rng.choice(TYPES[j]) for j in job.tolist()])
    columns = [job, gpu_type, workers, rng.normal(size=n), rng.integers(0, 3, n), np.full(n, -1)]
    for _ in range(rng.integers(0, 3)):  # something unusual, which is not always wrong
        column, row = columns[rng.integers(0, 6)], rng.integers(0, n)
        column[row] = rng.choice([np.nan, np.inf, -2.0]) if column is columns[3] else rng.integers(-2, 8)
    return Bids(*columns)


def is_right(bids: Bids) -> bool:
    try:
        check_bids(bids, 5, 2, "any")
    except InvalidPlan:
        return False
    sizes = all(RANGES[j][0] <= k <= RANGES[j][1] for j, k in zip(bids.job.tolist(), bids.workers.tolist()))
    return sizes and all(t < 0 or t in TYPES[j] for j, t in zip(bids.job.tolist(), bids.type.tolist()))


def test_random_bids(engine: Engine) -> None:
    rng = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(300):
        bids = random_bids(rng, int(rng.integers(1, 9)))
        right = is_right(bids)
        seen[right] += 1
        if right:
            engine.decide(bids)
        else:
            with pytest.raises(InvalidPlan, match=r"bid \d|bids -?\d"):
                engine.decide(bids)
    assert min(seen.values()) > 50


def test_bids_in_any_order_are_sorted(engine: Engine) -> None:
    """The rows of a choice are those of the bids, sorted by job."""
    bids = Bids(np.array([4, 0, 0]), np.zeros(3, np.int64), np.array([1, 2, 3]), np.array([5.0, 1.0, 9.0]))
    engine.decide(bids)
    assert engine.choice is not None
    assert engine.choice.taken.tolist() == [1, -1, -1, -1, 2]
