"""Shockwave: the forecast by hand, the window's program, and that it foresees what jobs will do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError, TraceError
from argosy.policies.base import create
from argosy.policies.shockwave.forecast import FairFinish, remaining_epochs, remaining_s
from argosy.policies.shockwave.window import Window, arrange, plan, solve
from argosy.sim.engine import Engine
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

QUIET = Settings(overheads="none", measurement_noise=0.0, min_run_s=0.0)


def test_the_posterior_by_hand() -> None:
    """Ten epochs, modes 32 and 64, the first four epochs with 32: 9 to 5, so 2.4286 and 3.5714 are still to come."""
    left = remaining_epochs(10, np.array([4, 0]))
    assert left == pytest.approx([2.4286, 3.5714], abs=1e-4)
    assert remaining_s(10, 4, np.array([4, 0]), np.array([100.0, 60.0])) == pytest.approx(242.86 + 214.29, abs=0.1)


def test_a_job_with_one_mode_is_foreseen_exactly() -> None:
    assert remaining_s(10, 3, np.array([4]), np.array([100.0])) == pytest.approx(700.0)
    assert remaining_s(10, 10, np.array([10, 0]), np.array([100.0, 60.0])) == 0.0


def test_fair_finish_by_hand() -> None:
    fair = FairFinish()
    fair.add(0.0, 100.0)
    fair.add(10.0, 200.0)
    mean = (10 * 100 + 30 * 200) / 40
    assert fair.value(40.0) == pytest.approx(0.9 * mean + 0.1 * 200)


def window(jobs: int, **more: object) -> Window:
    usual: dict[str, object] = {
        "gpus": np.ones(jobs, np.int64),
        "progress": np.zeros(jobs),
        "epoch_s": np.full(jobs, 60.0),
        "epochs": np.full(jobs, 100),
        "remaining_s": np.full(jobs, 6000.0),
        "fair_finish": np.full(jobs, 1e9),
        "now": 0.0,
        "round_s": 120.0,
        "rounds": 4,
        "total_gpus": 2,
        "k": 0.0,
        "power": 12.0,
        "rho": 1.0,
    }
    return Window(**(usual | more))  # type: ignore[arg-type]


def test_identical_jobs_get_equal_shares() -> None:
    rounds, priority = plan(window(4))
    assert rounds.tolist() == [2, 2, 2, 2] and priority.tolist() == [1.0] * 4


def test_the_program_is_solved_as_by_trying_everything() -> None:
    rng = np.random.default_rng(1)
    for _ in range(4):
        case = window(
            3,
            gpus=rng.integers(1, 3, 3),
            progress=rng.uniform(0, 0.5, 3),
            epoch_s=rng.uniform(10, 60, 3),
            remaining_s=rng.uniform(300, 3000, 3),
            epochs=np.full(3, 20),
            k=1e-3,
        )
        found = solve(case, np.ones(3), in_time=False, limit_s=15.0)
        assert found is not None

        def value(rounds: tuple[int, ...]) -> float:
            work = np.minimum(np.array(rounds) * 120.0, (1 - case.progress) * case.epoch_s * 20)  # noqa: B023
            at = case.progress + work / (case.epoch_s * 20)  # noqa: B023
            log = np.interp(at, [0, 0.2, 0.4, 0.6, 0.8, 1], np.log([1e-6, 0.2, 0.4, 0.6, 0.8, 1]))
            return float(log.sum() / 12 - 1e-3 * np.maximum(case.remaining_s - work, 0).max())  # noqa: B023

        possible = [n for n in itertools.product(range(5), repeat=3) if np.dot(n, case.gpus) <= 8]
        assert value(tuple(found.tolist())) == pytest.approx(max(map(value, possible)), abs=2e-3)


def test_finish_times_are_kept_where_they_can_be() -> None:
    """Job 0 has to end within the window, so it gets all the rounds that it needs."""
    due = window(4, remaining_s=np.array([480.0, 6000, 6000, 6000]), fair_finish=np.array([480.0, 1e9, 1e9, 1e9]))
    rounds, _ = plan(due)
    assert rounds[0] == 4
    late = window(4, fair_finish=np.array([100.0, 1e9, 1e9, 1e9]))
    rounds, priority = plan(late)
    assert priority[0] > 1e3 and rounds[0] == 4


def test_rounds_are_filled_with_priority_first() -> None:
    schedule = arrange(np.array([2, 2, 1]), np.array([1, 2, 2]), np.array([1.0, 5.0, 1.0]), 2, 4)
    assert schedule[:2] == [[1], [1]] and schedule[2] == [2]
    assert sum(0 in jobs for jobs in schedule) == 1  # the rounds that are left hold it once


def changing(name: str, batches: str, at: float = 0.0, duration: float = 2000.0) -> Job:
    return Job(name, at, duration, 1, model="cifar10", batch_size=128, batches=batches, work=1.0)


def test_jobs_change_their_batch_and_last_as_said() -> None:
    trace = Trace.of_jobs([changing("a", "128|1024@0.5")])
    seen = []
    engine = Engine(trace, Cluster.uniform(1, 1, "v100"), create("shockwave"), QUIET)
    while engine.advance():
        seen.append((float(engine.view.jobs.batch[0]) if len(engine.view.jobs) else 0.0, engine.view.modes))
        if len(engine.view.jobs):
            assert [mode.batch for mode in engine.view.modes(0)] == [128, 1024]
        engine.ask()
    assert {batch for batch, _ in seen} >= {128.0, 1024.0}
    assert engine.result().jobs["finish_s"][0] == pytest.approx(2000.0)


def test_it_is_fairer_than_the_order_of_arrival() -> None:
    jobs = [changing(f"j{i}", "128|4096@0.3" if i % 2 else "128", 60.0 * i) for i in range(8)]
    trace = Trace.of_jobs(jobs)
    worst = {}
    for policy in ("shockwave", "fifo"):
        found = simulate(trace, Cluster.uniform(1, 2, "v100"), policy, QUIET).jobs
        worst[policy] = float((found["first_start_s"] - found["submit_s"]).to_numpy().max())
    assert worst["shockwave"] < 0.5 * worst["fifo"]


@pytest.mark.parametrize("text", ["x", "128|64", "128@0.3", "128|256@1.5", "128|256@0.5|512@0.4"])
def test_schedules_that_cannot_be_read(text: str) -> None:
    with pytest.raises(TraceError, match="batch sizes"):
        simulate(Trace.of_jobs([changing("a", text)]), Cluster.uniform(1, 1, "v100"), "fifo", QUIET)


def test_bad_parameters() -> None:
    for spec in ("shockwave:rho=0.5", "shockwave:window=0", "shockwave:epochs=1"):
        with pytest.raises(InputError, match="shockwave"):
            create(spec)
