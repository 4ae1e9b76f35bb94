"""Tiresias: the index against its definition, queues by hand, promotion, places, memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import finish, jct, simulate, starts, view_of
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.policies.base import Place, create
from argosy.policies.tiresias.gittins import Gittins
from argosy.policies.tiresias.policy import TiresiasGittins
from argosy.seeding import stream
from argosy.sim.check import check_policy
from argosy.sim.engine import Engine
from argosy.sim.result import EventKind, Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

Floats = NDArray[np.float64]
ONE, TWO = Cluster.uniform(1, 1), Cluster.uniform(1, 2)
THREE = [Job("a", 0, 2, 2), Job("b", 0, 8, 1), Job("c", 0, 6, 2)]


# -- the index -------------------------------------------------------------------------------------------------


def test_the_index_of_three_samples() -> None:
    three, ages = Gittins([12, 4, 8]), np.array([0.0, 4.0, 8.0])
    # at 0: 1/12, 2/20 or 3/24; at 4: 1/8 or 2/12; at 8: 1/4
    assert three.best(ages) == pytest.approx([1 / 8, 1 / 6, 1 / 4])
    assert three.within(ages, np.full(3, 4.0)) == pytest.approx([1 / 12, 1 / 8, 1 / 4])


def test_the_index_of_a_heavy_tail() -> None:
    # at 0 three of four end within 1, which costs 1 each; at 1 only the long one is left, for 99
    assert Gittins([1, 1, 1, 100]).best(np.array([0.0, 1.0])) == pytest.approx([0.75, 1 / 99])


def test_nothing_is_known_beyond_the_largest_sample() -> None:
    ages = np.array([8.0, 12.0, 13.0])
    assert Gittins([4, 8, 12]).best(ages).tolist() == [0.25, 0, 0]
    assert Gittins([4, 8, 12]).within(ages, np.full(3, np.inf)).tolist() == [0.25, 0, 0]
    assert Gittins([]).best(ages).tolist() == Gittins([0]).within(ages, ages).tolist() == [0, 0, 0]


def by_definition(samples: Floats, age: float, quantum: float) -> float:
    left = samples[samples > age] - age
    return float(np.mean(left <= quantum) / np.mean(np.minimum(left, quantum))) if len(left) else 0.0


@pytest.mark.parametrize("seed", range(6))
def test_the_index_is_its_definition(seed: int) -> None:
    rng = stream(seed, "gittins")
    samples = np.ceil(rng.lognormal(2, [0.3, 1, 2][seed % 3], 60) * [1, 8][seed // 3])  # with ties
    ages = np.append(rng.uniform(0, 1.2 * samples.max(), 40), samples[:20])
    quanta = rng.uniform(0.1, samples.max(), 60)
    index = Gittins(samples)
    assert index.within(ages, quanta) == pytest.approx([by_definition(samples, a, d) for a, d in zip(ages, quanta)])
    best = [max((by_definition(samples, a, s - a) for s in samples if s > a), default=0.0) for a in ages]
    assert index.best(ages) == pytest.approx(best)


# -- queues ----------------------------------------------------------------------------------------------------


def test_three_jobs_and_two_queues() -> None:
    # a 0–1: 2 GPU-s, down. b 1–3 (c does not fit beside it): down. c 3–4: down, but it runs and nobody in the
    # lower queue may take its GPUs: it ends at 9. Then a, which started first, 9–10, and b 10–16
    assert jct(simulate(THREE, TWO, "tiresias-las:limits=2")) == [10, 16, 9]


def test_one_queue_is_first_come_first_served() -> None:
    assert jct(simulate(THREE, TWO, "tiresias-las:limits=1000")) == [2, 10, 16]
    assert jct(simulate(THREE, TWO, "tiresias-las:limits=")) == [2, 10, 16]


@pytest.mark.parametrize("policy", ["tiresias-las", "tiresias-gittins"])
@pytest.mark.parametrize("gpus", [1, 3, 4, 7])
def test_demotion_comes_exactly_at_the_limit(policy: str, gpus: int) -> None:
    jobs = [Job("long", 0.1, 9000, gpus), Job("peer", 5.3, 10, gpus)]
    waits = starts(simulate(jobs, Cluster.uniform(1, gpus), policy))
    assert waits == [0.1, round(0.1 + 3250 / gpus, 6)]


def test_time_in_a_queue_adds_up_over_runs() -> None:
    jobs = [Job("long", 0, 50, 1), Job("peer", 1, 14, 1), Job("x", 21, 3, 1), Job("y", 30, 2, 1)]
    # long 0–10, down. peer 10–20, down, and on, since nobody takes the GPU from a running peer. x 21–24.
    # Second queue: long (started first) 24–30, y 30–32, long again 32–36: 10 + 6 + 4 = 20 GPU-s, down.
    # peer's last 3 s: 36–39, long 39–69
    assert finish(simulate(jobs, ONE, "tiresias-las:limits=10,20")) == [69, 39, 24, 32]


def test_a_newcomer_preempts_those_in_lower_queues_only() -> None:
    jobs = [Job("old", 0, 30, 1), Job("young", 0, 9, 1), Job("new", 12, 5, 2)]
    # at 10 old goes down; young ends at 9. new needs both GPUs: at 12 it takes old's
    assert finish(simulate(jobs, TWO, "tiresias-las:limits=10")) == [35, 9, 17]
    # with a limit of 40 they are peers: new waits for old
    assert finish(simulate(jobs, TWO, "tiresias-las:limits=40")) == [30, 9, 35]


def test_nobody_is_woken_again_and_again_for_a_job_that_does_not_fit() -> None:
    """There are GPUs for the second job, but no CPUs: policies count the former only."""
    cluster = Cluster((Node("n", gpus=4, cpus=4.0),))
    jobs = [Job("greedy", 0, 5000, 1, cpus=4.0), Job("waits", 1, 100, 1, cpus=4.0)]
    engine = Engine(Trace.of_jobs(jobs), cluster, create("tiresias-las:limits=1,100000"), Settings.ideal())
    # at 1 greedy has left the top queue and makes way; waits leaves it at 2, but runs, and greedy is but its peer
    result = engine.run()
    assert finish(result) == [5100, 101]
    assert len(engine.decision_ns) < 8
    fractions = [Job("first", 0, 5000, 1, cpus=4.0), *(Job(f"j{i}", 1, 10, 0.5, cpus=4.0) for i in range(3))]
    engine = Engine(Trace.of_jobs(fractions), cluster, create("tiresias-las:limits=6000"), Settings.ideal())
    engine.run()
    assert len(engine.decision_ns) < 12


# -- promotion -------------------------------------------------------------------------------------------------

STARVED = [Job("long", 0, 100, 1), *(Job(f"s{i}", 10.0 * i, 10, 1) for i in range(1, 6))]


def test_promotion_resets_both_clocks() -> None:
    # long runs 0–10 and goes down; s1 10–20, s2 20–30. At 30 it has waited 2 · 10 s: up, and as early as s3.
    # long 30–40, down again. s3 40–50, s4 50–60. At 60 it has waited 20 s since it last ran: up, behind s5 (50).
    # s5 60–70, long 70–150
    assert finish(simulate(STARVED, ONE, "tiresias-las:limits=10:promote=2")) == [150, 20, 30, 50, 60, 70]


def test_without_promotion_a_job_starves() -> None:
    assert finish(simulate(STARVED, ONE, "tiresias-las:limits=10")) == [150, 20, 30, 40, 50, 60]


def test_a_job_that_never_ran_is_not_promoted() -> None:
    """It is in the top queue anyway, and its place in it does not change."""
    jobs = [Job("first", 0, 9, 1), Job("never ran", 0, 5, 1), Job("later", 3, 5, 1)]
    assert finish(simulate(jobs, ONE, "tiresias-las:limits=10:promote=0.01")) == [9, 14, 19]


# -- Gittins ---------------------------------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path) -> Path:
    file = tmp_path / "history.csv"
    file.write_text("gpu_s\n4\n8\n12\n")
    return file


def waiting(policy: TiresiasGittins, ages: list[float]) -> Any:
    n = len(ages)
    columns: dict[str, Any] = {
        "gpus": np.ones(n),
        "attained": np.array(ages),
        "executed_s": np.array(ages),
        "started": np.arange(n) * 1.0,
        "kind": np.zeros(n, np.int64),
    }
    view = view_of(policy, ONE, columns)
    view.now, view.waiting = 100.0, n
    return view


def test_the_highest_index_is_first_in_a_queue(history: Path) -> None:
    policy = create(f"tiresias-gittins:limits=100:least=3:history={history}")
    assert isinstance(policy, TiresiasGittins)
    # D = 100: 3/24 at 0, 2/12 at 4, 1/4 at 8, nothing known at 20
    assert np.argsort(policy.rank(waiting(policy, [20, 0, 8, 4]))).tolist() == [2, 3, 1, 0]
    # 4 GPU-s is in the second queue, and there D is ∞
    policy = create(f"tiresias-gittins:limits=4:least=3:history={history}")
    assert isinstance(policy, TiresiasGittins)
    assert np.argsort(policy.rank(waiting(policy, [20, 0, 8, 4]))).tolist() == [1, 2, 3, 0]


def test_quanta_matter(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("1\n1\n1\n100\n102\n104")
    ages = [0.0, 50.0]
    # within 1000: 6/309 at 0, 3/156 at 50: nearly the same, but the first is more; best: 3/6 against 3/156
    for quantum, least in (("limit", 1.0), ("best", 20.0)):
        policy = create(f"tiresias-gittins:limits=1000:least=3:history={file}:quantum={quantum}")
        assert isinstance(policy, TiresiasGittins)
        key = 1.0 / (policy.rank(waiting(policy, ages)) - 2.0) - 1.0  # in proportion to the index
        assert key[0] / key[1] > least
    assert key[0] / key[1] == pytest.approx((3 / 6) / (3 / 156))


def mixture(seed: int, jobs: int = 150) -> list[Job]:
    rng = stream(seed, "mixture")
    return [
        Job(f"j{i}", float(t), float(d), int(g), cpus=1.0)
        for i, (t, d, g) in enumerate(
            zip(np.sort(rng.uniform(0, 20000, jobs)), rng.lognormal(6, 1.5, jobs), rng.choice([1, 2, 4, 8], jobs))
        )
    ]


@pytest.mark.parametrize("settings", [Settings.ideal(), Settings(node_mtbf_h=5.0, job_mtbf_h=5.0, seed=2)])
def test_it_learns_the_gpu_times_of_jobs_that_ended(settings: Settings) -> None:
    policy = create("tiresias-gittins")
    assert isinstance(policy, TiresiasGittins)
    result = Engine(Trace.of_jobs(mixture(1)), Cluster.uniform(3, 8), policy, settings).run()
    ended = result.jobs.filter(result.jobs["status"].is_in(["completed", "failed"]))
    learned = [*policy._ended, *policy._fresh]
    assert 0.9 * len(ended) <= len(learned) <= len(ended)  # of the last ones it was not told, since it was not asked
    in_order = ended.sort("finish_s")["held_gpu_s"].to_numpy()[: len(learned)]
    assert np.sort(learned) == pytest.approx(np.sort(in_order))


def test_only_the_latest_count() -> None:
    policy = create("tiresias-gittins:window=5")
    assert isinstance(policy, TiresiasGittins)
    result = Engine(Trace.of_jobs(mixture(1)), Cluster.uniform(3, 8), policy, Settings.ideal()).run()
    latest = result.jobs.sort("finish_s")["held_gpu_s"].to_list()
    assert len(policy._ended) == 5 and set(np.round(policy._ended, 3)) <= set(np.round(latest[-12:], 3))


def test_with_too_few_samples_the_order_is_that_of_las() -> None:
    jobs, cluster = mixture(2), Cluster.uniform(3, 8)
    las = simulate(jobs, cluster, "tiresias-las:limits=200,1000").jobs
    assert simulate(jobs, cluster, "tiresias-gittins:limits=200,1000:least=1000").jobs.equals(las)
    assert not simulate(jobs, cluster, "tiresias-gittins:limits=200,1000").jobs.equals(las)


# -- places ----------------------------------------------------------------------------------------------------


def test_skewed_models_are_consolidated() -> None:
    kinds = ("rigid", "vgg-16@32", "ResNet-50 @64", "inception_v3", "alexnet", "bert")
    packed, anywhere, usual = Place.CONSOLIDATE | Place.STRICT, Place.FIRST_FIT, Place.AS_USUAL

    def codes(spec: str) -> list[int]:
        policy = create(spec)
        n = len(kinds)
        return policy.place(view_of(policy, ONE, {"kind": np.arange(n), "gpus": np.ones(n)}, kinds=kinds)).tolist()

    assert codes("tiresias-las") == [usual, packed, anywhere, anywhere, packed, usual]
    assert codes("tiresias-las:unknown_skew=0.9") == [packed, packed, anywhere, anywhere, packed, packed]
    assert codes("tiresias-gittins:unknown_skew=0") == [anywhere, packed, anywhere, anywhere, packed, anywhere]
    assert codes("tiresias-las:pack_limit=0.7") == [usual, packed, anywhere, anywhere, anywhere, usual]
    assert codes("tiresias-las:pack_limit=0.1") == [usual, packed, packed, packed, packed, usual]


# -- contract --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        "tiresias-las:limits=20",
        "tiresias-las:limits=5,20:promote=1",
        "tiresias-las:limits=20:authors=true",
        "tiresias-gittins:limits=20:least=3",
        "tiresias-gittins:limits=20:least=3:quantum=best:promote=0.5",
    ],
)
def test_they_keep_the_contract(spec: str) -> None:
    assert check_policy(spec).unread == ()


@pytest.mark.parametrize(
    "spec",
    [
        "tiresias-las:limits=200,1000:promote=1",
        "tiresias-las:limits=200:authors=true",
        "tiresias-gittins:limits=200:least=5",
    ],
)
def test_a_restart_makes_no_difference(spec: str) -> None:
    def run(restarts: bool) -> Result:
        engine = Engine(Trace.of_jobs(mixture(3)), Cluster.uniform(3, 8), create(spec), Settings.ideal())
        asked = 0
        while engine.advance():
            asked += 1
            if restarts and asked % 7 == 0:
                told = json.loads(json.dumps(engine.policy.state(), allow_nan=False))
                engine.policy = create(spec)
                engine.policy.reset(engine.context)
                engine.policy.restore(told)
            engine.ask()
        return engine.result()

    plain = run(False)
    assert run(True).events.equals(plain.events)
    assert (plain.events["kind"] == EventKind.PREEMPT).any()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tiresias-las:limits=a", "limits must be numbers"),
        ("tiresias-las:limits=5,5", "limits must be positive and rise"),
        ("tiresias-las:limits=0,5", "limits must be positive and rise"),
        ("tiresias-las:promote=-1", "promote must be a number ≥ 0"),
        ("tiresias-las:pack_limit=inf", "pack_limit must be a number ≥ 0"),
        ("tiresias-las:unknown_skew=2", "unknown_skew must be ≤ 1"),
        ("tiresias-las:authors=true:promote=1", "promote must be 0 with authors=true"),
        ("tiresias-gittins:window=0", "window must be ≥ 1"),
        ("tiresias-gittins:least=0", "least must be ≥ 1"),
        ("tiresias-gittins:quantum=small", "quantum must be 'limit' or 'best'"),
        ("tiresias-gittins:history=nowhere.csv", "'nowhere.csv' does not exist"),
        ("tiresias-gittins:authors=true", "needs history=FILE"),
    ],
)
def test_nonsense_is_refused(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        create(spec)


@pytest.mark.parametrize("text", ["", "gpu_s\n", "gpu_s\n-3", "gpu_s\nnan", "1\nx"])
def test_a_history_of_nonsense_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError, match="must"):
        create(f"tiresias-gittins:history={tmp_path / 'bad.csv'}")
