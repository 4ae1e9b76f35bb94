"""What policies are told gives away neither the length of a job nor the speed of a machine.

Each test plays the attacker: it has everything that some kinds of information show, and tries to find the truth.
"""

from __future__ import annotations

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import INFORMATION, View
from argosy.policies.base import Floats, Policy, create
from argosy.report.comparison import sees_future
from argosy.scenario import read_scenario
from argosy.sim.engine import Engine
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

TOLD = frozenset(INFORMATION) - {"duration", "estimate", "speed"}  # what is no secret


class Spy(Policy):
    """Ranks like fifo, and writes down all that it sees."""

    name = "spy"
    every_s = 30.0
    preemptive = False

    def __init__(self, uses: frozenset[str]) -> None:
        self.uses = uses
        self.seen: dict[int, list[dict[str, float]]] = {}
        self.nodes: list[dict[str, Floats]] = []

    def rank(self, view: View) -> Floats:
        from argosy.cluster.view import JOB_COLUMNS, NODE_COLUMNS

        names = [name for name, (kind, _) in JOB_COLUMNS.items() if kind in self.uses]
        for row, job in enumerate(view.jobs.index.tolist()):
            told = {name: float(getattr(view.jobs, name)[row]) for name in names}
            self.seen.setdefault(job, []).append(told | {"now": view.now})
        columns = [name for name, (kind, _) in NODE_COLUMNS.items() if kind in self.uses]
        told_nodes = {name: np.array(getattr(view.nodes, name), float) for name in columns}
        self.nodes.append(told_nodes | {"now": np.full(len(view.nodes), view.now)})
        return view.jobs.submitted

    def wake_at(self, view: View) -> float | None:
        return view.now + self.every_s if len(view.jobs) else None


def spied(jobs: list[Job], settings: Settings) -> Spy:
    spy = Spy(TOLD)
    Engine(Trace.of_jobs(jobs), Cluster.uniform(2, 4), spy, settings).run()
    return spy


def test_two_jobs_of_different_length_look_alike_until_one_of_them_ends() -> None:
    """Nobody can tell a short job from a long one by anything that is shown while both run."""
    jobs = [Job("short", 0, 1000, 1), Job("long", 0, 5000, 1)]
    spy = spied(jobs, Settings(measurement_noise=0.0))
    short, long = spy.seen[0], spy.seen[1]
    assert len(short) > 20
    names = [name for name in short[0] if name not in ("index", "app")]  # by which the trace numbers them
    for a, b in zip(short, long, strict=False):
        assert [a[name] for name in names] == pytest.approx([b[name] for name in names], nan_ok=True)


def test_declared_work_is_shown_where_the_trace_has_it_and_nowhere_else() -> None:
    spy = spied([Job("declared", 0, 1000, 1, work=4000.0), Job("secret", 0, 1000, 1)], Settings.ideal())
    assert spy.seen[0][0]["declared_s"] == pytest.approx(1000)
    assert all(np.isnan(told["declared_s"]) for told in spy.seen[1])


def test_measured_rates_are_noisy_and_averaged() -> None:
    jobs = [Job(f"j{i}", 100.0 * i, 2000, 1) for i in range(40)]
    exact = spied(jobs, Settings(measurement_noise=0.0))
    noisy = spied(jobs, Settings(measurement_noise=0.05))
    ratio = [
        b[-1]["measured_rate"] / a[-1]["measured_rate"]
        for a, b in ((exact.seen[i], noisy.seen[i]) for i in range(40))
        if a[-1]["measured_rate"] > 0 and b[-1]["measured_rate"] > 0
    ]
    assert 0.02 < np.std(np.log(ratio)) < 0.09


def test_speeds_of_machines_are_known_only_through_their_jobs() -> None:
    """The estimate follows the truth where jobs run, not exactly, and a node that nobody used is thought nominal."""
    scenario = read_scenario("fluctuating", quick=True)
    spy = Spy(TOLD | {"speed"})
    Engine(scenario.trace(3), scenario.cluster, spy, scenario.settings.with_seed(3)).run()
    first = spy.nodes[0]
    assert (first["speed"] == 1).all() and not (first["true_speed"] == 1).all()
    columns = ("speed", "true_speed", "speed_measured_at", "now")
    estimate, truth, measured_at, now = (np.concatenate([told[name] for told in spy.nodes]) for name in columns)
    recent = now - measured_at < 1800
    assert recent.sum() > 1000 and not np.isclose(estimate, truth, rtol=1e-9).any()
    assert np.corrcoef(estimate[recent], truth[recent])[0, 1] > 0.7


def test_a_star_is_for_what_nobody_can_know() -> None:
    """Exact estimates are the future, unless users declared the work; true speeds of machines always are."""
    cluster = Cluster.uniform(1, 2)
    declared = Trace.of_jobs([Job("a", 0, 100, 1, work=10.0), Job("b", 0, 50, 1, work=5.0)])
    secret = Trace.of_jobs([Job("a", 0, 100, 1, work=10.0), Job("b", 0, 50, 1)])
    assert not sees_future(simulate(declared, cluster, "srtf"))
    assert sees_future(simulate(secret, cluster, "srtf"))
    for name in ("joint", "argonaut"):
        assert not sees_future(simulate(secret, cluster, name))
    policy = create("las")
    policy.uses = policy.uses | {"speed"}
    assert sees_future(Engine(declared, cluster, policy, Settings()).run())
