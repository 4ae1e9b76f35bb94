"""Rounds realise shares: who is behind runs, and in the long run everybody gets what was asked for."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.mechanism.rounds import Rounds, Shares
from argosy.policies._shares import SharePolicy
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.sim.timeline import placements
from argosy.workload.trace import Job, Trace


class Fixed(SharePolicy):
    """Shares by job index, whatever happens."""

    name = "fixed-shares"

    def __init__(self, table: list[list[float]], round_s: float = 10.0) -> None:
        super().__init__(round_s)
        self.table = np.array(table)

    def share(self, view: View) -> Shares:
        return Shares(self.table[view.jobs.index])


def run(policy: SharePolicy, jobs: list[Job], cluster: Cluster, until_s: float) -> pl.DataFrame:
    result = Engine(Trace.of_jobs(jobs), cluster, policy, Settings.ideal(until_s=until_s)).run()
    held = placements(result).with_columns(span=pl.col("end_s") - pl.col("start_s"))
    return held.group_by("job", "node").agg(pl.col("span").sum()).sort("job", "node")


def test_two_jobs_on_one_gpu_receive_their_shares() -> None:
    jobs = [Job("a", 0, 1e6, 1), Job("b", 0, 1e6, 1)]
    received = run(Fixed([[0.75], [0.25]]), jobs, Cluster.uniform(1, 1), until_s=4000.0)
    assert received["span"].to_list() == pytest.approx([3000.0, 1000.0], abs=20.0)  # within two rounds of 10 s


def test_shares_by_gpu_type_move_a_job_between_types() -> None:
    cluster = Cluster((Node("fast", "v100", 1), Node("slow", "k80", 1)))
    jobs = [Job("a", 0, 1e6, 1), Job("b", 0, 1e6, 1)]
    received = run(Fixed([[0.75, 0.25], [0.25, 0.75]]), jobs, cluster, until_s=4000.0)
    assert received["span"].to_list() == pytest.approx([3000.0, 1000.0, 1000.0, 3000.0], abs=40.0)


def test_a_newcomer_waits_for_the_next_round() -> None:
    jobs = [Job("a", 0, 1e6, 1), Job("b", 13.0, 5.0, 1)]
    result = Engine(
        Trace.of_jobs(jobs), Cluster.uniform(2, 1), Fixed([[1.0], [1.0]]), Settings.ideal(until_s=100.0)
    ).run()
    assert result.jobs["first_start_s"].to_list() == [0.0, 20.0]


def test_priority_is_share_over_share_received() -> None:
    rounds = Rounds(10.0, np.array([1]))
    index, gpus, accepts = np.array([0, 1]), np.array([1.0, 1.0]), np.array([1, 1])
    shares = Shares(np.array([[0.6], [0.4]]))
    first = rounds.select(index, gpus, accepts, shares)
    assert first.workers.tolist() == [1, 0]  # nobody has received anything: the larger share first
    rounds.account(10.0)
    second = rounds.select(index, gpus, accepts, shares)
    assert second.workers.tolist() == [0, 1]  # a has received everything so far
    rounds.account(20.0)
    third = rounds.select(index, gpus, accepts, shares)
    assert third.workers.tolist() == [1, 0]  # 0.6 / 0.5 > 0.4 / 0.5


def test_boundaries() -> None:
    rounds = Rounds(360.0, np.array([1]))
    assert rounds.is_boundary(720.0) and not rounds.is_boundary(719.0)
    assert rounds.next_boundary(720.0) == 1080.0 and rounds.next_boundary(719.0) == 720.0


def test_a_round_must_last() -> None:
    with pytest.raises(InputError, match="round_s must be > 0"):
        Fixed([[1.0]], round_s=0.0)
