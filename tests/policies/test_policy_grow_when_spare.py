"""grow-when-spare: who gets spare GPUs, what for, and when they go back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from by_hand import finish, simulate

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.perf import quality
from argosy.perf.quality import Gains, QualityCurve
from argosy.policies.base import create
from argosy.policies.common.spare_offers import Offer, best_of, first_come
from argosy.policies.common.spare_time import SpareTime
from argosy.scenario import read_scenario
from argosy.sim.engine import Engine
from argosy.sim.metrics import metrics
from argosy.sim.result import EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

HOUR = 3600.0
ALONE = "grow-when-spare:reserve=0:idle=0"


def curve(name: str, growth: float, replicas: float) -> QualityCurve:
    """Return a curve with these gains for a whole training, in proportion to what is left."""

    def gains(most: float, gpus: float) -> Gains:
        return Gains((1.0,), (most,), (0.0,), gpus)

    return QualityCurve(name, (0.0, 1.0), (0.1, 0.7), gains(growth, 1.5), gains(replicas, 2.0), 0.25, 1)


@pytest.fixture(autouse=True)
def by_hand_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (curve("grower", 0.08, 0.01), curve("replicator", 0.01, 0.08), curve("settled", 0.0, 0.0))
    monkeypatch.setattr(quality, "curves", lambda: found)
    monkeypatch.setattr(quality, "names", lambda: tuple(c.name for c in found))
    for module in ("argosy.policies.common.spare_offers", "argosy.sim.quality"):
        monkeypatch.setattr(f"{module}.curves", lambda: found)


def job(name: str, submit_s: float, hours: float, gpus: int, kind: str | None = None, **more: Any) -> Job:
    spare = None if kind is None else float(gpus)
    return Job(name, submit_s, hours * HOUR, gpus, quality=kind, spare_gpus=spare, **more)


def sizes(result: Result, name: str) -> list[tuple[float, str, int]]:
    """Return when a job was placed how, and with how many GPUs."""
    index = result.jobs["job_id"].to_list().index(name)
    rows = result.events.filter(pl.col("job") == index, pl.col("kind") < 10)
    found: dict[int, tuple[float, str, int]] = {}
    for row in rows.iter_rows(named=True):
        before = found.get(row["seq"], (0, "", 0))[2]
        found[row["seq"]] = (row["t"], EventKind(row["kind"]).name, before + row["devices"].bit_count())
    return list(found.values())


class TestWhoGetsThem:
    def test_each_job_gets_the_use_that_helps_it_and_its_duration_does_not_change(self) -> None:
        jobs = [job("g", 0, 2, 2, "grower"), job("r", 0, 2, 2, "replicator"), job("s", 0, 2, 2, "settled")]
        result = simulate(jobs, Cluster.uniform(2, 8), ALONE)
        assert finish(result) == [2 * HOUR] * 3
        assert sizes(result, "g")[-1][1:] == ("GROW", 3)  # half as many GPUs again
        assert sizes(result, "r")[-1][1:] == ("RESIZE", 4)
        assert [size[1] for size in sizes(result, "s")] == ["START"]  # nobody gets what would bring nothing
        quality_of = dict(zip(result.jobs["job_id"], result.jobs["quality"], strict=True))
        assert quality_of["s"] == pytest.approx(0.7)
        assert quality_of["g"] == pytest.approx(0.78, abs=0.002) and quality_of["r"] == pytest.approx(0.78, abs=0.002)

    def test_without_consent_or_curve_nothing_is_given(self) -> None:
        jobs = [Job("a", 0, HOUR, 2, quality="grower"), Job("b", 0, HOUR, 2)]
        result = simulate(jobs, Cluster.uniform(1, 8), ALONE)
        assert metrics(result)["resizes"] == 0 and np.isnan(metrics(result)["spare_gpu_h"])
        assert result.jobs["quality"].to_list() == [0.7, None]

    @pytest.mark.parametrize(("use", "kinds"), [("growth", {"GROW"}), ("replicas", {"RESIZE"}), ("nobody", set())])
    def test_rivals_use_them_for_one_thing_only(self, use: str, kinds: set[str]) -> None:
        jobs = [job("g", 0, 2, 2, "grower"), job("r", 0, 2, 2, "replicator")]
        result = simulate(jobs, Cluster.uniform(2, 8), f"{ALONE}:use={use}")
        assert {size[1] for name in "gr" for size in sizes(result, name)} - {"START"} == kinds

    def test_scarce_gpus_go_where_they_bring_most(self) -> None:
        jobs = [job("settled", 0, 2, 2, "settled"), job("gains", 0, 2, 2, "replicator")]
        best = simulate(jobs, Cluster.uniform(1, 6), ALONE)
        first = simulate(jobs, Cluster.uniform(1, 6), f"{ALONE}:use=replicas:by=arrival")
        assert sizes(best, "gains")[-1][2] == 4 and sizes(best, "settled")[-1][2] == 2
        assert sizes(first, "gains")[-1][2] == 2 and sizes(first, "settled")[-1][2] == 4
        assert metrics(best)["quality_mean"] > metrics(first)["quality_mean"]
        assert metrics(first)["spare_wasted_gpu_h"] == pytest.approx(metrics(first)["spare_gpu_h"])

    def test_some_gpus_stay_free_for_those_who_come(self) -> None:
        jobs = [job("r", 0, 2, 4, "replicator")]
        assert (
            metrics(simulate(jobs, Cluster.uniform(1, 8), "grow-when-spare:reserve=0.1:use=replicas"))["resizes"] == 0
        )
        assert metrics(simulate(jobs, Cluster.uniform(1, 8), ALONE))["resizes"] == 1


class TestTakingBack:
    def test_a_job_that_arrives_starts_at_once(self) -> None:
        jobs = [job("r", 0, 4, 4, "replicator"), job("new", HOUR, 1, 4)]
        result = simulate(jobs, Cluster.uniform(1, 8), ALONE)
        assert result.jobs["first_start_s"].to_list() == [0.0, HOUR]
        assert [size[2] for size in sizes(result, "r")] == [4, 8, 4, 8]  # and gets them again afterwards
        assert finish(result) == [4 * HOUR, 2 * HOUR]

    def test_who_loses_least_gives_back_first(self) -> None:
        jobs = [job("g", 0, 4, 2, "grower"), job("r", 0, 4, 2, "replicator"), job("new", HOUR, 1, 1)]
        result = simulate(jobs, Cluster.uniform(1, 7), ALONE)
        assert sizes(result, "g")[1][1:] == ("GROW", 3) and sizes(result, "r")[1][2] == 4
        assert result.jobs["first_start_s"][2] == HOUR
        assert (
            len([s for s in sizes(result, "r") if s[0] == HOUR]) + len([s for s in sizes(result, "g") if s[0] == HOUR])
            == 1
        )

    def test_growth_that_is_taken_back_keeps_a_share(self) -> None:
        jobs = [job("g", 0, 4, 2, "grower"), job("new", 2 * HOUR, 9, 6)]
        result = simulate(jobs, Cluster.uniform(1, 8), ALONE)
        gain = result.jobs["quality_gain"][0]
        assert gain == pytest.approx(0.25 * 0.5 * 0.08, abs=0.001)
        found = metrics(result)
        assert found["spare_gpu_h"] == pytest.approx(2.0, abs=0.01)
        assert found["spare_wasted_gpu_h"] == pytest.approx(0.75 * found["spare_gpu_h"])

    def test_a_gang_that_cannot_use_them_where_they_are_gets_all_back(self) -> None:
        jobs = [
            job("a", 0, 4, 2, "replicator"),
            job("b", 1, 4, 2, "replicator"),
            job("gang", HOUR, 1, 4),
        ]
        settings = Settings.ideal(consolidation="strict", placer="spread")
        result = Engine(Trace.of_jobs(jobs), Cluster.uniform(2, 6), create(ALONE), settings).run()
        assert result.jobs["first_start_s"][2] <= HOUR + 1.0


def test_others_never_notice_what_is_given() -> None:
    """Whatever arrives and ends, jobs that take no spare GPUs run as they would without them."""
    rng = np.random.default_rng(1)
    jobs = [
        job(f"j{i}", 600.0 * i, float(rng.uniform(0.2, 2)), int(rng.integers(1, 4)), ("grower", None)[i % 2])
        for i in range(60)
    ]
    cluster = Cluster.uniform(1, 12)
    for inner in ("fifo", "las", "srtf"):
        allowed_s = (
            1500.0 if inner == "las" else 2.0
        )  # the quanta of las begin when it is asked, which is more often here
        plain = simulate(jobs, cluster, inner)
        given = simulate(jobs, cluster, f"{ALONE}:inner={inner}")
        ends = pl.Series(given.jobs["finish_s"] - plain.jobs["finish_s"]).abs()
        assert ends.max() < allowed_s, inner
        assert (given.jobs["finish_s"] - plain.jobs["finish_s"]).mean() < 2.0, inner
        assert metrics(given)["quality_mean"] > metrics(plain)["quality_mean"]


def test_its_memory_survives_a_restart() -> None:
    rng = np.random.default_rng(2)
    jobs = [
        job(
            f"j{i}",
            900.0 * i,
            float(rng.uniform(0.5, 3)),
            int(rng.integers(1, 4)),
            ("grower", "replicator", None)[i % 3],
        )
        for i in range(40)
    ]

    def run(every: int, restore: bool = True) -> Result:
        spec = "grow-when-spare:inner=las"
        engine = Engine(Trace.of_jobs(jobs), Cluster.uniform(2, 6), create(spec), Settings.ideal())
        asked = 0
        while engine.advance():
            asked += 1
            if every and asked % every == 0:
                told = json.loads(json.dumps(engine.policy.state()))
                engine.policy = create(spec)
                engine.policy.reset(engine.context)
                if restore:
                    engine.policy.restore(told)
            engine.ask()
        return engine.result()

    usual = run(0)
    assert run(5).events.equals(usual.events)
    assert not run(5, restore=False).events.equals(usual.events)


def test_a_sizing_policy_may_be_inside_and_sees_nothing_of_it() -> None:
    jobs = [job("r", 0, 3, 2, "replicator"), Job("e", 60, HOUR, 2, min_gpus=1, max_gpus=4)]
    result = simulate(jobs, Cluster.uniform(2, 8), f"{ALONE}:inner=elasticflow")
    assert set(result.jobs["status"]) == {"completed"} and sizes(result, "r")[-1][2] == 4


@pytest.mark.parametrize("inner", ["gavel-ftf", "tesserae", "gandiva", "themis", "kai"])
def test_a_planning_policy_may_be_inside(inner: str) -> None:
    """It gets spare GPUs added on the nodes of its jobs, and back when its plans need them."""
    rng = np.random.default_rng(3)
    jobs = [
        job(f"j{i}", 1500.0 * i, float(rng.uniform(0.3, 1.5)), int(rng.integers(1, 4)), ("replicator", None)[i % 2])
        for i in range(24)
    ]
    cluster = Cluster.uniform(2, 6)
    plain, given = simulate(jobs, cluster, inner), simulate(jobs, cluster, f"{ALONE}:inner={inner}")
    assert set(given.jobs["status"]) == {"completed"}
    assert metrics(given)["spare_gpu_h"] > 1 and metrics(given)["quality_mean"] > metrics(plain)["quality_mean"]
    assert metrics(given)["jct_others_mean_s"] < 1.05 * metrics(plain)["jct_others_mean_s"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("grow-when-spare:use=both", "use must be one of"),
        ("grow-when-spare:by=age", "by must be one of"),
        ("grow-when-spare:reserve=1", "reserve must be"),
        ("grow-when-spare:at_least=-1", "at_least must be"),
        ("grow-when-spare:idle=-1", "idle must be"),
        ("grow-when-spare:inner=joint", "decides order, size"),
    ],
)
def test_bad_parameters(spec: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        create(spec)


class TestOffers:
    def test_a_price_divides_what_is_scarce(self) -> None:
        def offer(row: int, gpus: int, gain: float) -> Offer:
            return Offer(row, "replicas", gpus, gain, float(gpus))

        found = [offer(0, 4, 0.02), offer(1, 2, 0.03), offer(1, 4, 0.04), offer(2, 2, 0.03), offer(3, 1, 0.001)]
        assert {(o.row, o.gpus) for o in best_of(found, 4, 0.002)} == {(1, 2), (2, 2)}
        assert {(o.row, o.gpus) for o in best_of(found, 99, 0.002)} == {(0, 4), (1, 4), (2, 2)}
        assert [(o.row, o.gpus) for o in first_come(found, 6)] == [(0, 4), (1, 2)]
        assert best_of(found, 0, 0.002) == []


class TestSpareTime:
    def test_it_learns_when_gpus_are_claimed(self) -> None:
        clock = SpareTime()
        for day in range(5):
            for hour in range(24):
                clock.note((24 * day + hour) * HOUR, 0.0)
                if 8 <= hour < 18:  # twice an hour
                    clock.note((24 * day + hour) * HOUR + 1000, 1.0)
                    clock.note((24 * day + hour) * HOUR + 1200, 0.0)
                    clock.note((24 * day + hour) * HOUR + 2800, 1.0)
                    clock.note((24 * day + hour) * HOUR + 3000, 0.0)
        night, day_time = 5 * 24 * HOUR, (5 * 24 + 9) * HOUR
        assert clock.kept(night, np.array([4 * HOUR]))[0] > 0.75
        assert clock.kept(day_time, np.array([4 * HOUR]))[0] < 0.05
        assert (np.diff(clock.kept(night, np.arange(0, 20 * 24) * HOUR)) <= 0).all()
        other = SpareTime()
        other.restore(json.loads(json.dumps(clock.state())))
        assert other.state() == clock.state()


@pytest.mark.slow(20)
def test_the_scenario_shows_who_makes_most_of_spare_gpus() -> None:
    scenario = replace(read_scenario("spare", quick=True))
    trace = scenario.trace(0)
    found = {
        spec: metrics(simulate_scenario(scenario, trace, spec), window=scenario.window(trace))
        for spec in ("fifo", "grow-when-spare", "grow-when-spare:use=growth:by=arrival")
    }
    best, plain = found["grow-when-spare"], found["fifo"]
    assert best["quality_mean"] > plain["quality_mean"]
    assert best["spare_wasted_gpu_h"] < best["spare_gpu_h"]
    assert best["jct_others_mean_s"] < 1.05 * plain["jct_others_mean_s"]


def simulate_scenario(scenario: Any, trace: Trace, spec: str) -> Result:
    from argosy.sim.run import simulate as run

    return run(trace, scenario.cluster, scenario.spec(spec), scenario.settings)
