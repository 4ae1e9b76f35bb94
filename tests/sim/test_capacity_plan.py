"""The smallest cluster that meets a target, and what a target is."""

from __future__ import annotations

import math

import pytest

from argosy.cluster.cluster import Cluster
from argosy.errors import ArgosyError
from argosy.sim.capacity_plan import plan_capacity
from argosy.sim.compare import Experiment
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.sim.target import parse_target
from argosy.workload.trace import Job, Trace

# sixteen jobs of a whole node each at once: with n nodes the last waits (ceil(16 / n) - 1) × 100 s
BURST = Trace.of_jobs([Job(f"j{i}", 0.0, 100.0, 8) for i in range(16)])
EXPERIMENT = Experiment(BURST, Cluster.uniform(1, 8), Settings.ideal())
SIZES = [float(n) for n in range(1, 17)]


@pytest.mark.parametrize(("bound", "nodes"), [("350", 4), ("150", 8), ("1", 16), ("1600", 1)])
@pytest.mark.parametrize("every", [True, False])
def test_the_smallest_size_is_found(bound: str, nodes: int, every: bool) -> None:
    target = parse_target(f"wait.p99 < {bound}")
    plan = plan_capacity(EXPERIMENT, "fifo", "nodes", SIZES, target, [0], every=every, workers=1)
    assert plan.smallest == nodes
    assert len(plan.points) == 16 if every else len(plan.points) <= 7


def test_no_size_may_be_enough() -> None:
    plan = plan_capacity(EXPERIMENT, "fifo", "nodes", SIZES, parse_target("jct.mean < 99"), [0], workers=1)
    assert plan.smallest is None


def test_a_wrong_policy_is_an_error() -> None:
    with pytest.raises(ArgosyError, match="nothing"):
        plan_capacity(EXPERIMENT, "nothing", "nodes", SIZES, parse_target("jct.mean < 99"), [0], workers=1)


def test_figures_of_targets() -> None:
    run = simulate(BURST, Cluster.uniform(4, 8), "fifo", Settings.ideal())
    assert parse_target("wait.mean < 1").figure(run) == pytest.approx(150.0)
    assert parse_target("wait.p50 < 1").figure(run) == 100.0
    assert parse_target("jct.p100 < 1".replace("p100", "p99")).figure(run) == 400.0
    assert parse_target("slowdown.mean < 1").figure(run) == pytest.approx(2.5)
    assert parse_target("utilisation_held > 50%").figure(run) == pytest.approx(1.0)
    assert parse_target("utilisation_held > 50%").is_met(0.6)
    assert not parse_target("utilisation_held > 50%").is_met(0.4)


def test_a_job_that_never_starts_is_infinitely_late() -> None:
    jobs = Trace.of_jobs([Job("a", 0.0, 10.0, 1), Job("huge", 0.0, 10.0, 64)])
    run = simulate(jobs, Cluster.uniform(1, 8), "fifo", Settings.ideal(oversized="skip"))
    assert math.isinf(parse_target("wait.p90 < 30m").figure(run))
    assert parse_target("wait.p50 < 30m").figure(run) == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wait < 5m", "metric 'wait'"),
        ("wait.p90 = 5m", "is not a target"),
        ("wait.best < 5m", "neither mean nor a percentile"),
        ("weight.p90 < 5m", "quantity 'weight'"),
        ("wait.p90 < soon", "'soon' is not a bound"),
        ("", "is not a target"),
    ],
)
def test_targets_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(ArgosyError, match=message):
        parse_target(text)
