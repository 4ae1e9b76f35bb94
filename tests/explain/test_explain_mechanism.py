"""The assumption of all explanations about the mechanism: a job that fits is started."""

from __future__ import annotations

import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.result import EventKind
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


def test_a_gang_takes_what_is_left_on_three_nodes() -> None:
    """3 + 3 + 3 free GPUs hold a gang of 8 unless consolidation is strict."""
    jobs = [*(Job(f"a{i}", 0.0, 1000.0, 5) for i in range(3)), Job("b", 1.0, 10.0, 8)]
    result = Engine(Trace.of_jobs(jobs), Cluster.uniform(3, 8), create("fifo"), Settings.ideal()).run()
    assert result.jobs["first_start_s"].to_list() == [0.0, 0.0, 0.0, 1.0]


def test_a_failed_gang_of_one_node_does_not_stand_for_one_of_two_nodes() -> None:
    """Strict: 8 GPUs need a whole node and wait; 10 need two nodes, and 5 + 5 are free. Watched or not."""
    jobs = [Job("x", 0.0, 100.0, 3), Job("y", 0.0, 1.0, 5), Job("z", 0.0, 100.0, 3)]
    jobs += [Job("eight", 2.0, 10.0, 8), Job("ten", 3.0, 10.0, 10)]
    trace, cluster, rules = Trace.of_jobs(jobs), Cluster.uniform(2, 8), Settings.ideal(consolidation="strict")
    for watch in (None, lambda engine: None):
        result = Engine(trace, cluster, create("fifo-backfill"), rules, watch=watch).run()
        assert result.jobs["first_start_s"].to_list() == [0.0, 0.0, 0.0, 100.0, 3.0]


def test_spreading_goes_to_the_emptiest_node() -> None:
    jobs = [Job(f"j{i}", float(i), 100.0, 1) for i in range(3)]
    rules = Settings.ideal(placer="spread")
    result = Engine(Trace.of_jobs(jobs), Cluster.uniform(3, 4), create("fifo"), rules).run()
    started = result.events.filter(result.events["kind"] == EventKind.START)
    assert sorted(started["node"].to_list()) == [0, 1, 2]


def test_a_job_without_gpus_takes_cpus_from_a_lower_ranked_one_whatever_the_gpu_type() -> None:
    """The GPU type of a CPU-only job does not restrict where it may displace others."""
    cluster = Cluster((Node("n0", "a", 8, 32.0, 64.0), Node("n1", "b", 1, 1.0, 1.0)))
    jobs = [Job("long", 0.0, 100.0, 1, cpus=30.0), Job("cpus", 5.0, 10.0, 0, cpus=8.0, gpu_type="b")]
    rules = Settings.ideal(consolidation="strict")
    result = Engine(Trace.of_jobs(jobs), cluster, create("srtf"), rules).run()
    assert result.jobs["first_start_s"].to_list() == [0.0, 5.0]


def test_a_share_in_the_way_of_a_whole_node_is_displaced() -> None:
    """Taking a quarter of a device from a lower ranked job frees the whole device."""
    jobs = [Job("share", 0.0, 100.0, 0.25), Job("node", 5.0, 10.0, 8)]
    cluster = Cluster.uniform(1, 8, cpus=0.0, memory_gib=0.0)
    result = Engine(Trace.of_jobs(jobs), cluster, create("srtf"), Settings.ideal()).run()
    assert result.jobs["first_start_s"].to_list() == [0.0, 5.0]


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill", "srtf", "las"])
def test_watching_changes_nothing(policy: str) -> None:
    jobs = [Job(f"j{i}", 7.0 * i, 40.0 + 31.0 * (i * i % 5), 1 + i % 4 * 2) for i in range(40)]
    trace, cluster = Trace.of_jobs(jobs), Cluster.uniform(2, 8)
    plain = Engine(trace, cluster, create(policy), Settings()).run()
    watched = Engine(trace, cluster, create(policy), Settings(), watch=lambda engine: None).run()
    assert watched.events.equals(plain.events)
