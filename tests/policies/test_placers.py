"""Every placer, and the limits that hold for all of them, checked in the event log."""

from __future__ import annotations

import pytest
from by_hand import finish, first_places, gpus_by_node, simulate, starts

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import TraceError
from argosy.workload.trace import Job


def sized(*gpus: int) -> Cluster:
    """One node for each number of GPUs."""
    return Cluster(tuple(Node(f"n{i}", gpus=g, cpus=8.0 * g, memory_gib=32.0 * g) for i, g in enumerate(gpus)))


def test_consolidate_takes_the_tightest_node() -> None:
    jobs = [Job("three", 0, 9, 3), Job("two", 0, 9, 2), Job("one", 0, 9, 1)]
    # three fits on 4 as well as on 8: the 4; then two only on the 8; one fills the 4
    assert gpus_by_node(simulate(jobs, sized(8, 4), "fifo")) == {
        "three": {1: 3},
        "two": {0: 2},
        "one": {1: 1},
    }


def test_consolidate_uses_the_fewest_nodes() -> None:
    jobs = [Job("wide", 0, 9, 10)]
    # the roomiest nodes full, and the tightest one that holds the other 2
    assert gpus_by_node(simulate(jobs, sized(4, 8, 2, 4), "fifo")) == {"wide": {1: 8, 2: 2}}


@pytest.mark.parametrize(("consolidation", "start_s"), [("soft", 0), ("strict", 9)])
def test_strict_consolidation_waits_where_soft_scatters(consolidation: str, start_s: float) -> None:
    jobs = [Job("a", 0, 9, 3), Job("b", 0, 9, 3), Job("pair", 0, 9, 2)]
    result = simulate(jobs, sized(4, 4), "fifo", consolidation=consolidation)
    assert starts(result)[2] == start_s
    assert len(gpus_by_node(result)["pair"]) == (2 if consolidation == "soft" else 1)


def test_scattering_costs_speed() -> None:
    jobs = [Job("a", 0, 9, 3), Job("b", 0, 9, 3), Job("pair", 0, 9, 2)]
    assert finish(simulate(jobs, sized(4, 4), "fifo", consolidation="soft", locality=True))[2] > 9
    assert finish(simulate(jobs, sized(4, 4), "fifo", consolidation="soft", locality=False))[2] == 9


def test_spread_goes_to_the_emptiest_nodes() -> None:
    jobs = [Job("four", 0, 9, 4), Job("one", 0, 9, 1), Job("other", 0, 9, 1)]
    result = gpus_by_node(simulate(jobs, sized(4, 2, 4), "fifo", placer="spread"))
    # 4 2 4 free: 0, 2, 0, then the first of the equals 3 2 3 …: 2 + 2; then 2 2 2: the first; then 1 2 2: n1
    assert result == {"four": {0: 2, 2: 2}, "one": {0: 1}, "other": {1: 1}}


def test_first_fit_goes_by_index() -> None:
    jobs = [Job("three", 0, 9, 3), Job("two", 0, 9, 2), Job("wide", 0, 9, 6)]
    result = gpus_by_node(simulate(jobs, sized(8, 4), "fifo", placer="first-fit"))
    # the first node holds three and two; wide takes what is left in order: 3 there, 3 of the other
    assert result == {"three": {0: 3}, "two": {0: 2}, "wide": {0: 3, 1: 3}}


def test_random_repeats_with_its_seed() -> None:
    jobs = [Job(f"j{i}", 0, 9, 1) for i in range(12)]
    places = [gpus_by_node(simulate(jobs, sized(4, 4, 4, 4), "fifo", placer="random", seed=s)) for s in (1, 1, 2)]
    assert places[0] == places[1] != places[2]
    assert len({node for parts in places[0].values() for node in parts}) > 1


def test_rack_aware_stays_in_one_rack() -> None:
    nodes = tuple(Node(f"n{i}", gpus=2, rack=f"r{i // 2}") for i in range(4))
    jobs = [Job("first", 0, 9, 2), Job("wide", 0, 9, 4)]
    # first takes n0; then rack 0 has 2 GPUs left and rack 1 has 4
    assert gpus_by_node(simulate(jobs, Cluster(nodes), "fifo"))["wide"] == {1: 2, 2: 2}
    assert gpus_by_node(simulate(jobs, Cluster(nodes), "fifo", placer="rack-aware"))["wide"] == {2: 2, 3: 2}


def test_gpus_of_one_island_go_together() -> None:
    cluster = Cluster((Node("n", gpus=4, islands=(2, 2)),))
    jobs = [Job("one", 0, 9, 1), Job("pair", 0, 9, 2)]
    # one takes device 0; the pair goes to devices 2 and 3 instead of 1 and 2
    assert first_places(simulate(jobs, cluster, "fifo")) == {
        "one": {0: (0b0001, 1000)},
        "pair": {0: (0b1100, 1000)},
    }


@pytest.mark.parametrize("resource", ["cpus", "memory_gib"])
def test_cpus_and_memory_are_limits(resource: str) -> None:
    cluster = Cluster((Node("a", gpus=8, cpus=10, memory_gib=10), Node("b", gpus=2, cpus=10, memory_gib=10)))
    small = {"cpus": 1.0, "memory_gib": 1.0}
    jobs = [Job(f"j{i}", 0, 5, 1, **(small | {resource: 6.0})) for i in range(3)]  # type: ignore[arg-type]
    result = simulate(jobs, cluster, "fifo")
    # 6 of 10 on each node: one job a node, though 8 GPUs are free; the third waits for them
    assert starts(result) == [0, 0, 5]
    assert sorted(node for job in ("j0", "j1") for node in gpus_by_node(result)[job]) == [0, 1]


def test_a_gang_is_scattered_where_cpus_run_out() -> None:
    cluster = Cluster(tuple(Node(f"n{i}", gpus=8, cpus=10, memory_gib=99) for i in range(2)))
    result = simulate([Job("wide", 0, 5, 4, cpus=20.0, memory_gib=4)], cluster, "fifo")
    assert gpus_by_node(result) == {"wide": {0: 2, 1: 2}}  # 5 CPUs a GPU, 10 a node


def test_gpu_types_are_kept() -> None:
    cluster = Cluster((Node("slow", "t4", 4), Node("fast", "a100", 4)))
    jobs = [
        Job("wants t4", 0, 9, 1, gpu_type="t4"),
        Job("wants a100", 0, 9, 4, gpu_type="a100"),
        Job("takes both", 0, 9, 1, gpu_type="a100|t4"),
    ]
    assert gpus_by_node(simulate(jobs, cluster, "fifo")) == {
        "wants t4": {0: 1},
        "wants a100": {1: 4},
        "takes both": {0: 1},
    }
    alone = [Job("any", 0, 9, 1)]
    assert gpus_by_node(simulate(alone, cluster, "fifo")) == {"any": {1: 1}}  # its fastest type


def test_a_gang_never_mixes_types() -> None:
    cluster = Cluster((Node("slow", "t4", 4), Node("fast", "a100", 4)))
    with pytest.raises(TraceError, match="can never run"):
        simulate([Job("wide", 0, 9, 6)], cluster, "fifo")


def test_shares_of_one_device() -> None:
    jobs = [
        Job("half", 0, 9, 0.5),
        Job("other half", 0, 9, 0.5),
        Job("more", 0, 9, 0.6),
        Job("rest", 0, 9, 0.4),
    ]
    jobs.append(Job("whole", 0, 9, 1))
    result = simulate(jobs, Cluster.uniform(1, 2, cpus=64), "fifo")
    # the halves fill device 0, 0.6 and 0.4 device 1; the whole one waits for a device
    assert first_places(result) == {
        "half": {0: (0b01, 500)},
        "other half": {0: (0b01, 500)},
        "more": {0: (0b10, 600)},
        "rest": {0: (0b10, 400)},
        "whole": {0: (0b01, 1000)},
    }
    assert starts(result) == [0, 0, 0, 0, 9]


def test_cpu_only_jobs_leave_gpus_alone() -> None:
    cluster = Cluster((Node("gpus", gpus=4, cpus=32), Node("cpus", gpus=0, cpus=16)))
    jobs = [Job("cpu", 0, 9, 0, cpus=16), Job("more", 0, 9, 0, cpus=8), Job("gpu", 0, 9, 4, cpus=24)]
    result = simulate(jobs, cluster, "fifo")
    # the node without GPUs first, then, that being full, the other; four GPUs and 24 CPUs are still there
    assert first_places(result) == {"cpu": {1: (0, 0)}, "more": {0: (0, 0)}, "gpu": {0: (0b1111, 1000)}}
    assert starts(result) == [0, 0, 0]
