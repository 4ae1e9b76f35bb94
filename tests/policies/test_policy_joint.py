"""joint: size, GPU type and order follow from the value of bids; small cases that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.policies.base import Event, create
from argosy.policies.common.remaining_work import RemainingWork
from argosy.policies.joint import Joint
from argosy.scenario import read_scenario
from argosy.sim.engine import Engine
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

NO_COSTS = Settings(overheads="none", min_run_s=0.0, measurement_noise=0.0)


def first_decision(jobs: list[Job], cluster: Cluster, spec: str = "joint", settings: Settings = NO_COSTS) -> Engine:
    engine = Engine(Trace.of_jobs(jobs), cluster, create(spec), settings)
    assert engine.advance()
    engine.ask()
    engine.apply()
    return engine


def finish(jobs: list[Job], cluster: Cluster, spec: str = "joint", settings: Settings | None = None) -> list[float]:
    found = Engine(Trace.of_jobs(jobs), cluster, create(spec), settings or Settings.ideal()).run().jobs["finish_s"]
    return [float(t) for t in found]


def test_declared_short_work_goes_first() -> None:
    """The rule of one GPU: 10 s of declared work before 100 s, although the long job came first."""
    jobs = [Job("long", 0, 100, 1, work=100.0), Job("short", 0, 10, 1, work=10.0)]
    assert finish(jobs, Cluster.uniform(1, 1)) == [110, 10]


def test_a_value_is_as_the_docstring_says() -> None:
    """x·L / (L + o·x) / L^u / best^r, with the overhead of a start, for a job that asks for 1 GPU and may have 2."""
    job = Job("a", 0, 1000, 1, min_gpus=1, max_gpus=2, work=50.0)
    settings = Settings.ideal(overheads="realistic")
    engine = Engine(Trace.of_jobs([job]), Cluster.uniform(1, 4), create("joint:urgency=0.5:stay=2"), settings)
    assert engine.advance()
    bids = engine.policy.bid(engine.view)
    assert bids is not None
    assert bids.workers.tolist() == [1, 2]
    start_s = engine.context.overheads
    assert start_s is None or start_s[0, 0] == 25
    expected = np.array([x * 1000 / (1000 + 25 * x) / 1000**0.5 for x in (1.0, 2.0)])
    assert bids.value == pytest.approx(expected)
    relative = Engine(Trace.of_jobs([job]), Cluster.uniform(1, 4), create("joint:urgency=0.5:relative=0.7"), settings)
    assert relative.advance()
    bids = relative.policy.bid(relative.view)
    assert bids is not None and bids.value == pytest.approx(expected / 2.0**0.7)  # its best speed is 2


def test_what_a_job_has_counts_more_where_changes_cost_time() -> None:
    """With `stay` 3 a job keeps its GPU against one with half of its work left; with 1, or for free, it does not."""
    jobs = [Job("has", 0, 1000, 1, work=1.0), Job("wants", 10, 500, 1, work=1.0)]
    free, dear = Settings.ideal(), Settings.ideal(overheads="realistic")
    has, wants = finish(jobs, Cluster.uniform(1, 1), "joint:stay=3", dear)
    assert has < wants
    has, wants = finish(jobs, Cluster.uniform(1, 1), "joint:stay=1", dear)
    assert wants < has
    for stay in (1, 3):
        assert finish(jobs, Cluster.uniform(1, 1), f"joint:stay={stay}", free) == [1500, 510]


def test_each_job_gets_the_type_on_which_it_gains_most() -> None:
    """bert is 7.5 times as fast on an A100 as on a T4 and ncf less: with one of each, bert gets the A100."""
    jobs = [Job(f"{model}", 0, 3600, 1, model=model) for model in ("ncf", "bert")]
    cluster = Cluster((Node("fast", "a100", 1, 16.0), Node("slow", "t4", 1, 16.0)))
    settings = Settings(overheads="none", min_run_s=0.0, reference_type="t4")
    engine = first_decision(jobs, cluster, settings=settings)
    speeds = engine.tables.rate[engine.tables.job_class, :, 1, 1]
    gain = speeds[:, 0] / speeds[:, 1]
    assert gain[1] > gain[0]
    assert engine.jobs.held_type.tolist() == [1, 0]


def test_without_resizing_and_without_types() -> None:
    job = Job("a", 0, 1000, 2, min_gpus=1, max_gpus=8, model="bert")
    cluster = Cluster((Node("fast", "a100", 8, 64.0), Node("slow", "t4", 8, 64.0)))
    free, fixed = (first_decision([job], cluster, spec) for spec in ("joint", "joint:resize=no"))
    assert fixed.jobs.held[0] == 2 < free.jobs.held[0]
    engine = Engine(Trace.of_jobs([job]), cluster, create("joint:retype=no"), NO_COSTS)
    assert engine.advance()
    bids = engine.policy.bid(engine.view)
    assert bids is not None and set(bids.type.tolist()) == {0}


def test_the_parts_of_joint_are_worth_their_price() -> None:
    """In `mixed`, leaving out resizing makes jobs wait longer."""
    scenario = read_scenario("mixed", quick=True)

    def mean_jct(spec: str) -> float:
        spent = []
        for seed in (0, 1, 2):
            jobs = Engine(scenario.trace(seed), scenario.cluster, create(spec), scenario.settings).run().jobs
            spent.append(float((jobs["finish_s"] - jobs["submit_s"]).mean()))
        return float(np.mean(np.log(spent)))

    assert mean_jct("joint") < mean_jct("joint:resize=no") - 0.03


@pytest.mark.parametrize(
    "spec", ["joint:urgency=-1", "joint:stay=0.5", "joint:every_s=0", "joint:prior=1", "joint:relative=-1"]
)
def test_impossible_parameters_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="joint"):
        create(spec)


def test_packing_pays_where_networks_leave_each_other_room() -> None:
    """In `packed` jobs compete for few GPUs, and profiles know how fast pairs are."""
    scenario = read_scenario("packed", quick=True)
    hours = {}
    for spec in ("joint", "joint:pack=yes", "argonaut:pack=no", "argonaut"):
        runs = [simulate(scenario.trace(s), scenario.cluster, spec, scenario.settings.with_seed(s)) for s in range(3)]
        hours[spec] = np.mean([float((run.jobs["finish_s"] - run.jobs["submit_s"]).mean()) for run in runs])  # type: ignore[arg-type]
    assert hours["joint:pack=yes"] < 0.98 * hours["joint"] and hours["argonaut"] < 0.98 * hours["argonaut:pack=no"]


@pytest.mark.parametrize(("model", "packed"), [("cifar10", True), (None, False)])
def test_only_jobs_whose_network_is_known_are_packed(model: str | None, packed: bool) -> None:
    jobs = [Job(name, at, 1000, 1, model=model, cpus=1.0, memory_gib=1.0) for name, at in (("a", 0), ("b", 10))]
    engine = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 1, "v100"), create("joint:pack=yes"), NO_COSTS)
    for _ in range(2):
        assert engine.advance()
        engine.ask()
        engine.apply()
    assert engine.jobs.peer.tolist() == ([1, 0] if packed else [-1, -1])


def test_what_is_remembered_survives_a_restart() -> None:
    remaining = RemainingWork(20)
    for seconds in (100.0, 200.0, 400.0):
        remaining.on_event(Event(0.0, "finish", 0, -1, 0.0, seconds, 2.0))
    remaining.on_event(Event(0.0, "start", 0, -1))
    engine = Engine(Trace.of_jobs([Job("a", 0, 50, 1)]), Cluster.uniform(1, 1), Joint(), NO_COSTS)
    assert engine.advance()
    before = remaining.of(engine.view)
    again = RemainingWork(20)
    again.restore(remaining.state())
    assert again.of(engine.view) == pytest.approx(before)
    assert again.state() == remaining.state()


@pytest.mark.parametrize(("longest", "by_gpu_time"), [(1e4, False), (1e7, True)])
def test_gpu_time_counts_where_lengths_differ_by_orders_of_magnitude(longest: float, by_gpu_time: bool) -> None:
    """Of two new jobs the one that asks for four times as many GPUs is then thought to need a quarter of the time."""
    remaining = RemainingWork(20)
    lengths = np.geomspace(10.0, longest, 200)
    remaining.learn(lengths.tolist(), [1.0 + i % 2 for i in range(len(lengths))])
    jobs = [Job("narrow", 0, 2000, 1), Job("wide", 0, 2000, 4)]
    engine = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 8), Joint(), NO_COSTS)
    assert engine.advance()
    narrow, wide = remaining.of(engine.view)
    assert narrow / wide == pytest.approx(4.0 if by_gpu_time else 1.0)


def test_the_log_says_what_ended_jobs_had_asked_for() -> None:
    """The first hundred jobs that end decide whether GPU-time counts, so their events carry GPUs."""
    heard: list[float] = []

    class Listening(Joint):
        def on_event(self, event: Event) -> None:
            heard.append(event.gpus)

    jobs = [Job("a", 0, 50, 2), Job("b", 0, 60, 0.5)]
    Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 4), Listening(), NO_COSTS).run()
    assert heard == [2.0, 0.5]


def test_jobs_that_ended_teach_what_is_left() -> None:
    """Where all jobs so far took 1000 s, a job that has done 990 s is nearly done; one of 1 s is not."""
    remaining = RemainingWork(2)
    for _ in range(500):
        remaining.on_event(Event(0.0, "finish", 0, -1, 0.0, 1000.0))
    jobs = [Job("old", 0, 2000, 1), Job("new", 990, 2000, 1)]
    engine = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 2), Joint(every_s=10_000.0), Settings.ideal())
    assert engine.advance()
    engine.ask()
    assert engine.advance()  # the second arrives
    old, new = remaining.of(engine.view)
    assert old < 50 < 500 < new
