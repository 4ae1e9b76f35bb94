"""Pollux: the paper's formulas by hand, the fit, the search, and what its plans do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.perf.base import USUAL_LINKS
from argosy.perf.goodput import efficiency
from argosy.perf.iteration import IterationParams, grad_time_s, step_time_s
from argosy.policies.base import create
from argosy.policies.pollux.kernels.speedup import step_s
from argosy.policies.pollux.problem import Population, Problem
from argosy.policies.pollux.speedups import fill, fit_points
from argosy.sim.engine import Engine
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

PARAMS = IterationParams(0.05, 0.001, 0.02, 0.001, 0.01, 0.0005, 1.6)
MODEL = np.array([0.05, 0.001, 0.02, 0.001, 0.01, 0.0005, 1.6])
M0, PHI = 128.0, 1280.0
QUIET = Settings(overheads="none", measurement_noise=0.0, min_run_s=0.0)


@pytest.mark.parametrize(
    ("nodes", "gpus", "local", "accumulation", "throughput", "goodput"),
    [(1, 1, 128, 0, 719.10, 719.10), (1, 4, 128, 0, 2855.69, 2243.76), (2, 8, 128, 0, 5593.17, 3418.05)],
)
def test_goodput_by_hand(
    nodes: int, gpus: int, local: float, accumulation: int, throughput: float, goodput: float
) -> None:
    seconds = float(step_s.py_func(MODEL, nodes > 1, gpus, local, accumulation + 1.0))
    batch = gpus * local * (accumulation + 1)
    assert batch / seconds == pytest.approx(throughput, abs=0.01)
    assert batch / seconds * float(efficiency(batch, PHI, M0)) == pytest.approx(goodput, abs=0.01)


def test_an_accumulated_step_by_hand() -> None:
    seconds = float(step_s.py_func(MODEL, True, 8, 64.0, 2.0))
    assert 1024 / seconds * float(efficiency(1024, PHI, M0)) == pytest.approx(2667.64, abs=0.01)
    assert float(step_s.py_func(MODEL, False, 4, 128.0, 1.0)) == pytest.approx(0.17929, abs=1e-5)


def test_fitness_by_hand() -> None:
    """Speed-ups 2 and 0.5 have a harmonic mean of 0.8."""
    problem = small_problem(np.array([[[0, 2.0]] * 2, [[0, 0.5]] * 2]), [1, 1], 1)
    population = Population(10)
    population.search(problem, -1.0, avoid=True, greedy=True, generations=30, patience=30, seed=0)
    assert population.fitness == pytest.approx(0.8, rel=2e-3)  # less the 1e-3 that keeps it stable
    assert population.utility == pytest.approx(2.5 / 2)


@pytest.mark.parametrize(("age", "restarts", "factor"), [(3600.0, 2, 0.9752), (60.0, 1, 0.3333)])
def test_restart_factor_by_hand(age: float, restarts: int, factor: float) -> None:
    assert max(age - restarts * 30.0, 0.0) / (age + 30.0) == pytest.approx(factor, abs=1e-4)
    trace = Trace.of_jobs([Job("a", 0, 1e5, 2, min_gpus=1, max_gpus=4)])
    engine = Engine(trace, Cluster.uniform(2, 4), create("pollux"), QUIET)
    policy = engine.policy
    assert engine.advance()
    engine.ask()
    engine.advance()
    engine.view.now = age
    policy._restarts = {0: restarts}  # type: ignore[attr-defined]
    seen: list[Problem] = []
    policy._population.search = lambda problem, p, **_: seen.append(problem) or list(problem.present)  # type: ignore
    policy.plan(engine.view)
    assert seen[0].restart[0] == pytest.approx(factor, abs=1e-4)


def test_the_fit_recovers_a_model() -> None:
    points = {}
    for nodes, gpus, local in [(1, 1, 64), (1, 1, 128), (1, 2, 64), (1, 4, 128), (2, 4, 64), (2, 8, 128), (4, 16, 64)]:
        step = float(step_time_s(PARAMS, gpus, 1 if nodes == 1 else 2, local, 0, USUAL_LINKS))
        points[nodes, gpus, float(local)] = (float(grad_time_s(PARAMS, local)), step)
    found = fit_points(points)
    for nodes, gpus, local in [(1, 3, 96), (2, 6, 32), (8, 32, 128)]:
        known = float(step_time_s(PARAMS, gpus, 1 if nodes == 1 else 2, local, 0, USUAL_LINKS))
        assert float(step_s.py_func(found, nodes > 1, gpus, local, 1.0)) == pytest.approx(known, rel=0.01)


def test_what_was_never_seen_is_believed_to_scale() -> None:
    found = fit_points({(1, 1, 128.0): (0.178, 0.178)})
    table, _ = fill(found, PHI, M0, 4096, 1024, 8)
    assert table[0, 8] / table[0, 1] > 4  # nothing but efficiency is lost
    assert table[1, 8] == pytest.approx(table[0, 8], rel=1e-3)


def test_one_gpu_with_a_large_batch_accumulates() -> None:
    slow_start = np.array([1.0, 0.001, 1e-8, 1e-8, 1e-8, 1e-8, 1.0])
    _, batches = fill(slow_start, 1e9, M0, 4096, 4096, 1)
    assert batches[0, 1] == 4096  # in two passes of 2048


def small_problem(speedup: np.ndarray, capacity: list[int], high: int) -> Problem:  # type: ignore[type-arg]
    jobs, nodes = len(speedup), len(capacity)
    return Problem(
        rows=np.arange(jobs),
        index=np.arange(jobs),
        present=[{} for _ in range(jobs)],
        capacity=np.array(capacity),
        room=np.zeros((2, nodes)),
        of_type=np.zeros(nodes, np.int64),
        allowed=np.ones((1, nodes), bool),
        group=np.zeros(jobs, np.int64),
        low=np.ones(jobs, np.int64),
        high=np.full(jobs, high),
        unit=np.zeros((3, jobs)),
        queue=np.zeros(jobs, np.int64),
        limit=np.array([np.inf]),
        speedup=speedup,
        batches=np.full(speedup.shape, np.nan),
        restart=np.ones(jobs),
        weight=1.0,
    )


def test_the_search_finds_the_best_allocation_of_a_small_cluster() -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        local = np.cumsum(rng.uniform(0, 1, (3, 5)), axis=1)
        local[:, 0] = 0
        speedup = np.stack([local, 0.7 * local], axis=1)
        problem = small_problem(speedup, [2, 2], 4)
        population = Population(50)
        chosen = population.search(problem, -1.0, avoid=True, greedy=True, generations=60, patience=60, seed=1)
        assert all(sum(row.get(n, 0) for row in chosen) <= 2 for n in (0, 1))
        best = 0.0
        rows = [(a, b) for a in range(3) for b in range(3)]
        for state in itertools.product(rows, repeat=3):
            if any(sum(row[n] for row in state) > 2 for n in (0, 1)) or sum(min(row) > 0 for row in state) > 1:
                continue
            value = [speedup[j, int(min(row) > 0), sum(row)] for j, row in enumerate(state)]
            best = max(best, 1.0 / np.mean([1.0 / (v + 1e-3) for v in value]))
        assert population.fitness == pytest.approx(best, rel=1e-6)


def test_no_two_jobs_that_span_nodes_share_one() -> None:
    k = np.arange(9.0)
    problem = small_problem(np.stack([np.stack([k, k])] * 4), [4, 4, 4, 4], 8)
    chosen = Population(40).search(problem, -1.0, avoid=True, greedy=True, generations=40, patience=40, seed=0)
    spanning = [set(row) for row in chosen if len(row) > 1]
    assert sum(len(nodes) for nodes in spanning) == len(set().union(*spanning))


def adaptive(name: str, at: float = 0.0, **more: float) -> Job:
    return Job(name, at, None, 4, model="cifar10", work=3e6, batch_size=512, max_batch=4096, min_gpus=1, max_gpus=16)


def test_jobs_grow_at_most_twofold_and_take_larger_batches() -> None:
    trace = Trace.of_jobs([adaptive("a")])
    sizes, batches = [], []

    def watch(engine: Engine) -> None:
        if len(engine.jobs.index):
            sizes.append(int(engine.jobs.held[0]))
            batches.append(float(engine.view.jobs.batch[0]))

    Engine(trace, Cluster.uniform(4, 4, "t4"), create("pollux"), QUIET, watch=watch).run()
    grown = [size for size, _ in itertools.groupby(sizes)]
    assert grown[0] == 1 and max(grown) >= 8
    assert all(b <= 2 * a for a, b in itertools.pairwise(grown))
    assert max(batches) > 512


def test_it_beats_fixed_sizes_where_jobs_are_elastic() -> None:
    trace = Trace.of_jobs([adaptive(f"j{i}", 30.0 * i) for i in range(12)])
    cluster = Cluster.uniform(4, 4, "t4")
    jct = {}
    for policy in ("pollux", "las"):
        jobs = simulate(trace, cluster, policy, QUIET).jobs
        jct[policy] = float((jobs["finish_s"] - jobs["submit_s"]).to_numpy().mean())
    assert jct["pollux"] < 0.9 * jct["las"]


def test_bad_parameters() -> None:
    for spec in ("pollux:p=1", "pollux:speeds=guess", "pollux:population=2", "pollux:every_s=0"):
        with pytest.raises(InputError, match="pollux"):
            create(spec)
