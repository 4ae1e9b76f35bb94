"""QSSF: what it predicts, from which jobs, and that it never looks ahead."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from by_hand import finish, simulate, starts

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.policies.base import Event, Floats, create
from argosy.policies.qssf import DurationPredictor, Qssf
from argosy.workload.durations import DEFAULT_S, MIN_JOBS
from argosy.workload.trace import Job


def durations(**changes: float) -> DurationPredictor:
    return DurationPredictor(**({"blend": 0.5, "decay": 0.8, "refresh_s": 86400.0} | changes))


def run(
    learner: DurationPredictor,
    job: int,
    duration_s: float,
    *,
    user: int = 1,
    queue: int = 1,
    kind: int = 1,
    gpus: float = 1.0,
    start_s: float = 0.0,
) -> None:
    learner.arrives(job, user, queue, kind, gpus, start_s)
    learner.begins(job, start_s)
    learner.ends(job, start_s + duration_s)


def expected(learner: DurationPredictor, *, user: int = 1, queue: int = 1, kind: int = 1, gpus: float = 1.0) -> float:
    learner.arrives(10**6, user, queue, kind, gpus, 0.0)
    return learner.expect([10**6])[0]


# -- the rolling part ---------------------------------------------------------------------------------------------


def test_the_newest_run_of_a_kind_counts_most() -> None:
    learner = durations()
    run(learner, 0, 100)
    run(learner, 1, 200)
    assert expected(learner) == pytest.approx((0.8 * 100 + 200) / 1.8)


def test_who_is_asked_when_the_kind_is_new() -> None:
    learner = durations()
    assert expected(learner) == DEFAULT_S
    run(learner, 0, 100, kind=1, gpus=1)
    run(learner, 1, 300, kind=2, gpus=1)
    run(learner, 2, 1000, kind=2, gpus=4)
    run(learner, 3, 5000, user=2, queue=2)
    assert expected(learner, kind=3) == 200  # the user's jobs of that size
    assert expected(learner, kind=3, gpus=2) == pytest.approx(1400 / 3)  # the queue's
    assert expected(learner, user=9, queue=1) == pytest.approx(1400 / 3)  # a new user: the queue's
    assert expected(learner, user=9, queue=9) == pytest.approx(6400 / 4)  # a new queue: all


def test_all_runs_of_an_interrupted_job_count() -> None:
    learner = durations()
    learner.arrives(0, 1, 1, 1, 1.0, 0.0)
    for begin_s, stop_s in ((0.0, 40.0), (100.0, 110.0)):
        learner.begins(0, begin_s)
        learner.begins(0, begin_s)  # one row for each node of a gang
        learner.begins(0, begin_s + 5.0)  # moved to another node
        learner.stops(0, stop_s)
    learner.begins(0, 200.0)
    learner.ends(0, 207.0)
    assert expected(learner) == 40 + 10 + 7


def test_withdrawn_jobs_teach_nothing() -> None:
    policy = Qssf()
    learner = policy._durations = durations()
    learner.arrives(0, 1, 1, 1, 1.0, 0.0)
    for kind, time_s in (("start", 0.0), ("cancel", 50.0)):
        policy.on_event(Event(time_s, kind, 0, -1))
    assert expected(learner) == DEFAULT_S
    learner.arrives(1, 1, 1, 1, 1.0, 0.0)
    for kind, time_s in (("start", 0.0), ("crash", 10.0), ("resume", 20.0), ("kill", 50.0)):
        policy.on_event(Event(time_s, kind, 1, -1))
    assert expected(learner) == 40


# -- the trees ----------------------------------------------------------------------------------------------------


def taught(**changes: float) -> DurationPredictor:
    """A large job lasts ten times as long as a small one, whoever sends it."""
    learner = durations(**changes)
    for i in range(3 * MIN_JOBS):
        run(learner, i, 1000.0 if i % 3 else 100.0, user=i % 7, gpus=8.0 if i % 3 else 1.0)
    return learner


def test_trees_know_what_a_new_user_shares_with_others() -> None:
    learner = taught(blend=0.0)
    assert expected(learner, user=99, gpus=1.0) == pytest.approx(700)  # the queue's mean says nothing of sizes
    assert not learner.refresh(86399.0) and learner.refresh(86400.0) and not learner.refresh(86401.0)
    assert expected(learner, user=99, gpus=1.0) == pytest.approx(100, rel=0.1)
    assert expected(learner, user=99, gpus=8.0) == pytest.approx(1000, rel=0.1)


def test_both_parts_are_blended() -> None:
    rolling, trees, both = (taught(blend=blend) for blend in (1.0, 0.0, 0.25))
    for learner in (rolling, trees, both):
        learner.refresh(86400.0)
    parts = [expected(learner, user=99) for learner in (rolling, trees)]
    assert expected(both, user=99) == pytest.approx(0.25 * parts[0] + 0.75 * parts[1])


def test_memory_is_json_and_complete() -> None:
    learner = taught()
    learner.refresh(86400.0)
    learner.arrives(7, 99, 1, 1, 2.0, 86400.0)
    learner.begins(7, 86500.0)
    text = json.dumps(learner.state(), allow_nan=False)
    other = durations()
    other.restore(json.loads(text))
    assert json.dumps(other.state()) == text
    for one in (learner, other):
        one.ends(7, 90000.0)
    assert expected(other, user=99, gpus=2.0) == expected(learner, user=99, gpus=2.0)


# -- runs ---------------------------------------------------------------------------------------------------------


def test_users_who_repeat_themselves_are_served_shortest_first() -> None:
    lengths = {"ann": 500.0, "bob": 50.0, "cy": 200.0, "dee": 10.0}
    before = [Job(f"{user}0", 0, s, 1, user=user) for user, s in lengths.items()]
    crowd = [Job(f"{user}{i}", 1000 + i, s, 1, user=user) for i in range(1, 6) for user, s in lengths.items()]
    cluster = Cluster.uniform(1, 4)
    jobs = [*before, *crowd]
    assert starts(simulate(jobs, cluster, "qssf")) == starts(simulate(jobs, cluster, "sjf"))
    assert starts(simulate(jobs, cluster, "qssf")) != starts(simulate(jobs, cluster, "fifo"))


def test_gpus_count_as_much_as_seconds() -> None:
    before = [Job("a0", 0, 100, 1, user="a"), Job("b0", 100, 60, 2, user="b")]
    crowd = [Job("busy", 200, 50, 2, user="c"), Job("b1", 201, 60, 2, user="b"), Job("a1", 202, 100, 1, user="a")]
    cluster = Cluster.uniform(1, 2)
    # 100 s · 1 GPU before 60 s · 2 GPUs: a1 250–350, then b1
    assert starts(simulate([*before, *crowd], cluster, "qssf"))[3:] == [350, 250]
    assert starts(simulate([*before, *crowd], cluster, "sjf"))[3:] == [250, 310]


def test_nobody_is_preempted() -> None:
    jobs = [Job("long", 0, 1000, 1), *(Job(f"j{i}", 10, 5, 1) for i in range(5))]
    result = simulate(jobs, Cluster.uniform(1, 1), "qssf")
    assert finish(result)[0] == 1000 and result.jobs["preemptions"].sum() == 0


class Witness(Qssf):
    """A policy that records every key."""

    name = "qssf"

    def reset(self, context: Any) -> None:
        super().reset(context)
        self.seen: list[tuple[float, list[int], list[float]]] = []

    def rank(self, view: View) -> Floats:
        key = super().rank(view)
        self.seen.append((view.now, view.jobs.index.tolist(), key.tolist()))
        return key


def test_no_feature_sees_the_future() -> None:
    """Changing the durations of jobs that end later, or later jobs themselves, changes nothing before."""
    rng = np.random.default_rng(5)
    submits = np.sort(rng.uniform(0, 20_000, 400))
    jobs = [
        Job(
            f"j{i}",
            float(submits[i]),
            float(rng.exponential(150) + 1),
            int(rng.choice([1, 2, 4])),
            user=f"u{rng.integers(9)}",
            queue=f"q{rng.integers(3)}",
        )
        for i in range(400)
    ]
    cluster, until_s = Cluster.uniform(1, 8), 12_000.0
    before = Witness(refresh_s=3000.0)
    ends = finish(simulate(jobs, cluster, before))
    later = [
        Job(
            job.job_id,
            job.submit_s,
            job.duration_s if end <= until_s else job.duration_s + 5000 * rng.random(),
            job.gpus if job.submit_s <= until_s else 1,
            user=job.user if job.submit_s <= until_s else "u1",
            queue=job.queue,
        )
        for job, end in zip(jobs, ends)
    ]
    after = Witness(refresh_s=3000.0)
    simulate(later, cluster, after)
    assert before._durations._trees is not None
    told = [[seen for seen in policy.seen if seen[0] <= until_s] for policy in (before, after)]
    assert len(told[0]) > 300 and told[0] == told[1]
    assert before.seen != after.seen


@pytest.mark.parametrize("spec", ["blend=1.5", "decay=0", "refresh_s=0"])
def test_nonsense_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match=spec.partition("=")[0]):
        create(f"qssf:{spec}")
