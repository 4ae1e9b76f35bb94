"""One thing is different: each kind of change does what its name says."""

from __future__ import annotations

import pytest

from argosy.cluster.cluster import Cluster, Node, Queue, Reservation
from argosy.errors import ArgosyError, InputError
from argosy.sim.compare import Experiment, Task
from argosy.sim.settings import Settings
from argosy.sim.variation import Variation, changed, check_name, parse_range, with_gpus
from argosy.workload.trace import Job, Trace

MIXED = Cluster(
    (
        *(Node(f"a{i}", "a100", 8) for i in range(2)),
        *(Node(f"t{i}", "t4", 4) for i in range(3)),
    ),
    "mixed",
    queues=(Queue("research", quota_gpus=20.0),),
    reservations=(Reservation(("t2",), "research", 0.0, 10.0),),
)


def cluster_with(name: str, value: float) -> Cluster:
    return changed(Variation(name, value), MIXED, Settings(), "fifo")[0]


def test_gpus_of_a_type_are_added_and_taken_away() -> None:
    more = cluster_with("t4", 20)
    assert [node.name for node in more.nodes] == ["a0", "a1", "t0", "t1", "t2", "t2-more1", "t2-more2"]
    assert more.nodes[-1].gpus == 4
    fewer = cluster_with("t4", 4)
    assert [node.name for node in fewer.nodes] == ["a0", "a1", "t0"]
    assert fewer.reservations == ()
    assert cluster_with("a100", 0).total_gpus == 12
    assert cluster_with("a100", 0).queues[0].quota_gpus == 12  # in proportion: more than all cannot be promised


def test_nodes_of_a_uniform_cluster() -> None:
    assert with_gpus(Cluster.uniform(2, 8), "nodes", 5.0).total_gpus == 40
    with pytest.raises(InputError, match="of 2 kinds"):
        with_gpus(MIXED, "nodes", 5.0)


@pytest.mark.parametrize(("name", "value", "message"), [("t4", 5, "multiple of 4"), ("a100", -8, "multiple of 8")])
def test_sizes_that_cannot_be(name: str, value: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cluster_with(name, value)


def test_queues_settings_and_parameters() -> None:
    assert cluster_with("quota.research", 4).queues[0].quota_gpus == 4
    assert cluster_with("limit.new", 4).queues[1] == Queue("new", limit_gpus=4)
    settings = changed(Variation("min_run_s", 60.0), MIXED, Settings(), "fifo")[1]
    assert settings.min_run_s == 60.0
    assert changed(Variation("hot_resize", "true"), MIXED, Settings(), "fifo")[1].hot_resize is True
    assert changed(Variation("max_retries", 5.0), MIXED, Settings(), "fifo")[1].max_retries == 5
    assert changed(Variation("overheads", "none"), MIXED, Settings(), "fifo")[1].overheads == "none"
    assert changed(Variation("las.quantum_s", 60.0), MIXED, Settings(), "las")[2] == "las:quantum_s=60"
    assert changed(Variation("las.quantum_s", 60.0), MIXED, Settings(), "fifo")[2] == "fifo"
    with pytest.raises(ArgosyError, match="placer must be one of"):
        changed(Variation("placer", "best"), MIXED, Settings(), "fifo")


def test_names_that_stand_for_nothing() -> None:
    for name in ("load", "t4", "quota.research", "min_run_s", "las.quantum_s"):
        check_name(name, MIXED, ["las:quantum_s=5"])
    for name in ("h100", "seed", "srtf.x", "quotas.research"):
        with pytest.raises(InputError, match=f"'{name}' cannot be varied here"):
            check_name(name, MIXED, ["las"])


def test_ranges() -> None:
    assert parse_range("64..256:32", whole=True) == [64, 96, 128, 160, 192, 224, 256]
    assert parse_range("1..3", whole=False) == [1, 1.5, 2, 2.5, 3]
    assert parse_range("30m,90s") == [90.0, 1800.0]
    assert parse_range("none,realistic") == ["none", "realistic"]
    for text in ("3..1", "1..1", "a..b", "1..1000000:1", "1..9:0"):
        with pytest.raises(InputError):
            parse_range(text, whole=True)


def test_a_run_with_a_change() -> None:
    trace = Trace.of_jobs([Job(f"j{i}", 0.0, 100.0, 8) for i in range(4)] + [Job("last", 1.0, 100.0, 8)])
    experiment = Experiment(trace, Cluster.uniform(1, 8), Settings.ideal())
    slow = experiment.run(Task("fifo", 0))
    fast = experiment.run(Task("fifo", 0, (Variation("nodes", 5.0),)))
    assert slow.result is not None
    assert slow.result.end_s == 500.0
    assert fast.scores is not None
    assert fast.scores["makespan_s"] == 101.0
