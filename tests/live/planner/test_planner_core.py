"""`gpus: 2+6`: two GPUs are never taken from a job once it runs, and what it has beyond that is."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import View
from argosy.live.planner.messages import Account, Active, Decision, JobFacts, Setup, Update
from argosy.live.planner.planner import Planner
from argosy.live.spec import JobSpec
from argosy.policies.base import Floats, Policy, Sizes
from argosy.sim.settings import Settings

SETTINGS = Settings(min_run_s=0.0, perf="rigid", hot_resize=True)


class ByPriority(Policy):
    """The highest priority first."""

    preemptive = True

    def rank(self, view: View) -> Floats:
        return np.asarray(-view.jobs.priority)


class AllOrNothing(Policy):
    """The job of the highest priority gets as much as it can have, and the others nothing."""

    preemptive = True

    def rank(self, view: View) -> Floats:
        return np.asarray(-view.jobs.priority)

    def size(self, view: View) -> Sizes:
        best = view.jobs.priority == view.jobs.priority.max()
        return Sizes(np.where(best, view.jobs.max_gpus, 0).astype(np.int64))


def planner(policy: str) -> Planner:
    return Planner(Setup(Cluster.uniform(1, 8), f"{__file__}:{policy}" if policy[0].isupper() else policy, SETTINGS))


def job(number: int, gpus: str, at: float = 0.0, priority: float = 50.0) -> Active:
    spec = JobSpec.model_validate({"run": "x", "resources": {"gpus": gpus}, "priority": priority, "saves": "step"})
    return Active(JobFacts.of(spec, number, submitted_s=at), Account())


def sizes(decision: Decision) -> dict[int, int]:
    return {number: sum(len(p.devices) for p in place.parts) for number, place in decision.running.items()}


def test_what_it_means() -> None:
    wants = JobSpec.model_validate({"run": "x", "resources": {"gpus": "2+6"}}).resources.gpus
    assert (wants.low, wants.high, wants.asked, wants.core) == (2, 8, 2, True)
    assert JobSpec.model_validate_json(JobSpec(run="x").model_dump_json()).resources.gpus.core is False
    plain = JobSpec.model_validate({"run": "x", "resources": {"gpus": "4+0"}}).resources.gpus
    assert (plain.low, plain.high, plain.core) == (4, 4, True)


@pytest.mark.parametrize("wrong", ["0+2", "2+", "+6", "1.5+2", "2+x", "2+-1", "1..2+3"])
def test_what_is_no_size_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (number|range)"):
        JobSpec.model_validate({"run": "x", "resources": {"gpus": wrong}})


def test_a_preemptive_policy_takes_others_and_is_not_held_up() -> None:
    made = planner("ByPriority")
    first = made.update(Update(0.0, (job(1, "2+6", priority=10), job(2, "6", priority=20))))
    assert sizes(first) == {1: 2, 2: 6}
    urgent = made.update(Update(10.0, (job(3, "4", 10.0, 90),)))
    assert sizes(urgent) == {1: 2, 3: 4}  # although job 1 is the last in the order
    everything = made.update(Update(20.0, (job(4, "8", 20.0, 95),)))
    assert sizes(everything) == {1: 2, 3: 4}  # it does not fit beside the guaranteed two, so nobody is stopped for it


def test_the_burst_is_given_back_and_the_core_stays() -> None:
    made = planner("AllOrNothing")
    assert sizes(made.update(Update(0.0, (job(1, "2+6", priority=10),)))) == {1: 8}
    shrunk = made.update(Update(10.0, (job(2, "1..6", 10.0, 90),)))
    assert sizes(shrunk) == {1: 2, 2: 6}
    before = first_devices(shrunk, 1)
    again = made.update(Update(20.0, (job(3, "1..6", 20.0, 95),)))
    assert sizes(again) == {1: 2, 3: 6} and first_devices(again, 1) == before
    assert sizes(made.update(Update(30.0, ended={3: "completed", 2: "cancelled"}))) == {1: 8}


def first_devices(decision: Decision, number: int) -> list[int]:
    return [device for part in decision.running[number].parts for device in part.devices]


def test_under_a_policy_that_bids() -> None:
    made = planner("joint")
    made.update(Update(0.0, (job(1, "2+6"),)))
    for number in range(2, 8):
        decision = made.update(Update(600.0 * number, (job(number, "1..8", 600.0 * number, 90),), ask=True))
        assert sizes(decision)[1] >= 2, number
    assert sizes(decision)[1] < 8 and len(sizes(decision)) > 1  # others have some of the burst


def test_it_survives_the_planner() -> None:
    made = planner("ByPriority")
    made.update(Update(0.0, (job(1, "2+6", priority=10),)))
    again = Planner(made.setup, made.snapshot())
    assert sizes(again.update(Update(10.0, (job(2, "8", 10.0, 90),)))) == {1: 2}


def test_a_job_without_a_core_is_taken_as_before() -> None:
    made = planner("ByPriority")
    made.update(Update(0.0, (job(1, "2..8", priority=10),)))
    assert sizes(made.update(Update(10.0, (job(2, "8", 10.0, 90),)))) == {2: 8}
