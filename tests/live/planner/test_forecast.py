"""Forecasts: exact where all lengths are known, the same twice, and without any effect on the planner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from argosy.cluster.cluster import Cluster
from argosy.live.planner.forecast import UNKNOWN_KIND, Future, forecast, what_if
from argosy.live.planner.messages import Active, Ended, JobFacts, Setup, Snapshot, Update
from argosy.live.planner.planner import Planner
from argosy.live.planner.shadowing import control, planner_of_then, shadow
from argosy.live.planner.worker import Answers
from argosy.policies.tiresias.policy import TiresiasLas
from argosy.sim.settings import Settings

CLUSTER = Cluster.uniform(1, 2, "gpu")
PLAIN = Settings.ideal(min_run_s=0.0)


def facts(id: int, gpus: float, at_s: float = 0.0, expected_s: float | None = 100.0) -> JobFacts:
    return JobFacts(id, gpus, at_s, cpus=1.0, memory_gib=0.0, expected_s=expected_s)


def planner(policy: str, *jobs: JobFacts, past: tuple[Ended, ...] = ()) -> Planner:
    made = Planner(Setup(CLUSTER, policy, PLAIN), Snapshot(0.0, (), past))
    made.update(Update(0.0, tuple(Active(job) for job in jobs)))
    return made


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias-las", "joint"])
def test_known_lengths_give_exact_times_again_and_again(policy: str) -> None:
    """Two jobs of two GPUs one after the other; a third one arrives while the first runs."""
    made = planner(policy, facts(1, 2), facts(2, 2))
    future = Future(made, later=[facts(3, 2, at_s=50.0)])
    lengths = np.array([100.0, 40.0]), np.array([30.0])
    first = future.rolls.run(*lengths, 1e6)
    assert sorted(first.end_s.tolist())[-1] == pytest.approx(170.0)  # no GPU is ever idle
    assert np.isfinite(first.end_s).all()
    for _ in range(3):
        again = future.rolls.run(*lengths, 1e6)
        assert again.end_s.tolist() == first.end_s.tolist()
        assert np.array_equal(again.start_s, first.start_s, equal_nan=True)
    assert len(made.update(Update(1.0)).running) == 1, "the planner has not moved"


def test_quantiles_follow_what_jobs_took_before() -> None:
    past = tuple(Ended(facts(100 + i, 2, -1000.0 + i, None), 60.0 if i % 2 else 120.0) for i in range(40))
    made = planner("fifo", facts(1, 2, 0.0, None), facts(2, 2, 0.0, None), past=past)
    found = forecast(made, rollouts=200)
    assert found.jobs[1].start is None and found.jobs[2].start is not None
    assert found.jobs[1].end.p10 == pytest.approx(60.0) and found.jobs[1].end.p90 == pytest.approx(120.0)
    made.update(Update(90.0))  # it has outlived the short ones
    later = forecast(made, rollouts=50)
    assert later.jobs[1].end.p10 == pytest.approx(120.0, abs=1.0)


def test_a_job_that_is_not_submitted_is_estimated_and_forgotten() -> None:
    made = planner("fifo", facts(1, 2), facts(2, 2))
    seen, huge = what_if(made, [facts(2**40, 1), facts(2**40, 99)], rollouts=20)
    assert seen.estimate is not None and seen.estimate.start is not None and seen.estimate.start.p50 is not None
    assert seen.expected == (100.0, "the user's estimate")
    assert huge.estimate is None and "99 GPUs" in huge.refused
    assert set(made._index.jobs) == {1, 2}


def test_a_shadow_says_where_it_differs_and_what_it_wins() -> None:
    made = planner("fifo", facts(1, 2, expected_s=1000.0), facts(2, 2, expected_s=10.0))
    found = shadow(made, "srtf", rollouts=5)
    assert found.agreement == 0.0 and set(found.differ) == {(1, 2.0, 0.0), (2, 0.0, 2.0)}
    assert min(found.gains) > 0
    same = shadow(made, "fifo", rollouts=5)
    assert same.agreement == 1.0 and same.gains == (0.0,) * 5


def test_a_control_estimate_knows_what_really_came() -> None:
    """Under fifo job 1 (100 s) runs first, then job 2 (20 s): they are there for 100 + 120 s; job 3 for 30 s."""
    made = planner("fifo", facts(1, 2), facts(2, 2))
    snapshot = made.snapshot()
    made.update(Update(150.0, ended={1: "completed", 2: "completed"}, arrived=(Active(facts(3, 2, 120.0, 1e5)),)))
    came = [facts(3, 2, 120.0, 1e5)]
    then = planner_of_then(made, snapshot, "fifo", came)
    found = control(made, then, snapshot, came, {1: 100.0, 2: 20.0}, 150.0, rollouts=3)
    assert found.presence_s == pytest.approx((250.0,) * 3, abs=1.0)
    assert found.gpu_presence_s == pytest.approx((500.0,) * 3, abs=2.0)
    assert len(set(found.presence_s)) == 1, "one roll-out must not leave anything to the next"


def test_forked_copies_answer_although_polars_has_started_its_threads_before() -> None:
    """A copy has none of those threads, and would wait for them for ever."""
    desk, jobs = Answers(), [replace(facts(i, i % 3), cpus=1.0 + i % 2) for i in range(1, 9)]
    desk.take_over(Setup(Cluster.uniform(2, 4, "gpu"), "drf", PLAIN), Snapshot(0.0, ()))
    desk.plan(Update(0.0, tuple(Active(job) for job in jobs)))
    snapshot = desk.planner.snapshot()
    pl.DataFrame({"a": [2, 1], "b": [1, 2]}).sort("a").select("a", "b")
    new = replace(facts(2**40, 2, 10.0), model="ResNet-18", batch_size=64.0)
    asked: dict[str, dict[str, Any]] = {
        "forecast": {"rollouts": 3},
        "what-if": {"variants": (new, facts(2**40, 99), facts(2**40, 1)), "rollouts": 3},
        "shadow": {"policy": "srtf", "rollouts": 3},
        "control": {
            "snapshot": snapshot,
            "policy": "fifo",
            "arrived": [new],
            "ended": {1: 100.0},
            "now_s": 50.0,
            "rollouts": 3,
        },
    }
    for name, arguments in asked.items():
        assert desk.begin(name, 20.0, arguments)
        while (found := desk.finished(name, 1.0)) is None:
            pass
        assert not found.problem and found.answer, (name, found)


def test_questions_about_ever_new_kinds_do_not_slow_the_planner_down() -> None:
    made = planner("fifo", facts(1, 2))
    new = [replace(facts(2**40 + i, 1), model="ResNet-18", batch_size=1.0 + i) for i in range(3)]
    made.know(new[:1], most=2)
    made.know(new[1:], most=2)
    known, first, second = what_if(made, new, rollouts=2)
    assert known.estimate is not None
    assert {first.refused, second.refused} == {UNKNOWN_KIND}


@pytest.mark.parametrize("policy", ["tiresias-las:limits=60,300", "tiresias-las:limits=60,300:promote=2"])
def test_compiled_roll_outs_do_what_the_policy_does(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a state with a history: jobs have moved to lower queues, and some have been stopped."""
    rng = np.random.default_rng(4)
    jobs = [facts(i, float(rng.choice([1, 1, 2, 4])), 0.0, None) for i in range(1, 40)]
    made = Planner(Setup(Cluster.uniform(2, 4, "gpu"), policy, PLAIN), Snapshot(0.0, ()))
    made.update(Update(0.0, tuple(Active(job) for job in jobs)))
    for at_s in (40.0, 90.0, 200.0, 500.0):
        made.update(Update(at_s))
    later = [facts(100 + i, float(rng.choice([1, 2])), 600.0 + 50 * i, None) for i in range(8)]
    compiled = Future(made, later=later)
    with monkeypatch.context() as patched:
        patched.setattr(TiresiasLas, "compiled_order", lambda self, jobs: None)
        asked = Future(made, later=later)
    assert compiled.rolls.compiled and not asked.rolls.compiled
    assert np.array_equal(compiled.rolls.decide_now(), asked.rolls.decide_now())
    draws = compiled.draw(5)
    for left, work in zip(draws.left_s, draws.work_s):
        ours, theirs = (future.rolls.run(left, work, 1e7) for future in (compiled, asked))
        assert np.isfinite(ours.end_s).all()
        assert ours.end_s.tolist() == theirs.end_s.tolist()
        assert np.array_equal(ours.start_s, theirs.start_s, equal_nan=True)
