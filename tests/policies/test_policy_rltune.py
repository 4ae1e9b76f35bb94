"""RLTune: the worked numbers of its specification, its ways against plain enumeration, and its rules by hand."""

from __future__ import annotations

from itertools import combinations, permutations, product

import numpy as np
import pytest
from by_hand import finish, gpus_by_node, simulate, starts, view_of

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.errors import InputError
from argosy.mechanism.plan import Why
from argosy.policies.base import create
from argosy.policies.rltune.features import features
from argosy.policies.rltune.mapping import Program, Request, choose_way, rise, value_of, ways_of_tiers
from argosy.policies.rltune.network import INPUTS, SHAPES, Actor, softmax
from argosy.policies.rltune.policy import RlTune
from argosy.policies.rltune.ways import BALANCE, DEFRAGMENT, Way, find_best, find_first
from argosy.workload.trace import Job
from argosy.zoo import Weights, find, write

WAIT, SIZE, CAN_START = 0, 1, 6


def drawn(seed: int) -> Actor:
    rng = np.random.default_rng(seed)
    return Actor({name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()})


def preferring(feature: int, sign: float = 1.0) -> Actor:
    """An actor whose score is one feature, or its negative; features are not negative, so nothing is rectified."""
    arrays = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    arrays["w1"][feature, 0] = arrays["w2"][0, 0] = arrays["w3"][0, 0] = 1.0
    arrays["w4"][0, 0] = sign
    return Actor(arrays)


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# -- the worked numbers of the specification ---------------------------------------------------------------------


def test_the_features_of_the_specification() -> None:
    """Free 20 of 48 GPUs, 8 a node; a job of 4 has waited for 3 h, and the others ask for 12."""
    (row,) = features(
        column(3 * 3600),
        column(4),
        column(8),
        column(20),
        column(48),
        column(12),
        column(2),
        column(6),
        np.array([[2, 1]]),
    )
    assert row[:4] == pytest.approx([0.25, 0.5, 0.00417, 0.5417], abs=1e-4)
    assert row[4:] == pytest.approx([2 / 6, 1 - 1e-5, 1.5 * (1 - 1e-5)])


@pytest.mark.parametrize(
    ("ways", "part", "starts_now"), [((0, 0), 1e-5, 1e-5), ((1, 0), 1 / 3, 1.0), ((2, 0), 2 / 3, 1.5)]
)
def test_the_features_of_ways(ways: tuple[int, int], part: float, starts_now: float) -> None:
    one = column(1)
    (row,) = features(one, one, one, one, one, one, one, one, np.array([ways]))
    assert row[5:] == pytest.approx([part, starts_now], abs=2e-5)


def test_one_job_is_mapped_with_the_next_one_in_mind() -> None:
    """G = 4, free (4, 3), a job of 2 and then one of 4: the released program takes n0, the intended one n1."""
    free = gpus = ints(4, 3)
    node_gpus = ints(4, 4)
    ways = ways_of_tiers(gpus, free, node_gpus, 1, 2)
    assert ways == [{1: 2}, {0: 2}]  # (4, 1) and (2, 3) are left
    assert [value_of(way, free, node_gpus, 4.0, released=True) for way in ways] == pytest.approx([0.4, 0.3])
    assert [value_of(way, free, node_gpus, 4.0) for way in ways] == pytest.approx([1.4, 2.3])
    same_type = ints(0, 0)
    assert choose_way(gpus, free, same_type, node_gpus, ints(1), 2, 4.0, True) == {0: 2}
    assert choose_way(gpus, free, same_type, node_gpus, ints(1), 2, 4.0, False) == {1: 2}


def test_three_jobs_are_mapped_at_once() -> None:
    """GPUs 4, 2, 2 with probabilities .5, .3, .2 on free (4, 3): J1 → n0, J2 → n1, worth .7."""
    jobs = [request(4, 0.5, 4, 3), request(2, 0.3, 4, 3), request(2, 0.2, 4, 3)]
    ways, value = Program(jobs, ints(4, 3), ints(4, 4), ints(0, 0), np.full((2, 2), 99.0)).solve()
    assert ways == [{0: 4}, {1: 2}, None] and value == pytest.approx(0.7)


def request(gpus: int, value: float, *usable: int, units: tuple[float, float] = (1.0, 1.0)) -> Request:
    return Request(gpus, value, ints(*usable), ints(1), np.array(units))


# -- ways, against plain enumeration -----------------------------------------------------------------------------


def all_ways(usable: np.ndarray, used: int, gpus: int) -> list[Way]:
    found = []
    for nodes in combinations(np.flatnonzero(usable > 0).tolist(), used):
        for parts in product(*(range(1, usable[n] + 1) for n in nodes)):
            if sum(parts) == gpus:
                found.append(dict(zip(nodes, parts, strict=True)))
    return found


def costs(way: Way, free: np.ndarray, node_gpus: np.ndarray) -> tuple[int, float, float]:
    """Rise in partial nodes, in their waste, and in the variance of utilisation."""
    after = free.copy()
    for node, gpus in way.items():
        after[node] -= gpus

    def waste(left: np.ndarray) -> float:
        return float(np.where((left > 0) & (left < node_gpus), node_gpus - left, 0).sum())

    variance = np.var(1 - after / node_gpus) - np.var(1 - free / node_gpus)
    return rise(way, free, node_gpus), waste(after) - waste(free), round(float(variance), 9)


@pytest.mark.parametrize("seed", range(25))
def test_the_best_ways_are_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    node_gpus = np.full(int(rng.integers(1, 6)), 4)
    free = rng.integers(0, 5, len(node_gpus))
    usable = np.minimum(free, rng.integers(2, 5, len(node_gpus)))
    for gpus, used in product(range(1, 9), (1, 2, 3)):
        options = all_ways(usable, used, gpus)
        first = find_first(usable, used, gpus)
        best = [find_best(usable, free, node_gpus, used, gpus, order) for order in (DEFRAGMENT, BALANCE)]
        if not options:
            assert first is None and best == [None, None]
            continue
        assert first in options and sorted(first) == min(sorted(way) for way in options)
        scored = [costs(way, free, node_gpus) for way in options]
        assert costs(best[0], free, node_gpus) == min(scored)
        fragments, waste, balance = costs(best[1], free, node_gpus)
        assert (balance, fragments, waste) == min((c, a, b) for a, b, c in scored)


@pytest.mark.parametrize("seed", range(25))
def test_ways_are_counted_by_tier(seed: int) -> None:
    """A way is what is free before and after on its nodes; tier 2 must not raise the number of partial nodes."""
    rng = np.random.default_rng(seed)
    cluster = Cluster.uniform(int(rng.integers(1, 6)), gpus=4, cpus=64)
    free = rng.integers(0, 5, len(cluster.nodes))
    node_gpus = np.full(len(free), 4)
    for gpus in range(1, 10):
        policy = RlTune(drawn(seed))
        demand = {"gpus": [float(gpus)], "min_gpus": [float(gpus)], "cpus": [1.0], "memory_gib": [0.0]}
        view = view_of(policy, cluster, demand, nodes={"free": free})
        room, kinds = room_of(policy, view)
        fewest = -(-gpus // 4)
        tier1 = {frozenset_of(way, free) for way in all_ways(free, fewest, gpus)}
        tier2 = [way for way in all_ways(free, fewest + 1, gpus) if rise(way, free, node_gpus) <= 0]
        expected = [min(len(tier1), 2), min(len(tier2), 1)] if fewest <= len(free) else [0, 0]
        assert room.count_ways(kinds).tolist() == [expected]


def frozenset_of(way: Way, free: np.ndarray) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((int(free[node]), gpus) for node, gpus in way.items()))


def room_of(policy: RlTune, view: object) -> tuple[object, np.ndarray]:
    from argosy.policies.rltune.pools import Room

    kinds = policy._pools.kinds_of(view, np.arange(len(view.jobs)))  # type: ignore[attr-defined, arg-type]
    return Room(view, policy._pools), kinds  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("released", [False, True])
def test_the_program_for_one_job_is_solved_exactly(seed: int, released: bool) -> None:
    """HiGHS, given the program as it is written, finds the value that computing each way's value finds."""
    import highspy

    rng = np.random.default_rng(seed)
    node_gpus = np.full(4, 4)
    free = rng.integers(1, 5, 4)
    gpus, following = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    ways = ways_of_tiers(free, free, node_gpus, -(-gpus // 4), gpus)
    if not ways:
        pytest.skip("the job has no way")
    after = np.array([[free[n] - way.get(n, 0) for n in range(4)] for way in ways], float)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    x = [solver.addBinary() for _ in ways]
    f, y = [solver.addBinary() for _ in range(4)], [solver.addBinary() for _ in range(4)]
    e, h = [solver.addBinary() for _ in range(4)], [solver.addBinary() for _ in range(4)]
    most, least = solver.addVariable(0, 9), solver.addVariable(0, 9)
    solver.addConstr(sum(x) == 1)
    for n in range(4):
        left = sum(after[w, n] * x[w] for w in range(len(ways)))
        solver.addConstr(left <= most)
        solver.addConstr(left >= least)
        solver.addConstr(left >= following * y[n])
        if released:  # a partial node where f is 1, but not the reverse
            solver.addConstr(left >= 1 - 14 * (1 - f[n]))
            solver.addConstr(left <= 3 + 14 * (1 - f[n]))
        else:  # f is 1 unless the node is wholly free or wholly in use
            solver.addConstr(f[n] + e[n] + h[n] >= 1)
            solver.addConstr(left >= 4 * e[n])
            solver.addConstr(left <= 4 * (1 - h[n]))
    solver.minimize(1.0 * sum(f) + 0.3 * (most - least) - 0.5 * sum(y))
    ours = min(value_of(way, free, node_gpus, float(following), released=released) for way in ways)
    assert solver.getInfo().objective_function_value == pytest.approx(ours, abs=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_the_program_for_three_jobs_finds_the_best_of_all(seed: int) -> None:
    """Single-node jobs on three nodes: every assignment is tried."""
    rng = np.random.default_rng(seed)
    free, node_gpus = rng.integers(0, 5, 3), np.full(3, 4)
    sizes, chances = rng.integers(1, 3, 3), rng.dirichlet(np.ones(3))
    jobs = [Request(int(g), float(p), free.copy(), ints(1), np.zeros(2)) for g, p in zip(sizes, chances, strict=True)]
    best = -np.inf
    placings = [[None, *all_ways(free, 1, int(g)), *all_ways(free, 2, int(g))] for g in sizes]
    for ways in product(*placings):
        left = free.copy()
        for way in ways:
            for node, gpus in (way or {}).items():
                left[node] -= gpus
        if left.min() >= 0:
            worth = sum(p for p, way in zip(chances, ways, strict=True) if way)
            best = max(best, worth - 0.1 * ((left > 0) & (left < 4)).sum())
    found, value = Program(jobs, free, node_gpus, ints(0, 0, 0), np.full((3, 2), 99.0)).solve()
    assert value == pytest.approx(best)
    left = free.copy()
    for way in found:
        for node, gpus in (way or {}).items():
            left[node] -= gpus
    assert left.min() >= 0


def test_jobs_of_one_program_share_the_cpus_of_a_node() -> None:
    """One node, 4 GPUs and 4 CPUs: two jobs of 2 GPUs with 2 CPUs each GPU do not both fit."""
    jobs = [request(2, 0.6, 2, units=(2.0, 0.0)), request(2, 0.4, 2, units=(2.0, 0.0))]
    ways, value = Program(jobs, ints(4), ints(4), ints(0), np.array([[4.0, 99.0]])).solve()
    assert ways == [{0: 2}, None] and value == pytest.approx(0.5)


# -- the rules, by hand ------------------------------------------------------------------------------------------

ONE_NODE = Cluster.uniform(1, gpus=4)


def test_a_picked_job_is_waited_for() -> None:
    """At 1 `large` is picked, being alone; `small` comes at 2 and would fit, but nothing overtakes."""
    jobs = [Job("running", 0, 10, 3), Job("large", 1, 5, 4), Job("small", 2, 5, 1)]
    result = simulate(jobs, ONE_NODE, RlTune(preferring(CAN_START)))
    assert finish(result) == [10, 15, 20]


def test_the_network_decides_whom() -> None:
    """Both come at 1: one actor takes the job that can start, another the larger one, a third the smaller one."""
    jobs = [Job("running", 0, 10, 3), Job("large", 1, 5, 4), Job("small", 1, 5, 1)]
    assert finish(simulate(jobs, ONE_NODE, RlTune(preferring(CAN_START)))) == [10, 15, 6]
    assert finish(simulate(jobs, ONE_NODE, RlTune(preferring(SIZE)))) == [10, 15, 20]
    assert finish(simulate(jobs, ONE_NODE, RlTune(preferring(SIZE, -1)))) == [10, 15, 6]


def test_ties_go_to_the_base_order() -> None:
    nobody = Actor({name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()})
    jobs = [Job("running", 0, 10, 4), Job("long", 1, 9, 4), Job("short", 2, 3, 2)]
    assert starts(simulate(jobs, ONE_NODE, RlTune(nobody))) == [0, 10, 19]
    jobs = [Job("running", 0, 10, 4), Job("long", 1, 9, 4), Job("short", 1, 3, 2)]
    assert starts(simulate(jobs, ONE_NODE, RlTune(nobody, base="sjf"))) == [0, 13, 10]
    assert starts(simulate(jobs, ONE_NODE, RlTune(nobody, base="slurm"))) == [0, 13, 10]
    assert starts(simulate(jobs, ONE_NODE, RlTune(nobody, base="f1"))) == [0, 13, 10]


def test_only_so_many_jobs_are_shown() -> None:
    """The actor likes small jobs, but sees one job only: the first of the base order."""
    jobs = [Job("running", 0, 10, 4), Job("large", 1, 5, 4), Job("small", 1, 5, 1)]
    assert starts(simulate(jobs, ONE_NODE, RlTune(preferring(SIZE, -1), shown=1))) == [0, 10, 15]
    assert starts(simulate(jobs, ONE_NODE, RlTune(preferring(SIZE, -1)))) == [0, 15, 10]


def test_a_job_waits_for_as_few_nodes_as_it_needs() -> None:
    """Two GPUs are free on each of two nodes: a job of 4 waits for a whole node."""
    jobs = [Job("a", 0, 10, 2), Job("b", 0, 20, 4), Job("c", 1, 5, 4)]
    cluster = Cluster.uniform(2, gpus=4)
    result = simulate(jobs, cluster, RlTune(preferring(WAIT)))
    assert starts(result) == [0, 0, 10] and gpus_by_node(result)["c"] == {0: 4}


def test_tier_2_is_used_by_the_program() -> None:
    """Free (1, 1, 4): a job of 2 fills up the two partial nodes, so that the next job of 4 has a node to itself."""
    free = ints(1, 1, 4)
    assert choose_way(free, free, ints(0, 0, 0), ints(4, 4, 4), ints(1), 2, 4.0, False) == {0: 1, 1: 1}
    jobs = [Job("a", 0, 100, 3), Job("b", 0, 100, 3), Job("c", 1, 10, 2), Job("d", 1, 10, 4)]
    cluster = Cluster.uniform(3, gpus=4)
    by_number = simulate(jobs, cluster, RlTune(preferring(SIZE, -1)))
    assert gpus_by_node(by_number)["c"] == {2: 2} and starts(by_number)[3] == 11
    assert starts(simulate(jobs, cluster, RlTune(preferring(SIZE, -1), mapping="milp")))[3] == 1


@pytest.mark.parametrize("mapping", ["first", "milp", "milp3"])
def test_gangs_do_not_mix_gpu_types(mapping: str) -> None:
    nodes = (Node("a", "v100", 4, 32.0), Node("b", "p100", 4, 32.0), Node("c", "p100", 2, 32.0))
    jobs = [
        Job("a", 0, 10, 2),
        Job("b", 0, 10, 6),
        Job("c", 1, 10, 6),
        Job("d", 1, 10, 0.5),
        Job("e", 1, 10, 0, cpus=1.0),
    ]
    result = simulate(jobs, Cluster(nodes), RlTune(preferring(WAIT), mapping=mapping))
    assert gpus_by_node(result)["b"] == gpus_by_node(result)["c"] == {1: 4, 2: 2}
    assert set(result.jobs["status"]) == {"completed"}


def test_shares_meet_on_a_device() -> None:
    jobs = [Job("a", 0, 10, 0.5), Job("b", 1, 10, 0.5), Job("c", 2, 10, 0.5)]
    assert starts(simulate(jobs, Cluster.uniform(1, gpus=1), RlTune(preferring(WAIT)))) == [0, 1, 10]


def test_an_elastic_job_gets_what_it_asks_for_or_all_there_is() -> None:
    jobs = [Job("a", 0, 10, 2, min_gpus=1, max_gpus=4)]
    assert gpus_by_node(simulate(jobs, ONE_NODE, RlTune(preferring(WAIT))))["a"] == {0: 2}
    policy = RlTune(preferring(WAIT))  # as when other nodes are down
    asked = {"gpus": [8.0], "min_gpus": [1.0], "cpus": [8.0], "memory_gib": [0.0]}
    plan = policy.plan(view_of(policy, ONE_NODE, asked))
    assert plan.placements[0].gpus == {0: 4}


def test_a_job_whose_queue_is_full_blocks_nobody() -> None:
    cluster = Cluster(ONE_NODE.nodes, queues=(Queue("small", 1.0, 2.0), Queue("large", 1.0)))
    jobs = [Job("a", 0, 10, 2, queue="small"), Job("b", 1, 10, 2, queue="small"), Job("c", 2, 3, 2, queue="large")]
    assert starts(simulate(jobs, cluster, RlTune(preferring(WAIT)))) == [0, 10, 2]


def test_it_says_why_jobs_wait() -> None:
    policy = RlTune(preferring(SIZE))
    asked = {"gpus": [4.0, 1.0], "min_gpus": [4.0, 1.0], "cpus": [0.0, 0.0], "memory_gib": [0.0, 0.0]}
    view = view_of(policy, ONE_NODE, asked, nodes={"free": np.array([3])})
    for _ in range(2):  # also when it already waits
        reasons = policy.plan(view).reasons
        assert reasons[0].why is Why.FRAGMENTED and reasons[1].why is Why.BEHIND and reasons[1].behind == (0,)


# -- the network -------------------------------------------------------------------------------------------------


def test_the_order_of_the_rows_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    actor, table = drawn(1), rng.random((5, INPUTS)).astype(np.float32)
    scores = actor.scores(table)
    for order in permutations(range(5)):
        assert actor.scores(table[list(order)]) == pytest.approx(scores[list(order)], rel=1e-5)
    assert softmax(scores).sum() == pytest.approx(1.0)


def test_the_order_of_the_queue_does_not_matter() -> None:
    """Jobs that differ are picked by their features alone: another base order gives the same run."""
    rng = np.random.default_rng(3)
    jobs = [Job(f"j{i}", float(i), 5.0 + i % 7, int(rng.integers(1, 5))) for i in range(30)]
    runs = [
        simulate(jobs, Cluster.uniform(2, gpus=4), RlTune(drawn(2), base=base)) for base in ("fifo", "sjf", "slurm")
    ]
    assert finish(runs[0]) == finish(runs[1]) == finish(runs[2])


def test_the_shipped_weights_are_used() -> None:
    policy = create("rltune")
    assert isinstance(policy, RlTune) and np.array_equal(policy.actor.arrays["w1"], find("rltune").arrays["w1"])


def good() -> dict[str, np.ndarray]:
    return {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}


@pytest.mark.parametrize(
    ("arrays", "network", "problem"),
    [
        (good(), "score", "for a 'score' network"),
        ({name: a for name, a in good().items() if name != "b3"}, "rltune", "'b3' is missing"),
        (good() | {"w1": np.ones((8, 32), np.float32)}, "rltune", r"'w1' has the shape \(8, 32\)"),
        (good() | {"w2": np.full((32, 16), np.nan, np.float32)}, "rltune", "'w2' are not finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(arrays: dict[str, np.ndarray], network: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Actor.of(Weights(arrays, {"network": network}))


def test_weights_from_a_file(tmp_path) -> None:
    file = tmp_path / "mine.safetensors"
    write(Weights(good(), {"network": "rltune"}), file)
    assert isinstance(create(f"rltune@{file}"), RlTune)
    with pytest.raises(InputError, match="for a 'score' network"):
        create("rltune:weights=dl2+")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("rltune:mapping=best", "mapping must be one of first, milp, milp3"),
        ("rltune:shown=0", "shown must be at least 1"),
        ("rltune:base=gandiva", "'gandiva' cannot order the queue"),
        ("rltune:base=drf", "'drf' cannot order the queue"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(spec: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        create(spec)
