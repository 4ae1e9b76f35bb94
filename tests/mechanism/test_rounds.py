"""Rounds realise shares: jobs that are behind run, and in the long run every job gets its share."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.mechanism.rounds import AFTERWARDS, IN_PLACE, NOBODY, Newcomers, Room, Rounds
from argosy.policies.base import Floats, Ints
from argosy.policies.common.share_policy import SharePolicy
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.sim.timeline import placements
from argosy.workload.trace import Job, Trace


class Fixed(SharePolicy):
    """A policy with fixed shares by job index."""

    name = "fixed-shares"

    def __init__(self, table: list[list[float]], round_s: float = 10.0, authors: bool = False) -> None:
        super().__init__(round_s, 0.0, authors)
        self.table = np.array(table)

    def speeds(self, view: View, places: Ints) -> tuple[Floats, Floats]:
        ones = np.ones((len(places), self.table.shape[1]))
        return ones, ones

    def share(self, view: View, places: Ints, speed: Floats) -> Floats:
        return self.table[view.jobs.index[places]]


def run(policy: SharePolicy, jobs: list[Job], cluster: Cluster, until_s: float) -> pl.DataFrame:
    result = Engine(Trace.of_jobs(jobs), cluster, policy, Settings.ideal(until_s=until_s)).run()
    held = placements(result).with_columns(span=pl.col("end_s") - pl.col("start_s"))
    return held.group_by("job", "node").agg(pl.col("span").sum()).sort("job", "node")


def rounds_of(shares: list[list[float]], capacity: list[float], leftovers: int = AFTERWARDS, **options: bool) -> Rounds:
    """Return rounds of 10 s with jobs of one GPU each, and their shares."""
    n, columns = len(shares), len(capacity)
    rounds = Rounds(10.0, range(columns), leftovers=leftovers, **options)
    set_room(rounds, capacity)
    index = np.arange(n)
    rounds.observe(0.0, index)
    ones = np.ones((n, columns))
    rounds.add(Newcomers(index, np.ones(n), np.zeros(n, np.int64), ones, ones), index)
    rounds.forget(0.0)
    rounds.assign(np.array(shares))
    return rounds


def set_room(rounds: Rounds, capacity: list[float]) -> None:
    rounds.set_room(Room(np.array(capacity), np.zeros((1, len(capacity))), np.array([np.inf])))


def turn(rounds: Rounds, jobs: int, columns: list[int] | None = None) -> list[int]:
    """Return the column on which each job runs in the next round (-1: none), and let ten seconds pass."""
    order = np.arange(len(rounds.total)) if columns is None else np.array(columns)
    rounds.select(order, fresh=True)
    _, workers, types = rounds.answer(np.arange(jobs))
    rounds.observe(10.0, np.arange(jobs))
    return [int(t).bit_length() - 1 if w else -1 for w, t in zip(workers, types)]


def test_two_jobs_on_one_gpu_receive_their_shares() -> None:
    jobs = [Job("a", 0, 1e6, 1), Job("b", 0, 1e6, 1)]
    received = run(Fixed([[0.75], [0.25]]), jobs, Cluster.uniform(1, 1), until_s=4000.0)
    assert received["span"].to_list() == pytest.approx([3000.0, 1000.0], abs=10.0)  # within a round of 10 s


def test_shares_by_gpu_type_move_a_job_between_types() -> None:
    cluster = Cluster((Node("fast", "v100", 1), Node("slow", "k80", 1)))
    jobs = [Job("a", 0, 1e6, 1), Job("b", 0, 1e6, 1)]
    received = run(Fixed([[0.75, 0.25], [0.25, 0.75]]), jobs, cluster, until_s=4000.0)
    assert received["span"].to_list() == pytest.approx([3000.0, 1000.0, 1000.0, 3000.0], abs=10.0)


@pytest.mark.parametrize("rounds", [100, 1000])
def test_received_time_converges_to_the_shares(rounds: int) -> None:
    """For any shares that fit, the error is about one round, so its share vanishes as rounds increase."""
    shares = np.random.default_rng(3).dirichlet(np.ones(5))  # five jobs share one GPU
    state = rounds_of([[x] for x in shares], [1.0])
    turns = np.array([turn(state, 5) for _ in range(rounds)])
    assert np.abs((turns == 0).mean(axis=0) - shares).max() < 1.5 / rounds


def test_priority_is_share_over_share_received() -> None:
    rounds = rounds_of([[0.6], [0.4]], [1.0])
    assert turn(rounds, 2) == [0, -1]  # both are credited 5 s: the larger share first
    assert turn(rounds, 2) == [-1, 0]  # received 15 of 20 and 5 of 20 s: 0.6 / 0.75 < 0.4 / 0.25
    assert turn(rounds, 2) == [0, -1]  # 0.6 / 0.5 > 0.4 / 0.5


def test_deficits_decide_between_equals_and_are_carried_over() -> None:
    rounds = rounds_of([[0.5], [0.5]], [1.0])
    assert turn(rounds, 2) == [0, -1]  # of equals the earlier one
    rounds.forget(10.0)  # a received 10 s and should have 5, b received nothing
    rounds.assign(np.array([[0.5], [0.5]]))
    assert turn(rounds, 2) == [-1, 0]


def test_the_order_of_columns_decides_where_a_job_with_two_shares_runs() -> None:
    assert turn(rounds_of([[0.5, 0.5]], [1.0, 1.0]), 1) == [0]
    assert turn(rounds_of([[0.5, 0.5]], [1.0, 1.0]), 1, columns=[1, 0]) == [1]


@pytest.mark.parametrize(
    "leftovers, chosen",
    [
        (NOBODY, [1, -1, -1]),  # nobody runs without a share
        (IN_PLACE, [0, 1, -1]),  # a is chosen for the first column before its own is looked at
        (AFTERWARDS, [1, 0, -1]),  # everybody's share comes first
    ],
)
def test_who_gets_what_is_left(leftovers: int, chosen: list[int]) -> None:
    rounds = rounds_of([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]], [1.0, 1.0], leftovers)
    assert turn(rounds, 3) == chosen


def test_newcomers_may_block_what_they_do_not_use() -> None:
    for idle_new, chosen in ((False, 2), (True, 1)):
        rounds = rounds_of([[1.0]], [2.0], IN_PLACE, idle_new=idle_new)
        new = np.array([1])
        rounds.observe(0.0, np.arange(2))
        rounds.add(Newcomers(new, np.ones(1), np.zeros(1, np.int64), np.ones((1, 1)), np.ones((1, 1))), new)
        assert rounds.select(np.array([0]), fresh=True).rows == chosen


def test_a_choice_that_left_nobody_out_is_settled() -> None:
    two = rounds_of([[0.9], [0.1]], [2.0])
    assert two.select(np.array([0]), fresh=True).settled
    set_room(two, [1.0])
    assert not two.select(np.array([0]), fresh=True).settled


def test_whole_steps_end_before_the_round() -> None:
    rounds = rounds_of([[1.0]], [1.0])
    rounds._t["pace"][0, 0] = 0.35  # 3.5 steps in ten seconds: three whole ones take 3 / 0.35 s
    assert rounds.select(np.array([0]), fresh=True).whole_steps_s == pytest.approx(3 / 0.35)


def test_reserved_gpus_and_limits_of_queues() -> None:
    rounds = Rounds(10.0, [0])
    room = Room(np.array([1.0]), np.array([[0.0], [2.0]]), np.array([np.inf, 1.0]))
    rounds.set_room(room)
    index, ones = np.arange(4), np.ones((4, 1))
    rounds.observe(0.0, index)
    rounds.add(Newcomers(index, np.ones(4), np.array([0, 0, 1, 1]), ones, ones), index)
    rounds.forget(0.0)
    rounds.assign(ones)
    assert turn(rounds, 4) == [0, -1, 0, -1]  # one GPU for all; queue 1 has two of its own, and may hold one


def test_a_pair_runs_on_the_same_gpu_and_the_one_who_stays_keeps_it() -> None:
    rounds = rounds_of([[0.0], [0.0]], [1.0])
    rounds.assign_pairs(np.array([0]), np.array([1]), np.array([[1.0]]))
    assert turn(rounds, 2) == [0, 0]
    assert rounds.columns_of() == {(0, 1): 0}
    rounds.observe(1.0, np.array([1]))  # job 0 has ended
    assert rounds.columns_of() == {(1, 1): 0}


def test_nobody_has_the_turn_of_a_pair_that_ends_at_once() -> None:
    rounds = rounds_of([[0.0], [0.0], [1.0]], [1.0])
    rounds.assign_pairs(np.array([0]), np.array([1]), np.array([[9.0]]))
    assert turn(rounds, 3) == [0, 0, -1]
    _, left, going_on = rounds.observe(1.0, np.array([2]))  # jobs 0 and 1 have ended
    assert (left, going_on, rounds.columns_of()) == (2, 0, {})


def test_memory_survives_as_json() -> None:
    shares = [[0.5, 0.1], [0.3, 0.2], [0.2, 0.7]]
    rounds, twin = rounds_of(shares, [1.0, 1.0]), Rounds(10.0, range(2))
    for _ in range(5):
        turn(rounds, 3)
    twin.restore(json.loads(json.dumps(rounds.state())))
    set_room(twin, [1.0, 1.0])
    twin.observe(0.0, np.arange(3))
    assert [turn(twin, 3) for _ in range(20)] == [turn(rounds, 3) for _ in range(20)]


# The policy around it


def starts(policy: SharePolicy, jobs: list[Job], gpus: int) -> list[float]:
    result = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, gpus), policy, Settings.ideal(until_s=100.0)).run()
    times: list[float] = result.jobs["first_start_s"].to_list()
    return times


def test_free_gpus_need_not_wait_for_the_next_round() -> None:
    jobs = [Job("a", 0, 1e6, 1), Job("b", 13.0, 5.0, 1)]
    assert starts(Fixed([[1.0], [1.0]]), jobs, 2) == [0.0, 13.0]
    assert starts(Fixed([[1.0], [1.0]], authors=True), jobs, 2) == [0.0, 20.0]


def test_an_empty_cluster_begins_a_round_at_once() -> None:
    jobs = [Job("a", 0, 3.0, 1), Job("b", 13.0, 5.0, 1), Job("c", 14.0, 5.0, 1)]
    assert starts(Fixed([[1.0]] * 3), jobs, 1) == [0.0, 13.0, 18.0]


def test_when_nobody_is_left_the_round_is_over() -> None:
    jobs = [Job("a", 0, 3.0, 1), Job("b", 0, 3.0, 1)]
    assert starts(Fixed([[0.9], [0.1]], authors=True), jobs, 1) == [0.0, 3.0]


def test_nothing_is_asked_while_nothing_can_change() -> None:
    engine = Engine(
        Trace.of_jobs([Job("a", 0, 1e5, 1), Job("b", 5.0, 1e5, 1)]),
        Cluster.uniform(1, 2),
        Fixed([[1.0], [1.0]]),
        Settings.ideal(),
    )
    assert engine.run().jobs["finish_s"].to_list() == [1e5, 1e5 + 5.0]
    assert len(engine.decision_ns) < 10  # and not ten thousand rounds


def test_jobs_without_gpus_always_run() -> None:
    jobs = [Job("cpu", 0, 30.0, 0, cpus=1.0), *(Job(name, 0, 30.0, 1, cpus=1.0) for name in "ab")]
    assert starts(Fixed([[0.0], [1.0], [0.5]]), jobs, 1) == [0.0, 0.0, 10.0]


def test_a_round_must_last() -> None:
    with pytest.raises(InputError, match="round_s must be a time > 0"):
        Fixed([[1.0]], round_s=0.0)
