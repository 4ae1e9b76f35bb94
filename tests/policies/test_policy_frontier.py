"""frontier: the concave frontier of a job, and which job gets the next step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.perf import catalogue
from argosy.perf.parameter_server import TableParameterServer
from argosy.policies.base import create
from argosy.policies.frontier import FrontierPolicy
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

NO_COSTS = Settings(overheads="none", locality=False, min_run_s=0.0)


def bumpy(name: str, best: tuple[int, int]) -> TableParameterServer:
    """A surface on which every step from (1, 1) is slower, except the last one."""
    points = tuple((float(p), float(w)) for p in range(1, 5) for w in range(1, 5))
    speeds = tuple(100.0 if (p, w) == best else 10.0 if p == w == 1 else 5.0 for p, w in points)
    return TableParameterServer(name, points, speeds)


@pytest.fixture
def networks() -> Iterator[None]:
    with catalogue.borrowed():
        catalogue.register(bumpy("bumpy", (3, 2)))
        catalogue.register(bumpy("small", (1, 1)))
        yield


def ps_job(name: str, model: str, duration_s: float = 3600.0) -> Job:
    return Job(name, 0.0, duration_s, 1, model=model, ps=1, min_gpus=1, max_gpus=4, cpus=1.0, memory_gib=0.0)


def sizes(jobs: list[Job], cluster: Cluster, spec: str = "frontier:cap=4") -> dict[str, tuple[int, int]]:
    engine = Engine(Trace.of_jobs(jobs), cluster, create(spec), NO_COSTS)
    assert engine.advance()
    engine.policy.rank(engine.view)
    sized = engine.policy.size(engine.view)
    assert sized.servers is not None
    names = [jobs[i].job_id for i in engine.view.jobs.index.tolist()]
    return {name: (int(u), int(w)) for name, u, w in zip(names, sized.servers, sized.workers)}


def test_a_dip_does_not_stop_it(networks: None) -> None:
    """One unit more is slower than (1, 1) in all directions; three units more are ten times as fast."""
    assert sizes([ps_job("a", "bumpy")], Cluster.uniform(2, 4, cpus=8.0)) == {"a": (3, 2)}


def test_nobody_gets_what_slows_him(networks: None) -> None:
    assert sizes([ps_job("a", "small")], Cluster.uniform(2, 4, cpus=8.0)) == {"a": (1, 1)}


def test_short_jobs_go_first_where_there_is_not_enough(networks: None) -> None:
    jobs = [ps_job("long", "bumpy", 100_000.0), ps_job("short", "bumpy", 1_000.0)]
    cluster = Cluster.uniform(1, 4, cpus=7.0)  # one of them can have all that it wants, and the other the smallest size
    assert sizes(jobs, cluster) == {"long": (1, 1), "short": (3, 2)}
    assert sizes(jobs[::-1], cluster) == {"long": (1, 1), "short": (3, 2)}


def test_gains_shrink_along_a_frontier() -> None:
    """On the catalogue's rough surfaces, each step is larger and faster, and gains less per share."""
    from argosy.scenario import read_scenario

    scenario = read_scenario("dl2-100", quick=True)
    engine = Engine(scenario.trace(0), scenario.cluster, create("frontier"), scenario.settings)
    for _ in range(5):
        engine.advance()
        engine.ask()
    policy = engine.policy
    assert isinstance(policy, FrontierPolicy) and len(policy._frontiers) >= 7
    for frontier in policy._frontiers.values():
        assert (np.diff(frontier.slope) <= 1e-9).all()
        speed = np.cumsum(frontier.slope * np.array([max(t[0] / 200, t[1] / 800) for t in frontier.takes]))
        assert speed[-1] == pytest.approx(1.0, abs=0.35)  # shares of steps add up, up to exchanges of servers


def test_what_was_granted_in_turn_is_what_everybody_has(networks: None) -> None:
    jobs = [ps_job("a", "bumpy"), ps_job("b", "small"), ps_job("c", "bumpy", 50.0)]
    engine = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 4, cpus=10.0), create("frontier:cap=4"), NO_COSTS)
    engine.advance()
    engine.ask()
    policy = engine.policy
    assert isinstance(policy, FrontierPolicy)
    last = {row: (workers, servers) for row, workers, servers in policy.granted}
    sized = policy.size(engine.view)
    assert sized.servers is not None
    for row, (workers, servers) in last.items():
        assert (workers, servers) == (sized.workers[row], sized.servers[row])
