"""DRF that never grants a unit which would make the job slower."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import view_of

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import Footprint, Profile
from argosy.errors import UndeclaredInformation
from argosy.policies.base import create
from argosy.policies.drf import Drf
from argosy.scenario import read_scenario
from argosy.sim.run import simulate

SLOT = "drf:slot_s=1200"


def profile_of(by_size: list[float], all_reduce: list[float] | None = None) -> Profile:
    """Return a profile: a class with these speeds at n workers and n servers, n = 0, 1, …; and one on GPUs alone."""
    sizes = len(by_size)
    ps = np.zeros((1, sizes, sizes))
    ps[0, np.arange(sizes), np.arange(sizes)] = by_size
    rate = np.array(all_reduce or [0.0, 1.0])
    return Profile(
        np.repeat(rate[None, None, :, None], 4, axis=3), ps, np.ones((1, 1)), Footprint(np.ones(1), np.ones(1))
    )


def workers(policy: Drf, speeds: Profile, servers: int = 1, count: int = 1, smallest: float = 1.0) -> list[int]:
    columns = {
        "gpus": np.ones(count),
        "min_gpus": np.full(count, smallest),
        "max_gpus": np.full(count, 6.0),
        "cpus": np.ones(count),
        "memory_gib": np.zeros(count),
        "ps": np.full(count, servers),
        "ps_kind": np.full(count, 0 if servers else -1),
        "kind": np.zeros(count, np.int64),
    }
    view = view_of(policy, Cluster.uniform(4, 8, cpus=64.0), columns, profile=speeds)
    return policy.size(view).workers.tolist()


class TestLimits:
    def test_growth_ends_before_the_first_unit_that_slows_the_job(self) -> None:
        dips = profile_of([0, 1, 3, 2, 9, 9, 9])  # 3 units are slower than 2, and 4 would be much faster
        assert workers(Drf(harmless=True), dips) == [2]
        assert workers(Drf(), dips) == [6]

    def test_a_unit_that_changes_nothing_is_granted(self) -> None:
        assert workers(Drf(harmless=True), profile_of([0, 1, 2, 2, 2, 1, 1])) == [4]

    def test_the_smallest_size_is_granted_whatever_it_is(self) -> None:
        assert workers(Drf(harmless=True), profile_of([0, 9, 5, 4, 5, 3, 3]), smallest=3.0) == [4]

    def test_jobs_without_servers_are_judged_by_their_gpus(self) -> None:
        speeds = profile_of([0, 1, 0, 0, 0, 0, 0], all_reduce=[0, 1, 2, 3, 2.5, 4, 5])
        assert workers(Drf(harmless=True), speeds, servers=0) == [3]

    def test_what_one_can_not_use_another_gets(self) -> None:
        policy = Drf(harmless=True)
        view = view_of(
            policy,
            Cluster.uniform(1, 8, cpus=64.0),
            {
                "gpus": np.ones(2),
                "min_gpus": np.ones(2),
                "max_gpus": np.full(2, 7.0),
                "cpus": np.ones(2),
                "memory_gib": np.zeros(2),
                "ps": np.array([1, 0]),
                "ps_kind": np.array([0, -1]),
                "kind": np.zeros(2, np.int64),
            },
            profile=profile_of([0, 1, 2, 1, 1, 1, 1, 1], all_reduce=[0, 1, 2, 3, 4, 5, 6, 7]),
        )
        assert policy.size(view).workers.tolist() == [2, 6]


class TestWhatItLooksAt:
    def test_the_profile_is_declared_only_where_it_is_read(self) -> None:
        assert "profile" in create(f"{SLOT}:harmless=yes").uses
        assert "profile" not in create(SLOT).uses
        assert create("drf:harmless=yes").uses == Drf.uses | {"profile"}

    def test_without_declaring_it_the_profile_can_not_be_read(self) -> None:
        policy = Drf(harmless=True)
        policy.uses = Drf.uses
        with pytest.raises(UndeclaredInformation):
            workers(policy, None)  # type: ignore[arg-type]


def test_it_is_faster_where_more_units_slow_jobs_and_nothing_is_contended() -> None:
    scenario = read_scenario("dl2-500", quick=True).with_count(20)
    trace = scenario.trace(0)

    def mean_jct_s(policy: str) -> float:
        jobs = simulate(trace, scenario.cluster, policy, scenario.settings).jobs
        return float((jobs["finish_s"] - jobs["submit_s"]).to_numpy().mean())

    assert mean_jct_s(f"{SLOT}:harmless=yes") < 0.95 * mean_jct_s(SLOT)
