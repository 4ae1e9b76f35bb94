"""Bids: the best choice within capacity, what becomes of losers, and what is refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.cluster.view import View
from argosy.errors import InvalidPlan
from argosy.explain.pending import ExplainedEngine, reasons
from argosy.mechanism.bids import Bids
from argosy.mechanism.plan import Why
from argosy.policies.base import Policy
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


class Bidder(Policy):
    """Makes the bids that a test wants, by job index: (GPU type, workers, value)."""

    name = "bidder"
    preemptive = True
    uses = frozenset({"demand", "placement"})

    def __init__(self, bids: dict[int, list[tuple[int, int, float]]]) -> None:
        self.bids = bids

    def bid(self, view: View) -> Bids:
        rows = [(row, *bid) for row, job in enumerate(view.jobs.index.tolist()) for bid in self.bids.get(job, [])]
        table = np.array(rows, np.float64).reshape(-1, 4)
        job, kind, workers = (table[:, i].astype(np.int64) for i in range(3))
        return Bids(job, kind, workers, table[:, 3])


def elastic(name: str, submit: float = 0.0, duration: float = 1000.0) -> Job:
    return Job(name, submit, duration, 2, min_gpus=1, max_gpus=8, cpus=2.0)


def decide_once(jobs: list[Job], cluster: Cluster, bids: dict[int, list[tuple[int, int, float]]]) -> Engine:
    engine = ExplainedEngine(Trace.of_jobs(jobs), cluster, Bidder(bids), Settings.ideal(), watch=lambda engine: None)
    assert engine.advance()
    engine.ask()
    engine.apply()
    return engine


def held(engine: Engine) -> dict[int, float]:
    return dict(zip(engine.jobs.index.tolist(), engine.jobs.held.tolist(), strict=True))


def test_the_choice_is_worth_most_and_not_what_is_dearest_per_gpu() -> None:
    """3 + 3 GPUs for 10 each beat 4 GPUs for 14: by value per GPU alone the single large bid would be taken first."""
    bids = {0: [(0, 4, 14.0)], 1: [(0, 3, 10.0)], 2: [(0, 3, 10.0)]}
    engine = decide_once([elastic("a"), elastic("b"), elastic("c")], Cluster.uniform(1, 6), bids)
    assert held(engine) == {0: 0, 1: 3, 2: 3}
    assert engine.choice is not None and engine.choice.worth == 20 and engine.choice.gap < 1e-5


def test_sizes_and_types_are_chosen_together() -> None:
    """Sia's worked example: the first job belongs on type b, the second on type a."""
    cluster = Cluster((Node("x", "a", 2, 16.0), Node("y", "b", 2, 16.0)))
    bids = {
        0: [(0, 1, 1.0), (0, 2, 1.8), (1, 1, 2.0), (1, 2, 3.6)],
        1: [(0, 1, 1.0), (0, 2, 1.9), (1, 1, 1.2), (1, 2, 2.3)],
    }
    engine = decide_once([elastic("one"), elastic("two")], cluster, bids)
    assert held(engine) == {0: 2, 1: 2}
    assert engine.jobs.held_type.tolist() == [1, 0]


@pytest.mark.parametrize("seed", range(25))
def test_small_cases_are_solved_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, types = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    room = rng.integers(2, 9, types)
    cluster = Cluster(tuple(Node(f"n{t}", f"t{t}", int(room[t]), 64.0) for t in range(types)))
    bids = {
        j: [
            (int(rng.integers(types)), int(rng.integers(1, 7)), float(rng.integers(1, 40)))
            for _ in range(int(rng.integers(1, 6)))
        ]
        for j in range(jobs)
    }
    best = 0.0
    for chosen in product(*([None, *bids[j]] for j in range(jobs))):
        use = np.zeros(types)
        for bid in chosen:
            if bid is not None:
                use[bid[0]] += bid[1]
        if (use <= room).all():
            best = max(best, sum(bid[2] for bid in chosen if bid is not None))
    choice = decide_once([elastic(f"j{j}") for j in range(jobs)], cluster, bids).choice
    assert choice is not None and choice.worth == pytest.approx(best) and choice.bound >= best - 1e-6


def test_large_cases_come_with_a_bound_that_holds() -> None:
    """Beyond the search the choice is feasible, and its bound is that of the linear relaxation or above."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(1)
    bids = {j: [(0, k, float(rng.uniform(0.5, 2) * k**0.7)) for k in (1, 2, 4, 8)] for j in range(60)}
    engine = decide_once([elastic(f"j{j}") for j in range(60)], Cluster.uniform(8, 8), bids)
    choice = engine.choice
    value = [-v for j in bids for _, _, v in bids[j]]
    gpus = [k for j in bids for _, k, _ in bids[j]]
    one_each = np.kron(np.eye(60), np.ones(4))
    found = linprog(value, A_ub=np.vstack([gpus, one_each]), b_ub=[64.0, *[1.0] * 60])
    assert choice is not None and choice.worth <= -found.fun + 1e-6 <= choice.bound + 1e-3
    assert choice.gap < 0.02
    assert engine.jobs.held.sum() <= 64


def test_very_many_like_jobs_share_what_they_all_want() -> None:
    """At any price all jobs of a kind pick the same row, and cannot all have it; the others take their next best."""
    jobs = 2_100
    cluster = Cluster(tuple(Node(f"n{i}", "ab"[i % 2], 8, 64.0) for i in range(200)))
    kinds = [[(t, k, (1.0 + kind) * (1.0 + t) * k**0.6) for t in (0, 1) for k in (1, 2, 4, 8)] for kind in range(3)]
    engine = decide_once([elastic(f"j{j}") for j in range(jobs)], cluster, {j: kinds[j % 3] for j in range(jobs)})
    assert engine.choice is not None and engine.choice.gap < 0.03  # 20 % if each only took what fits of its best row
    assert engine.jobs.held.sum() == 1600


def test_a_running_job_that_wins_nothing_gives_way_or_goes_on() -> None:
    """The loser keeps its GPUs as long as the winner does not need them, and loses nothing by it."""
    jobs = [elastic("loser"), elastic("winner", 10.0)]
    for gpus, preemptions in ((8, 0), (4, 1)):
        policy = Bidder({0: [(0, 4, 1.0)], 1: [(0, 4, 50.0)]})
        result = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, gpus), policy, Settings.ideal()).run()
        assert result.jobs["preemptions"].to_list() == [preemptions, 0]


def test_a_job_that_has_just_started_is_not_taken() -> None:
    jobs = [elastic("young"), elastic("rich", 10.0)]
    policy = Bidder({0: [(0, 4, 1.0)], 1: [(0, 4, 50.0)]})
    settings = Settings.ideal(min_run_s=300.0)
    result = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 4), policy, settings).run()
    assert result.jobs["first_start_s"].to_list() == [0.0, 300.0]


def test_a_queue_keeps_to_its_limit() -> None:
    cluster = Cluster(Cluster.uniform(1, 8).nodes, queues=(Queue("red", 0.0, 3.0), Queue("blue", 0.0)))
    jobs = [Job(f"j{i}", 0, 100, 2, min_gpus=1, max_gpus=8, cpus=1.0, queue=q) for i, q in enumerate(["red", "blue"])]
    engine = decide_once(jobs, cluster, {0: [(0, 8, 90.0), (0, 3, 10.0)], 1: [(0, 4, 1.0)]})
    assert held(engine) == {0: 3, 1: 4}


def test_a_loser_is_told_what_its_bid_was_worth() -> None:
    jobs = [elastic("a"), elastic("b")]
    engine = decide_once(jobs, Cluster.uniform(1, 4), {0: [(0, 4, 8.0)], 1: [(0, 4, 2.0)]})
    reason = reasons(engine)[1]
    assert reason.why is Why.OUTBID and "4 GPUs" in reason.evidence


@pytest.mark.parametrize(
    ("bid", "message"),
    [
        ((0, 2, np.nan), "finite"),
        ((0, 9, 1.0), "does not take"),
        ((0, 0, 1.0), "1 or more"),
        ((0, -2, 1.0), "1 or more"),
        ((0, 2, np.inf), "finite"),
        ((3, 2, 1.0), "GPU type must be"),
        ((1, 2, 1.0), "a GPU type which it does not take"),
    ],
)
def test_impossible_bids_are_refused(bid: tuple[int, int, float], message: str) -> None:
    cluster = Cluster((Node("x", "a", 8, 16.0), Node("y", "b", 8, 16.0)))
    job = Job("picky", 0, 100, 2, min_gpus=1, max_gpus=8, gpu_type="a", cpus=1.0)
    with pytest.raises(InvalidPlan, match=message):
        decide_once([job], cluster, {0: [bid]})


@pytest.mark.parametrize("seed", range(8))
def test_many_like_jobs_are_served_as_an_integer_program_would(seed: int) -> None:
    """Like jobs pick the same rows at any prices, and what is left over must go to those that have nothing."""
    rng = np.random.default_rng(seed)
    cluster = Cluster((Node("x", "a", 32, 64.0), Node("y", "b", 32, 64.0)))
    kinds = [
        [(t, n, float(speed * n**power)) for t, speed in enumerate(rng.uniform(1, 3, 2)) for n in (1, 2, 4, 8)]
        for power in rng.uniform(0.2, 0.9, 4)
    ]
    bids = {i: kinds[i % 4] for i in range(60)}
    engine = decide_once([elastic(f"j{i}") for i in range(60)], cluster, bids)
    assert engine.choice is not None and engine.choice.worth == pytest.approx(best_worth(bids, (32, 32)), rel=1e-2)


def best_worth(bids: dict[int, list[tuple[int, int, float]]], gpus: tuple[int, ...]) -> float:
    """Return the largest sum of values, at most one bid of each job, within the GPUs of each type."""
    rows = [(job, *bid) for job, some in bids.items() for bid in some]
    job, kind, workers = (np.array([row[i] for row in rows]) for i in range(3))
    uses = [np.where(job == j, 1, 0) for j in bids] + [np.where(kind == t, workers, 0) for t in range(len(gpus))]
    limits = LinearConstraint(np.array(uses), ub=[1] * len(bids) + list(gpus))
    return -float(milp([-row[3] for row in rows], constraints=limits, integrality=1, bounds=Bounds(0, 1)).fun)


class Sharer(Policy):
    """Every job bids for what it asks for, the first one most; the others also bid to share the GPU of the first."""

    name = "sharer"
    preemptive = True
    uses = frozenset({"demand", "placement"})

    def __init__(self, partner: int = 0) -> None:
        self.partner = partner  # index of the job whose GPU the others would share

    def bid(self, view: View) -> Bids:
        index = view.jobs.index
        host = np.flatnonzero(index == self.partner)
        alone, guests = np.arange(len(index)), np.flatnonzero(index != self.partner) if len(host) else np.zeros(0, int)
        job = np.concatenate([alone, guests])
        value = np.concatenate([100.0 / (1.0 + index), 10.0 + index[guests]])
        partner = np.concatenate([np.full(len(alone), -1), np.repeat(host, len(guests))])
        workers = np.maximum(view.jobs.gpus[job], 1).astype(np.int64)
        return Bids(job, 0 * workers, workers, value, partner=partner)


def small(name: str, submit: float, gpus: float = 1.0) -> Job:
    return Job(name, submit, 100, gpus, cpus=1.0, memory_gib=1.0)


def shared(jobs: list[Job], gpus: int, policy: Policy | None = None) -> Engine:
    """Return an engine in which the first job runs, and the others have come after it."""
    made = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, gpus), policy or Sharer(), Settings.ideal())
    for _ in range(2):
        assert made.advance()
        made.ask()
        made.apply()
    made.refresh_view()
    return made


def test_a_job_that_wins_nothing_shares_the_gpus_of_its_partner() -> None:
    engine = shared([small("host", 0), small("guest", 1)], gpus=1)
    assert engine.jobs.peer.tolist() == [1, 0] and engine.jobs.held.tolist() == [0.5, 0.5]
    assert engine.choice is not None and engine.choice.worth == 100 + 11
    assert engine.run().jobs["status"].to_list() == ["completed"] * 2


def test_a_job_that_finds_gpus_of_its_own_shares_none() -> None:
    engine = shared([small("host", 0), small("guest", 1)], gpus=2)
    assert engine.jobs.peer.tolist() == [-1, -1] and engine.jobs.held.tolist() == [1, 1]


def test_the_pair_that_is_worth_most_is_made_and_a_host_has_one_guest() -> None:
    engine = shared([small("host", 0), small("less", 1), small("most", 1)], gpus=1)
    assert engine.jobs.peer.tolist() == [2, -1, 0]


@pytest.mark.parametrize("gpus", [0.5, 2.0])
def test_a_job_of_another_size_shares_nothing(gpus: float) -> None:
    engine = shared([small("host", 0), small("filler", 0), small("guest", 1, gpus)], gpus=2)
    assert engine.jobs.peer.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("partner", [-2, 2, 1])
def test_an_impossible_partner_is_refused(partner: int) -> None:
    class Wrong(Sharer):
        def bid(self, view: View) -> Bids:
            n = len(view.jobs)
            ones = np.ones(n, np.int64)
            return Bids(np.arange(n), 0 * ones, ones, 1.0 * ones, partner=np.array([-1, partner])[:n])

    with pytest.raises(InvalidPlan, match="the partner must be the row of another job, or -1"):
        shared([small("host", 0), small("guest", 1)], 1, Wrong())


def test_a_bid_for_an_unknown_job_is_refused() -> None:
    class Stray(Bidder):
        def bid(self, view: View) -> Bids:
            return Bids(np.array([7]), np.array([0]), np.array([1]), np.array([1.0]))

    engine = Engine(Trace.of_jobs([elastic("a")]), Cluster.uniform(1, 4), Stray({}), Settings.ideal())
    assert engine.advance()
    with pytest.raises(InvalidPlan, match=r"row 7: the row must be 0\.\.0"):
        engine.ask()
