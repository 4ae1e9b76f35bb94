"""Sidecar: Amdahl's law fitted to measurements, shrinking for new jobs, growing on free GPUs, and restart costs."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import finish, simulate, starts

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.mechanism.kernels import layout as L
from argosy.policies.base import create
from argosy.policies.sidecar import amdahl
from argosy.sim.engine import Engine
from argosy.sim.result import EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


def elastic(name: str, at: float, work_s: float, gpus: int, low: int = 1, high: int = 8) -> Job:
    """Work for one GPU; in `Settings.ideal` speed is proportional to GPUs."""
    return Job(name, at, work_s / gpus, gpus, min_gpus=low, max_gpus=high)


def resizes(result: Result) -> int:
    return int(result.jobs["resizes"].sum())


class TestAmdahl:
    def test_one_size_and_the_usual_serial_share(self) -> None:
        # T1 · (.1 + .9/4) = 1 / 2: T1 = 1.538
        times = amdahl({4: 2.0}, 8, 0.1)
        alone = 0.5 / 0.325
        assert times[4] == pytest.approx(0.5) and times[1] == pytest.approx(alone)
        assert times[8] == pytest.approx(alone * (0.1 + 0.9 / 8)) and times[0] == np.inf

    def test_two_sizes_give_the_line(self) -> None:
        # 1/s = A + B/k through (1, 1) and (4, .4): B = .8, A = .2
        times = amdahl({1: 1.0, 4: 2.5}, 16, 0.9)
        assert times[2] == pytest.approx(0.6) and times[16] == pytest.approx(0.25)

    def test_measured_sizes_are_exact_and_nothing_is_better_than_linear(self) -> None:
        seen = {1: 1.0, 2: 1.9, 4: 2.0, 8: 3.9}
        times = amdahl(seen, 64, 0.1)
        assert [1 / times[k] for k in seen] == pytest.approx(list(seen.values()))
        assert 1 / times[64] <= 3.9 * 8 + 1e-9
        assert all(t > 0 for t in times)

    def test_a_size_that_slows_it_down_promises_no_more_beyond(self) -> None:
        times = amdahl({2: 2.0, 4: 1.5}, 16, 0.1)
        assert times[16] == pytest.approx(times[4]) and times[1] == pytest.approx(times[2])


class TestShrinking:
    def test_a_newcomer_takes_a_gpu_from_the_one_that_loses_least(self) -> None:
        # both have 4 GPUs; long has 8000 left, short 4000: short loses less, its 4th GPU goes to the newcomer
        jobs = [elastic("long", 0, 8000, 4, high=4), elastic("short", 0, 4000, 4, high=4), Job("new", 100, 50, 1)]
        result = simulate(jobs, Cluster.uniform(1, 8), "sidecar:interval_s=1000")
        # short: 400 done by 100, 150 until 150, then 4 GPUs again: 3450 left, at 150 + 862.5
        assert starts(result) == [0, 0, 100] and finish(result) == [2000, 1012.5, 150]

    def test_nobody_goes_below_one_gpu_or_below_his_own_least(self) -> None:
        jobs = [elastic("three", 0, 4000, 4, low=3), elastic("one", 0, 4000, 4, low=1)]
        jobs += [Job(f"n{i}", 10 + i, 500, 1) for i in range(8)]
        held: dict[int, float] = {}

        def look(engine: Engine) -> None:
            columns = engine.view.jobs
            for index, gpus in zip(engine.view.jobs.index.tolist(), columns.held.tolist()):
                if gpus > 0:
                    held[index] = min(held.get(index, 99), gpus)

        engine = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 8), create("sidecar"), Settings.ideal(), watch=look)
        result = engine.run()
        assert held[0] == 3 and held[1] == 1
        assert starts(result)[:6] == [0, 0, 10, 11, 12, 13] and starts(result)[6] > 14  # 4 GPUs could be had

    def test_no_action_when_the_wait_is_shorter_than_the_restart(self) -> None:
        jobs = [elastic("a", 0, 400, 4, high=4), Job("new", 95, 50, 1)]  # a ends at 100
        result = simulate(jobs, Cluster.uniform(1, 4), "sidecar")
        assert resizes(result) == 0 and starts(result) == [0, 100]
        early = [jobs[0], Job("new", 85, 50, 1)]  # 15 s to wait is more than a restart of 10 s
        assert starts(simulate(early, Cluster.uniform(1, 4), "sidecar")) == [0, 85]
        assert starts(simulate(early, Cluster.uniform(1, 4), "sidecar:cost_s=60")) == [0, 100]

    def test_only_gpus_that_the_newcomer_accepts_are_freed(self) -> None:
        cluster = Cluster((Node("v", "v100", 4, 64.0), Node("p", "p100", 4, 64.0)))
        jobs = [
            Job("on v", 0, 1000, 4, min_gpus=1, max_gpus=4, gpu_type="v100"),
            Job("on p", 0, 5000, 4, min_gpus=1, max_gpus=4, gpu_type="p100"),
            Job("new", 100, 50, 1, gpu_type="p100"),
        ]
        result = simulate(jobs, cluster, "sidecar")
        resized = result.events.filter(result.events["kind"] == EventKind.RESIZE)["job"].to_list()
        assert starts(result)[2] == 100 and set(resized) == {1}

    def test_a_job_for_which_others_made_way_in_vain_lets_them_be(self) -> None:
        # the newcomer needs 8 CPUs on one node, which shrinking does not give it: tried once in 600 s
        cluster = Cluster((Node("n", gpus=4, cpus=9, memory_gib=10),))
        jobs = [
            Job("a", 0, 1000, 4, min_gpus=1, max_gpus=4, cpus=8.0, memory_gib=0.0),
            Job("hungry", 10, 50, 1, cpus=9.0, memory_gib=0.0),
        ]
        shrunk = simulate(jobs, cluster, "sidecar")
        assert starts(shrunk)[1] == finish(shrunk)[0]
        # 4 → 3 at 10; 3 → 4 again, since nobody can use the GPU; in 600 s at most one more of each
        assert resizes(shrunk) <= 4


class TestGrowing:
    def test_free_gpus_go_where_they_save_most(self) -> None:
        jobs = [elastic("long", 0, 9000, 2), elastic("short", 0, 900, 2), Job("gone", 0, 100, 4)]
        result = simulate(jobs, Cluster.uniform(1, 8), "sidecar:cost_s=0")
        # at 100 long has 8800 left and short 700, on 2 GPUs each. All four GPUs go to long: the last one saves it
        # 8800·(1/5 − 1/6) = 293 s, the first one would save short 117 s. At 450 short ends, and long has 8: 6700/8
        grown = result.events.filter(result.events["kind"] == EventKind.RESIZE)
        assert grown.select("t", "job").rows() == [(100, 0), (450, 0)]
        assert finish(result) == [1287.5, 450, 100]

    def test_no_growth_that_saves_less_than_a_restart(self) -> None:
        jobs = [elastic("a", 0, 300, 2), Job("gone", 0, 100, 6)]  # at 100 a has 50 s left, on 8 GPUs 12.5 s
        assert resizes(simulate(jobs, Cluster.uniform(1, 8), "sidecar:cost_s=60:serial=0")) == 0
        assert resizes(simulate(jobs, Cluster.uniform(1, 8), "sidecar:cost_s=10:serial=0")) == 1

    def test_nobody_grows_while_somebody_waits_for_what_is_free(self) -> None:
        jobs = [elastic("a", 0, 400, 4, high=8), Job("wide", 96, 50, 6)]  # a ends at 100: too soon to shrink it
        result = simulate(jobs, Cluster.uniform(1, 8), "sidecar:cost_s=60")
        assert starts(result)[1] == finish(result)[0]


def crowd() -> list[Job]:
    rng = np.random.default_rng(7)
    times = np.cumsum(rng.exponential(150.0, 60))
    return [
        elastic(f"j{i}", float(t), float(rng.lognormal(7.5, 1.0)), int(rng.integers(1, 5)), high=8)
        for i, t in enumerate(times)
    ]


def mean_jct(restart_s: float, believed_s: float) -> float:
    """Two clusters of the paper's size; a resize really takes `restart_s`."""
    settings = Settings(perf="rigid", locality=False, min_run_s=0)
    engine = Engine(Trace.of_jobs(crowd()), Cluster.uniform(2, 8), create(f"sidecar:cost_s={believed_s:g}"), settings)
    engine.world.ov[:, L.O_RESIZE_COLD] = restart_s
    jobs = engine.run().jobs
    return float((jobs["finish_s"] - jobs["submit_s"]).to_numpy().mean())


def test_a_cheap_restart_is_worth_having() -> None:
    cheap = mean_jct(10, 10)
    assert cheap < mean_jct(60, 60)
    assert cheap < mean_jct(60, 10)


def test_it_beats_sizes_that_never_change() -> None:
    settings = Settings(perf="rigid", locality=False, min_run_s=0)
    jobs = Engine(Trace.of_jobs(crowd()), Cluster.uniform(2, 8), create("fifo"), settings).run().jobs
    assert mean_jct(10, 10) < 0.8 * float((jobs["finish_s"] - jobs["submit_s"]).to_numpy().mean())


@pytest.mark.parametrize("spec", ["interval_s=0", "cost_s=-1", "serial=2", "patience_s=-1"])
def test_nonsense_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match=f"sidecar: {spec.partition('=')[0]} must be"):
        create(f"sidecar:{spec}")


def test_curves_are_fitted_again_only_where_something_new_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the job that starts and the one that shrinks are fitted again, which keeps a decision fast."""
    fitted: list[int] = []

    def counted(rates: dict[int, float], most: int, serial: float) -> list[float]:
        fitted.append(most)
        return amdahl(rates, most, serial)

    monkeypatch.setattr("argosy.policies.sidecar.amdahl", counted)
    jobs = [elastic(f"j{i}", 0, 20_000.0 + 10 * i, 1 + i % 4, high=16) for i in range(900)]
    jobs += [elastic(f"n{i}", 10.0 + i, 20_000.0, 2, high=16) for i in range(100)]
    engine = Engine(Trace.of_jobs(jobs), Cluster.uniform(125, 8), create("sidecar"), Settings())
    calls = []
    for _ in range(60):
        engine.advance()
        fitted.clear()
        engine.ask()
        calls.append(len(fitted))
    assert 0 < max(calls) <= 900
    assert set(calls[3:]) == {2}
