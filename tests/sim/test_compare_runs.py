from __future__ import annotations

import os
import pickle

import pytest

from argosy.cluster.cluster import Cluster
from argosy.errors import ArgosyError, InputError
from argosy.sim.compare import Experiment, Outcome, Recipe, Task, compact, offered_load, run_all, tasks
from argosy.sim.metrics import metrics
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.sim.variation import Variation
from argosy.workload.trace import Job, Trace

CLUSTER = Cluster.uniform(2, 4)
RECIPE = Recipe("philly", jobs=40, load=0.9, gpus=8.0)
TRACE = Trace.of_jobs([Job(f"j{i}", 10.0 * i, 60.0, 1 + i % 4) for i in range(20)])
EXPERIMENT = Experiment(TRACE, CLUSTER, Settings())


def test_tasks_are_every_combination() -> None:
    todo = tasks(["fifo", "las"], [0, 1], [(Variation("load", 0.5),)])
    assert len(todo) == len(set(todo)) == 8
    assert todo[:3] == [Task("fifo", 0), Task("las", 0), Task("fifo", 1)]
    assert str(todo[-1]) == "las (seed 1, load=0.5)"


def test_outcomes_come_in_order_and_are_told_as_they_end() -> None:
    todo = tasks(["srtf", "fifo"], [0])
    told: list[Outcome] = []
    outcomes = run_all(EXPERIMENT, todo, workers=1, done=told.append)
    assert [outcome.task for outcome in outcomes] == todo
    assert told == outcomes
    assert [o.result.policy for o in outcomes if o.result] == ["srtf", "fifo"]


def test_compacting_changes_no_metric() -> None:
    result = simulate(TRACE, CLUSTER, "las")
    small = compact(result)
    assert small.events.height < result.events.height
    assert str(metrics(small)) == str(metrics(result))  # as text, since NaN is not equal to itself


def test_seeds_generate_other_traces_which_are_remembered() -> None:
    assert RECIPE.trace(1) is RECIPE.trace(1)
    assert not RECIPE.trace(1).frame.equals(RECIPE.trace(2).frame)


def test_a_load_is_reached() -> None:
    settings = Settings(perf="rigid")
    for source in (TRACE, RECIPE):
        trace = Experiment(source, CLUSTER, settings).trace(Task("fifo", 0, (Variation("load", 1.7),)))
        assert offered_load(trace, CLUSTER, settings) == pytest.approx(1.7)


def test_work_without_a_duration_is_load_too() -> None:
    jobs = [Job(f"j{i}", 100.0 * i, None, 1, model="bert", work=1e5) for i in range(5)]
    assert offered_load(Trace.of_jobs(jobs), Cluster.uniform(1, 4, "v100"), Settings()) > 0


def test_no_load_to_vary() -> None:
    with pytest.raises(InputError, match="arrive at once"):
        offered_load(Trace.of_jobs([Job("a", 0.0, 1.0, 1)]), CLUSTER, Settings())
    idle = Trace.of_jobs([Job("a", 0.0, 0.0, 1), Job("b", 1.0, 0.0, 1)])
    with pytest.raises(InputError, match="no GPU time"):
        offered_load(idle, CLUSTER, Settings())


def test_a_sweep_brings_back_metrics_only() -> None:
    outcome = EXPERIMENT.run(Task("fifo", 0, (Variation("load", 0.5),)))
    assert outcome.result is None and outcome.error is None
    assert outcome.scores is not None and outcome.scores["jobs"] == 20


def test_an_error_is_an_outcome() -> None:
    outcome = EXPERIMENT.run(Task("fiffo", 0))
    assert isinstance(outcome.error, InputError)
    assert "did you mean fifo" in str(pickle.loads(pickle.dumps(outcome)).error)


def test_whether_seeds_matter() -> None:
    assert not EXPERIMENT.chance(["fifo", "srtf", "las"])
    assert EXPERIMENT.chance(["fifo", "random"])
    assert EXPERIMENT.chance(["fair:inner=random"]) and EXPERIMENT.chance(["themis"])
    assert Experiment(RECIPE, CLUSTER, Settings()).chance(["fifo"])
    for changes in (
        {"drifting": True},
        {"node_mtbf_h": 9.0},
        {"job_mtbf_h": 9.0},
        {"placer": "random"},
        {"estimator": "noisy:0.2"},
    ):
        assert Experiment(TRACE, CLUSTER, Settings(**changes)).chance(["fifo"])  # type: ignore[arg-type]


class Deadly(Trace):
    """An object that kills the process which unpickles it, as the kernel does when memory runs out."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (3,)


def test_a_process_that_dies_is_reported() -> None:
    deadly = Deadly(TRACE.frame)
    outcomes = run_all(Experiment(deadly, CLUSTER, Settings()), tasks(["fifo", "las"], [0]), workers=2)
    assert [type(outcome.error) for outcome in outcomes] == [ArgosyError, ArgosyError]
    assert "ended unexpectedly" in str(outcomes[0].error)
