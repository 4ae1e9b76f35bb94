"""Spotlight's trained placer: which nodes a gang gets, under any order."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import finish, gpus_by_node, simulate

from argosy.cluster.cluster import Cluster, Node, Queue
from argosy.errors import InputError
from argosy.policies.base import create
from argosy.policies.spotlight import FEATURES, Gang, GangPlacer
from argosy.sim.run import simulate as run
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace
from argosy.zoo import Weights, find, write

PLACER = GangPlacer.of(find("spotlight"))


def gang(tasks: int, free: list[int], rack: list[int], across: tuple[float, float] = (0.5, 0.2)) -> Gang:
    n = len(free)
    return Gang(tasks, np.array(free), np.full(n, 8), np.zeros(n, int), np.array(rack), np.ones(n), across)


class TestPlacer:
    def test_a_gang_stays_on_one_node_if_it_can(self) -> None:
        assert PLACER.place(gang(8, [4, 8, 4, 7], [0, 0, 0, 0])) == {1: 8}

    def test_and_otherwise_in_one_rack(self) -> None:
        chosen = PLACER.place(gang(8, [5, 4, 4, 5], [0, 1, 1, 2]))
        assert chosen is not None and set(chosen) == {1, 2}

    def test_a_gang_for_which_no_type_has_room_waits(self) -> None:
        assert PLACER.place(gang(9, [4, 4], [0, 0])) is None

    def test_all_nodes_have_one_type(self) -> None:
        mixed = Gang(
            4, np.array([3, 2, 2]), np.full(3, 4), np.array([0, 1, 1]), np.zeros(3, int), np.ones(3), (0.8, 0.5)
        )
        assert PLACER.place(mixed) == {1: 2, 2: 2}

    def test_every_task_gets_a_gpu_that_is_free(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(30):
            free = rng.integers(0, 9, 40)
            some = gang(32, free.tolist(), (np.arange(40) // 4).tolist())
            chosen = PLACER.place(some)
            assert chosen is not None and sum(chosen.values()) == 32
            assert all(0 < count <= free[node] for node, count in chosen.items())


class TestPolicy:
    def test_the_inner_policy_orders(self) -> None:
        jobs = [Job("first", 0, 100, 4), Job("long", 1, 50, 4), Job("short", 2, 10, 4)]
        assert finish(simulate(jobs, Cluster.uniform(1, 4), "spotlight:inner=sjf")) == [100, 160, 110]
        assert finish(simulate(jobs, Cluster.uniform(1, 4), "spotlight:inner=fifo")) == [100, 150, 160]

    def test_a_young_job_is_not_preempted(self) -> None:
        jobs = [Job("first", 0, 1000, 4), Job("second", 100, 50, 4)]
        assert finish(simulate(jobs, Cluster.uniform(1, 4), "spotlight:inner=las:min_run_s=0"))[1] == 150
        assert finish(simulate(jobs, Cluster.uniform(1, 4), "spotlight:inner=las:min_run_s=300"))[1] == 350

    def test_queues_keep_to_their_limits(self) -> None:
        cluster = Cluster((Node("a", gpus=8),), queues=(Queue("red", 2.0, 2.0), Queue("blue", 6.0)))
        jobs = [Job(f"j{i}", 0, 100, 2, queue="red") for i in range(2)] + [Job("b", 0, 100, 4, queue="blue")]
        assert finish(simulate(jobs, cluster, "spotlight:inner=fifo-backfill")) == [100, 200, 100]

    def test_a_gang_is_kept_in_a_rack(self) -> None:
        nodes = tuple(Node(f"n{i}", "v100", 4, rack=f"r{i // 2}") for i in range(4))
        jobs = [Job("small", 0, 1000, 1), Job("gang", 1, 100, 8, model="resnet50")]
        result = run(Trace.of_jobs(jobs), Cluster(nodes), "spotlight", Settings(overheads="none", min_run_s=0.0))
        assert set(gpus_by_node(result)["gang"]) == {2, 3}

    @pytest.mark.parametrize(
        ("spec", "why"),
        [
            ("spotlight:inner=gandiva", "decides order, size, place"),
            ("spotlight:min_run_s=-1", "≥ 0"),
            ("spotlight:weights=dl2", "'gang-placer' network is needed"),
            ("spotlight:weights=nowhere.safetensors", "does not exist"),
        ],
    )
    def test_what_cannot_be_is_refused(self, spec: str, why: str) -> None:
        with pytest.raises(InputError, match=why):
            create(spec)

    def test_weights_of_another_shape_are_refused(self, tmp_path: object) -> None:
        file = tmp_path / "w.safetensors"  # type: ignore[operator]
        arrays = {"v1": np.zeros((FEATURES + 1, 4)), "c1": np.zeros(4), "v2": np.zeros(4), "c2": np.zeros(1)}
        write(Weights({k: v.astype(np.float32) for k, v in arrays.items()}, {"network": "gang-placer"}), file)
        with pytest.raises(InputError, match="no fitting array 'v1'"):
            create(f"spotlight:weights={file}")
