"""Gavel's programs on problems whose optimum is known, and its policies on small clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hypothesis
import numpy as np
import pytest
from by_hand import finish, simulate, starts
from hypothesis import strategies as st

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.errors import InputError
from argosy.perf import catalogue
from argosy.perf.measured_speeds import Point, TableModel
from argosy.policies.base import Floats, Place, create, decides
from argosy.policies.gavel.allocation import Problem
from argosy.policies.gavel.fairness import isolated
from argosy.policies.gavel.linear_program import fairest, water_level
from argosy.policies.gavel.pairs import distribute, fairest_with_pairs
from argosy.policies.gavel.prices import Market, largest
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

TWO_TYPES = Cluster((Node("fast", "v100", 1), Node("slow", "k80", 1)))


def problem(speed: Any, capacity: Any = (1, 1), gpus: Any = None, **columns: Any) -> Problem:
    speed = np.array(speed, float)
    n = len(speed)
    more = {name: np.array(values, float) for name, values in columns.items()}
    return Problem(
        speed,
        np.ones(n) if gpus is None else np.array(gpus, float),
        np.ones(n),
        np.zeros(n, np.int64),
        np.arange(n),
        np.array(capacity, float),
        np.arange(speed.shape[1]),
        more,
    )


def policy(spec: str, **context: Any) -> Any:
    """A policy that has been reset for two GPU types."""
    chosen: Any = create(spec)
    engine = Engine(Trace.of_jobs([Job("a", 0, 1, 1)]), TWO_TYPES, chosen, Settings.ideal())
    chosen.reset(replace(engine.context, **context))
    return chosen


# Worked examples

THREE = [[40, 10], [12, 4], [100, 50]]
TWO = [[4, 1], [2, 1]]


def test_max_min_of_three_jobs() -> None:
    given = problem(THREE)
    shares, t = fairest(given.speed, given.gpus, given.equal_speed(), given.capacity, given.column_type)
    assert shares == pytest.approx(np.array([[0.4545, 0], [0.4545, 0.0909], [0.0909, 0.9091]]), abs=1e-4)
    assert t == pytest.approx(0.7273, abs=1e-4)  # an equal split, a third of each, is worth 2/3
    assert t / (2 / 3) == pytest.approx(1.09, abs=0.01)
    assert policy("gavel-max-min").solve(given) == pytest.approx(shares)


def test_max_min_of_two_jobs_is_an_equal_split() -> None:
    given = problem(TWO)
    shares, t = fairest(given.speed, given.gpus, given.equal_speed(), given.capacity, given.column_type)
    assert shares == pytest.approx(np.full((2, 2), 0.5)) and t == pytest.approx(1.0)


def test_makespan_of_two_jobs() -> None:
    given = problem(TWO, left_s=[1000, 1000])
    shares = policy("gavel-makespan").solve(given)
    assert shares == pytest.approx(np.array([[0.25, 0.75], [0.75, 0.25]]))
    assert 1000 / (given.speed * shares).sum(axis=1) == pytest.approx(np.full(2, 571.4), abs=0.1)
    assert 1000 / (given.speed * 0.5).sum(axis=1).min() == pytest.approx(666.7, abs=0.1)


def test_finish_time_fairness_of_two_jobs() -> None:
    given = problem(TWO, left_s=[1000, 1000], age_s=[100, 0])
    ftf = policy("gavel-ftf")
    ftf._before = {0: (50.0, 1000.0, 1.0)}  # job 0 would have run for 50 s on a part of its own
    shares = ftf.solve(given)
    assert shares == pytest.approx(np.array([[0.5659, 0.4341], [0.4341, 0.5659]]), abs=1e-4)
    alone = np.array([50, 0]) + 1000 / (given.speed * isolated(given)).sum(axis=1)
    ratio = (np.array([100, 0]) + 1000 / (given.speed * shares).sum(axis=1)) / alone
    assert ratio == pytest.approx(np.full(2, 1.046), abs=1e-3)


# Programs


def random_problem(jobs: int, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    base = rng.uniform(0.5, 5, (26, 3)) * (rng.uniform(0, 1, (26, 3)) > 0.1)
    gpus = rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05])
    gpus[0] = 1
    speed = base[rng.integers(26, size=jobs)]
    return replace(problem(speed, (36, 36, 36), gpus), columns={"left_s": rng.lognormal(8, 1, jobs)})


def check_feasible(given: Problem, shares: Floats) -> None:
    assert (shares >= 0).all() and (shares.sum(axis=1) <= 1 + 1e-6).all()
    assert (shares[given.speed == 0] == 0).all()
    assert ((given.gpus[:, None] * shares).sum(axis=0) <= given.capacity + 1e-5).all()


@pytest.mark.parametrize("name", ["max-min", "makespan", "throughput", "hierarchical"])
def test_shares_can_be_had(name: str) -> None:
    given = random_problem(200)
    check_feasible(given, policy(f"gavel-{name}").solve(given))


def test_grouping_like_jobs_keeps_the_optimum() -> None:
    given = random_problem(200)
    due = given.equal_speed() / given.gpus
    _, together = fairest(given.speed, given.gpus, due, given.capacity, given.column_type)
    apart = due * (1 + 1e-9 * np.arange(200))  # now no two are alike
    _, single = fairest(given.speed, given.gpus, apart, given.capacity, given.column_type)
    assert together == pytest.approx(single, rel=1e-5)


def test_the_rest_of_the_time_goes_where_it_adds_most() -> None:
    """With two jobs of one GPU and plenty of room, each job gets all the time on its best type."""
    shares, _ = fairest(np.array([[4.0, 1.0], [1.0, 3.0]]), np.ones(2), np.ones(2), np.array([4.0, 4.0]), np.arange(2))
    assert shares == pytest.approx(np.eye(2))


@pytest.mark.parametrize("parts, kept", [(2, 0.97), (4, 0.9)])
def test_solving_in_parts_loses_little(parts: int, kept: float) -> None:
    given = random_problem(400)
    due = given.equal_speed() / given.gpus
    whole, split = policy("gavel-max-min"), policy(f"gavel-max-min:partitions={parts}")
    worth = []
    for chosen in (whole, split):
        chosen._problem = lambda *_: given
        shares = chosen.share(None, given.index, given.speed)
        check_feasible(given, shares)
        worth.append(((given.speed * shares).sum(axis=1) / due)[due > 0].min())
    assert kept * worth[0] <= worth[1] <= worth[0] * (1 + 1e-6)


def test_water_level() -> None:
    gpus, weight = np.array([1.0, 1.0, 4.0]), np.array([1.0, 2.0, 1.0])
    assert water_level(gpus, weight, 2.0) == pytest.approx([0.5, 1.0, 0.125])
    assert water_level(gpus, weight, 100.0) == pytest.approx([1.0, 1.0, 1.0])
    assert water_level(gpus, weight, 4.0) == pytest.approx([1.0, 1.0, 0.5])


def test_the_program_agrees_with_the_water_level_where_types_are_alike() -> None:
    given = problem(np.ones((3, 2)), (1, 1), [1, 1, 4])
    agnostic = policy("gavel-max-min-agnostic")
    agnostic.capacity = given.capacity
    shares = agnostic.solve(given)
    level = water_level(given.gpus, given.weight, 2.0)
    assert shares.sum(axis=1) == pytest.approx(level)
    _, t = fairest(given.speed, given.gpus, given.equal_speed() / given.gpus, given.capacity, given.column_type)
    assert (level * given.gpus).min() == pytest.approx(t)


def test_throughput_takes_the_fastest() -> None:
    assert policy("gavel-throughput").solve(problem(TWO)) == pytest.approx(np.eye(2))


def test_cost_buys_the_cheapest_work_that_keeps_deadlines() -> None:
    """A v100 is twice as fast and costs four times as much: without a deadline it is not worth it."""
    alone = problem([[2, 1]], (1, 1), left_s=[100], age_s=[0], due_s=[np.inf])
    cost = policy("gavel-cost:prices=v100=4/k80=1")
    assert cost.solve(alone) == pytest.approx(np.array([[0, 1]]))
    late = replace(alone, columns=alone.columns | {"due_s": np.array([80.0])})
    assert cost.solve(late) == pytest.approx(np.array([[0.25, 0.75]]))  # 1.25 of work a second
    hopeless = replace(alone, columns=alone.columns | {"due_s": np.array([10.0])})
    assert cost.solve(hopeless) == pytest.approx(np.array([[0, 1]]))


def test_water_filling_between_queues() -> None:
    """Queue 1 has twice the weight of queue 0, which has two jobs; a job at full time leaves the rest to others."""
    given = replace(problem(np.ones((3, 1)), [2]), queue=np.array([0, 0, 1]))
    weights = {"queue_weights": np.array([1.0, 2.0])}
    assert policy("gavel-hierarchical", **weights).solve(given)[:, 0] == pytest.approx([0.5, 0.5, 1.0])
    tight = replace(given, capacity=np.array([1.0]))
    assert policy("gavel-hierarchical", **weights).solve(tight)[:, 0] == pytest.approx([1 / 6, 1 / 6, 2 / 3])
    inner = policy("gavel-hierarchical:inner=fifo", **weights).solve(tight)[:, 0]
    assert inner == pytest.approx([1 / 3, 0, 2 / 3], abs=1e-6)


def test_isolated_jobs_have_a_part_each() -> None:
    given = problem(np.ones((4, 2)), (2, 4), [1, 1, 2, 8])
    assert isolated(given) == pytest.approx(np.array([[1 / 3, 2 / 3], [1 / 3, 2 / 3], [0.25, 0.5], [1 / 16, 1 / 8]]))


def test_pairs_are_worth_it_where_they_are_faster_together() -> None:
    """Two jobs on one GPU: alone each has half of it; together each runs at 0.8."""
    kind, beside = np.array([0, 1]), np.array([[1.0, 0.8], [0.8, 1.0]])
    arguments = (np.ones((2, 1)), np.ones(2), np.ones(2), kind)
    shares, pairs, t = fairest_with_pairs(*arguments, beside, np.ones(1), np.arange(1))
    assert t == pytest.approx(0.8) and list(pairs) == [(0, 1)]
    assert pairs[0, 1] == pytest.approx([1.0]) and shares == pytest.approx(np.zeros((2, 1)))
    _, none, alone = fairest_with_pairs(*arguments, 0.5 * beside, np.ones(1), np.arange(1))
    assert alone == pytest.approx(0.5) and not none


def test_pairs_of_like_jobs_and_of_unequal_sizes() -> None:
    beside = np.array([[0.9]])
    _, pairs, t = fairest_with_pairs(
        np.ones((3, 1)), np.ones(3), np.ones(3), np.zeros(3, np.int64), beside, np.ones(1), np.arange(1)
    )
    assert t == pytest.approx(0.6) and len(pairs) == 3  # 2 · 0.9 of work a second, for three
    _, apart, _ = fairest_with_pairs(
        np.ones((2, 1)), np.array([1.0, 2.0]), np.ones(2), np.zeros(2, np.int64), beside, np.ones(1) * 2, np.arange(1)
    )
    assert not apart


def test_the_time_of_two_groups_is_handed_out_evenly() -> None:
    pairs: dict[tuple[int, int], Floats] = {}
    distribute(np.array([0, 1, 2]), np.array([3, 4]), 1.2, 0, 1, pairs)
    got = np.zeros(5)
    for (a, b), share in pairs.items():
        got[[a, b]] += share[0]
    assert got == pytest.approx([0.4, 0.4, 0.4, 0.6, 0.6])


# Policies on small clusters


@pytest.fixture
def networks() -> Iterator[None]:
    """Two networks with known speeds: one is much faster on a v100, the other hardly."""
    with catalogue.borrowed():
        for name, v100, k80 in (("gavel-test-picky", 10.0, 1.0), ("gavel-test-easy", 4.0, 3.6)):
            points = [Point("v100", 1, 0, None, v100), Point("k80", 1, 0, None, k80)]
            catalogue.register(TableModel.of(name, points, unit="steps"))
        yield


def run(jobs: list[Job], spec: str, cluster: Cluster = TWO_TYPES, **settings: Any) -> Any:
    return simulate(jobs, cluster, spec, **({"perf": "auto"} | settings))


def test_a_job_goes_where_it_is_comparatively_fast(networks: None) -> None:
    jobs = [Job("easy", 0, 900, 1, model="gavel-test-easy"), Job("picky", 0, 900, 1, model="gavel-test-picky")]
    assert finish(run(jobs, "gavel-makespan")) == [1000.0, 900.0]  # the easy one has the k80, at 0.9 of the speed
    assert finish(run(jobs, "gavel-throughput")) == [1000.0, 900.0]
    first_come = finish(run(jobs, "gavel-fifo"))
    assert first_come[0] == 900.0  # whoever comes first has the v100 …
    assert first_come[1] == 900 + 900 * 0.9  # … and the other the k80 until it is free


@pytest.mark.parametrize("objective", ["max-min", "ftf", "makespan"])
def test_knowing_the_types_pays(objective: str, networks: None) -> None:
    models = ("gavel-test-picky", "gavel-test-easy")
    jobs = [Job(f"j{i}", 600.0 * i, 7200, 1, model=models[i % 2]) for i in range(12)]
    jct = [
        np.mean(np.subtract(finish(run(jobs, name)), 600.0 * np.arange(12)))
        for name in (f"gavel-{objective}", f"gavel-{objective}-agnostic")
    ]
    assert jct[0] < 0.9 * jct[1]


def test_a_type_on_which_a_job_does_not_run_is_never_given() -> None:
    jobs = [Job(f"j{i}", 0, 1000, 1, gpu_type="k80") for i in range(2)]
    for name in ("max-min", "max-min-agnostic", "fifo", "isolated", "allox"):
        assert sorted(finish(run(jobs, f"gavel-{name}")))[1] == 2000.0  # they share one GPU; the v100 idles


def test_fifo_blocks_behind_the_first_that_does_not_fit() -> None:
    jobs = [Job("a", 0, 50, 1), Job("wide", 1, 50, 2), Job("b", 2, 10, 1)]
    assert starts(run(jobs, "gavel-fifo", Cluster.uniform(1, 2))) == [0.0, 50.0, 100.0]


def test_fifo_without_knowledge_keeps_its_type(networks: None) -> None:
    jobs = [Job(f"j{i}", i, 900, 1, model="gavel-test-picky") for i in range(2)]
    times = finish(run(jobs, "gavel-fifo-agnostic"))
    assert sorted(times) in ([900.0, 9001.0], [901.0, 9000.0])  # one of them stays on the k80, though the v100 is free


def test_allox_runs_short_jobs_first_and_preempts_nobody() -> None:
    jobs = [Job("running", 0, 100, 1), Job("long", 1, 50, 1), Job("short", 2, 10, 1)]
    assert starts(run(jobs, "gavel-allox", Cluster.uniform(1, 1))) == [0.0, 110.0, 100.0]


def test_queues_share_by_weight() -> None:
    """One GPU: queue a weighs three times as much as queue b, and its job receives three rounds of four."""
    cluster = Cluster((Node("n", "gpu", 1),), queues=(Queue("a", weight=3.0), Queue("b", weight=1.0)))
    jobs = [Job("one", 0, 36000, 1, queue="a"), Job("other", 0, 36000, 1, queue="b")]
    result = run(jobs, "gavel-hierarchical", cluster)
    assert finish(result)[0] == pytest.approx(48000, abs=1500) and finish(result)[1] == 72000.0


def test_two_jobs_share_a_gpu_when_that_is_faster() -> None:
    jobs = [Job(n, 0, 3600, 1, model=n, batch_size=16, cpus=2.0, memory_gib=8.0) for n in ("resnet-18", "a3c")]
    one_gpu = Cluster((Node("n", "v100", 1),))
    packed = run(jobs, "gavel-max-min:packing=true", one_gpu)
    assert starts(packed) == [0.0, 0.0]
    assert max(finish(packed)) < 0.9 * 7200 and max(finish(run(jobs, "gavel-max-min", one_gpu))) == 7200.0
    estimated = run(jobs, "gavel-max-min:packing=true:estimator=completion", one_gpu)
    assert max(finish(estimated)) < 0.9 * 7200
    hungry = [Job(n, 0, 3600, 1, model=n, batch_size=16, cpus=40.0) for n in ("resnet-18", "a3c")]
    assert max(finish(run(hungry, "gavel-max-min:packing=true", one_gpu))) == 7200.0  # the node has 64 CPUs


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(
    jobs=st.lists(
        st.tuples(
            st.integers(0, 20),  # submitted, in rounds
            st.sampled_from((300, 1500, 4000, 9000)),
            st.sampled_from((0.25, 0.5, 1, 1, 1, 2)),
            st.sampled_from(("resnet-18", "a3c", "resnet-50", "transformer", "lstm", "recoder")),
        ),
        min_size=4,
        max_size=20,
    ),
    nodes=st.lists(st.tuples(st.sampled_from(("v100", "k80")), st.sampled_from((1, 2, 4))), min_size=1, max_size=2),
    spec=st.sampled_from(("gavel-max-min", "gavel-makespan", "gavel-max-min:authors=true")),
)
@hypothesis.example(  # a job leaves its pair for another GPU of the same node, and its old partner gets another one
    jobs=[(0, 1500, 1, "resnet-50"), (0, 9000, 1, "recoder"), (0, 4000, 1, "lstm"), (0, 9000, 1, "resnet-18")],
    nodes=[("k80", 1)],
    spec="gavel-max-min",
)
def test_shares_and_pairs_of_any_jobs_can_be_placed(
    jobs: list[tuple[int, int, float, str]], nodes: list[tuple[str, int]], spec: str
) -> None:
    cluster = Cluster((Node("large", "v100", 2), *(Node(f"n{i}", kind, n) for i, (kind, n) in enumerate(nodes))))
    submitted = [
        Job(f"j{i}", 360.0 * at, lasts, gpus, model=model, batch_size=16, cpus=2.0, memory_gib=4.0)
        for i, (at, lasts, gpus, model) in enumerate(jobs)
    ]
    result = run(submitted, f"{spec}:packing=true", cluster)
    assert set(result.jobs["status"]) == {"completed"}


def test_estimates_that_only_packing_uses_and_other_nonsense() -> None:
    for spec, problem_ in (
        ("gavel-max-min:round_s=0", "round_s must be a time > 0"),
        ("gavel-fifo:min_interval_s=-1", "min_interval_s must be a time ≥ 0"),
        ("gavel-ftf:partitions=0", "partitions must be ≥ 1"),
        ("gavel-max-min:estimator=guess", "estimator must be one of oracle, completion"),
        ("gavel-max-min:measured=2", "measured must lie in 0..1"),
        ("gavel-max-min:packing=true:partitions=2", "packing cannot be combined"),
        ("gavel-max-min-agnostic:placement_aware=true", "placement_aware has no effect"),
        ("gavel-cost:prices=v100=free", "prices must be like"),
        ("gavel-hierarchical:inner=lifo", "inner must be one of fairness, fifo"),
        ("gavel-hierarchical:levels=0", "levels must be ≥ 1"),
        ("gavel-allox:alpha=2", "alpha must lie in 0..1"),
    ):
        with pytest.raises(InputError, match=problem_):
            create(spec)


def test_who_plans_and_who_places() -> None:
    assert decides(create("gavel-max-min")) == "order, size"
    assert decides(create("gavel-max-min:packing=true")) == "order, size, place"
    assert decides(create("gavel-max-min:placement_aware=true")) == "order, size"


def test_a_consolidated_column_asks_for_few_nodes() -> None:
    """On nodes of two GPUs a gang of two has both columns, a single job only the first, and one of three the second."""
    chosen: Any = create("gavel-max-min:placement_aware=true")
    jobs = [Job("pair", 0, 100, 2), Job("single", 0, 100, 1), Job("wide", 0, 100, 3)]
    engine = Engine(Trace.of_jobs(jobs), Cluster.uniform(4, 2, "v100"), chosen, Settings(overheads="none"))
    assert engine.advance()
    view = engine.view
    chosen.rank(view)
    speed = chosen.rounds.rates()
    assert (speed > 0).tolist() == [[True, True], [True, False], [False, True]]
    assert speed[0, 0] > speed[0, 1]
    assert chosen.size(view).places.tolist() == [Place.CONSOLIDATE + Place.STRICT] * 2 + [Place.AS_USUAL]
    result = Engine(Trace.of_jobs(jobs), engine.cluster, chosen, engine.settings).run()
    assert set(result.jobs["status"]) == {"completed"}


def test_prices_come_from_the_cluster_file() -> None:
    nodes = (Node("fast", "v100", 2, price_per_hour=5.0), Node("slow", "k80", 1, price_per_hour=0.5))
    for cluster, expected in ((Cluster(nodes), (2.5, 0.5)), (Cluster((*nodes, Node("new", "k80", 1))), ())):
        engine = Engine(Trace.of_jobs([Job("a", 0, 1, 1)]), cluster, create("gavel-cost"), Settings.ideal())
        assert engine.context.gpu_prices == expected


@pytest.mark.parametrize("spec", ["gavel-max-min-agnostic", "gavel-ftf", "gavel-max-min:packing=true"])
def test_a_restart_in_the_middle_changes_nothing(spec: str, networks: None) -> None:
    models = ("gavel-test-picky", "gavel-test-easy")
    jobs = [Job(f"j{i}", 700.0 * i, 3000, 1, model=models[i % 2]) for i in range(8)]

    def times(at: int) -> list[float]:
        engine = Engine(Trace.of_jobs(jobs), TWO_TYPES, create(spec), Settings.ideal(perf="auto"))
        asked = 0
        while engine.advance():
            asked += 1
            if asked == at:
                told = json.loads(json.dumps(engine.policy.state()))
                engine.policy = create(spec)
                engine.policy.reset(engine.context)
                engine.policy.restore(told)
            engine.ask()
        return finish(engine.result())

    usual = times(-1)
    assert all(times(at) == usual for at in (5, 13, 21))


def crowd(seed: int, jobs: int, types: int = 3) -> tuple[Any, Any, Any, Any]:
    """Speeds, GPUs, capacity and dues of many jobs that all differ."""
    rng = np.random.default_rng(seed)
    speed = rng.lognormal(0.0, 1.0, (jobs, types)) * (rng.random((jobs, types)) < 0.9)
    speed[:, 0] = np.maximum(speed[:, 0], 0.1)
    gpus, capacity = rng.choice([1.0, 2.0, 4.0], jobs), rng.integers(1, jobs, types).astype(float)
    return speed, gpus, capacity, rng.lognormal(8, 2, jobs)


@pytest.mark.parametrize("seed", range(12))
def test_prices_find_what_the_program_finds(seed: int) -> None:
    speed, gpus, capacity, due = crowd(seed, 40, 2 + seed % 3)
    types = np.arange(len(capacity))
    _, t = fairest(speed, gpus, due, capacity, types)
    market = Market(speed, gpus, np.ones(40), capacity, types)
    share, found = largest(market, lambda t: t * due, 0.0, float((speed.max(axis=1) / due).min()))
    assert found == pytest.approx(t, rel=1e-4)
    assert ((speed * share).sum(axis=1) >= found * due * (1 - 1e-5)).all()
    assert (market.used(share) <= capacity * (1 + 1e-9)).all() and (share.sum(axis=1) <= 1 + 1e-9).all()
    assert (share >= 0).all() and not share[speed == 0].any()


def test_nothing_that_is_left_over_is_lost() -> None:
    """Without a shortage of GPUs every job runs all the time; with one, all GPUs are in use."""
    speed, gpus, capacity, due = crowd(1, 300)
    share, _ = fairest(speed, gpus, due, 1e6 * capacity, np.arange(3))
    assert share.sum(axis=1) == pytest.approx(1.0)
    share, _ = fairest(speed, gpus, due, capacity / 1e3, np.arange(3))
    assert gpus @ share == pytest.approx(capacity / 1e3, rel=1e-4)


def test_the_fairest_shares_do_not_give_way_to_more_work() -> None:
    """A job that is due a thousand times as much as another has the GPU to itself a thousand times as long."""
    share, t = fairest(np.ones((2, 1)), np.ones(2), np.array([1.0, 1e3]), np.ones(1), np.zeros(1, np.int64))
    assert share[:, 0] == pytest.approx([1 / 1001, 1000 / 1001], rel=1e-3) and t == pytest.approx(1 / 1001)
