"""Fair share: halves, weights, and the inner policy's order inside each group."""

from __future__ import annotations

from typing import Any

import pytest
from by_hand import finish, simulate, starts, view_of

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import POLICIES, Event, Floats, Policy, create, register
from argosy.policies.fair import Fair
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


def queue_of(name: str, count: int, duration_s: float = 10, submit_s: float = 0) -> list[Job]:
    return [Job(f"{name}{i}", submit_s, duration_s, 1, queue=name, user=f"{name}-user") for i in range(count)]


def test_each_queue_gets_half() -> None:
    jobs = [*queue_of("a", 6), *queue_of("b", 3)]
    # fifo would start a0–a3. Fair: tags a 0 1 2 …, b 0 1 2 …: a0 b0 a1 b1; at 10: a2 b2 a3 a4; at 20: a5
    assert starts(simulate(jobs, Cluster.uniform(1, 4), "fair")) == [0, 0, 10, 10, 10, 20, 0, 0, 10]
    assert starts(simulate(jobs, Cluster.uniform(1, 4), "fifo")) == [0, 0, 0, 0, 10, 10, 10, 10, 20]


def test_weights_two_to_one() -> None:
    queues = (Queue("a", weight=1.0), Queue("b", weight=2.0))
    cluster = Cluster((Node("n", gpus=3),), queues=queues)
    jobs = [*queue_of("a", 4), *queue_of("b", 4)]
    # tags a 0 1 2 3, b 0 ½ 1 1½: a0 b0 b1 | a1 b2 b3 | a2 a3
    assert starts(simulate(jobs, cluster, "fair")) == [0, 10, 20, 20, 0, 0, 10, 10]


def test_what_runs_counts_first() -> None:
    running = [Job("a0", 0, 10, 2, queue="a"), Job("a1", 0, 4, 1, queue="a")]
    waiting = [Job("a2", 1, 5, 1, queue="a"), Job("b0", 2, 5, 1, queue="b")]
    # at 4 a1's GPU is free; a holds 2 (so a2's tag is 2), b nothing (tag 0): b0 first, though it came later
    assert starts(simulate([*running, *waiting], Cluster.uniform(1, 3), "fair")) == [0, 0, 9, 4]


def test_the_inner_policy_orders_inside_each_queue() -> None:
    lengths = {"a": (9, 3, 6), "b": (4, 8, 2)}
    jobs = [Job(f"{q}{i}", 0, s, 1, queue=q) for q, times in lengths.items() for i, s in enumerate(times)]
    # two GPUs. sjf inside: a1 (3) and b2 (2) start; at 2 b0 (4) → 6; at 3 a2 (6) → 9; at 6 b1; at 9 a0
    assert starts(simulate(jobs, Cluster.uniform(1, 2), "fair:inner=sjf")) == [9, 0, 3, 2, 6, 0]
    # fifo inside: a0 and b0 start; at 4 b1 → 12; at 9 a1 → 12; then a2 and b2
    assert starts(simulate(jobs, Cluster.uniform(1, 2), "fair")) == [0, 9, 12, 0, 4, 12]


def test_a_preemptive_inner_policy_takes_from_the_rich() -> None:
    jobs = [Job("a0", 0, 10, 1, queue="a"), Job("a1", 0, 6, 1, queue="a"), Job("b0", 2, 20, 1, queue="b")]
    # srtf inside: at 2 a orders a1 (4 left, tag 0), a0 (8 left, tag 1); b0 has tag 0: a0 gives way until 6
    assert finish(simulate(jobs, Cluster.uniform(1, 2), "fair:inner=srtf")) == [14, 6, 22]
    # srtf alone never runs b0 before the others end
    assert finish(simulate(jobs, Cluster.uniform(1, 2), "srtf")) == [10, 6, 26]


def test_between_users_and_with_parameters_inside() -> None:
    jobs = [Job("x0", 0, 8, 1, user="x"), Job("x1", 0, 8, 1, user="x"), Job("y0", 0, 8, 1, user="y")]
    assert starts(simulate(jobs, Cluster.uniform(1, 2), "fair:by=user")) == [0, 8, 0]
    # las inside, quantum 2: x's jobs take turns on x's GPU and y's runs through
    result = simulate(jobs, Cluster.uniform(1, 2), "fair:by=user:inner={las:quantum_s=2}")
    assert starts(result) == [0, 2, 0] and finish(result)[2] == 8


def test_cpu_only_jobs_keep_the_inner_order() -> None:
    policy = create("fair:inner=sjf")
    columns = {"gpus": [0.0, 0.0, 1.0], "expected_s": [9.0, 1.0, 5.0]}
    key = policy.rank(view_of(policy, Cluster.uniform(1, 1), columns))
    assert key.argsort().tolist() == [1, 2, 0]


def test_uses_what_the_inner_policy_uses() -> None:
    assert create("fair:inner=srsf").uses == {"demand", "placement", "estimate"}
    assert create("fair:inner=las").uses == {"demand", "placement", "service"}


def test_no_policy_that_decides_more_than_an_order() -> None:
    with pytest.raises(InputError, match="'drf' decides order, size"):
        create("fair:inner=drf")
    with pytest.raises(InputError, match="by must be one of queue, user, app"):
        create("fair:by=team")


def test_an_inner_policy_with_a_memory_hears_of_events() -> None:
    class Counting(Policy):
        """An inner policy that counts finished jobs, so it must be told of events of this kind, and of no other."""

        hears = frozenset({"finish"})

        def reset(self, context: Context) -> None:
            self.finished = 0

        def on_event(self, event: Event) -> None:
            assert event.kind == "finish"
            self.finished += 1

        def rank(self, view: View) -> Floats:
            return view.jobs.submitted

        def state(self) -> dict[str, Any]:
            return {"finished": self.finished}

        def restore(self, state: dict[str, Any]) -> None:
            self.finished = state["finished"]

    register("counting-test", "for this test")(Counting)
    try:
        policy = create("fair:inner=counting-test")
        jobs = [*queue_of("a", 2), *queue_of("b", 1, submit_s=50)]
        Engine(Trace.of_jobs(jobs), Cluster.uniform(1, 1), policy, Settings.ideal()).run()
        assert policy.state() == {"finished": 3}
        policy.restore({"finished": 7})
        assert policy.state() == {"finished": 7}
    finally:
        POLICIES._things.pop("counting-test")
    assert type(create("fair")) is Fair  # and nobody is told who did not ask
