"""Nodes with more GPUs than one word of bits: every way to hold, share, time-slice and return them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from audit import audit, books, ends, simulate
from test_engine_plans import Scripted, Wanted

from argosy.cluster.cluster import Cluster, Node
from argosy.cluster.view import View
from argosy.errors import ClusterError, InvalidPlan
from argosy.mechanism.devices import free_devices, joined, words
from argosy.mechanism.plan import Plan
from argosy.policies.base import POLICIES, create
from argosy.sim.engine import Engine
from argosy.sim.result import EventKind, Result
from argosy.sim.run import write_log
from argosy.sim.settings import Settings
from argosy.sim.timeline import Timeline
from argosy.workload.trace import Job, Trace

IDEAL = Settings.ideal()


def large(gpus: int, **more: object) -> Cluster:
    return Cluster((Node("big", "v100", gpus, cpus=4.0 * gpus, memory_gib=16.0 * gpus, **more),))  # type: ignore[arg-type]


def opened(result: Result, kind: EventKind) -> list[set[int]]:
    """The devices of each placement that an event of this kind opened, on whichever nodes."""
    found: dict[int, set[int]] = {}
    for row in result.events.filter(result.events["kind"] == int(kind)).iter_rows(named=True):
        bits = row["devices"] << row["first"]
        found.setdefault(row["seq"], set()).update(d for d in range(bits.bit_length()) if bits >> d & 1)
    return list(found.values())


def test_words_are_parts_of_a_set() -> None:
    devices = (1 << 200) | (1 << 143) | 5
    assert sum(joined(word, bits) for word, bits in words(devices)) == devices
    assert [word for word, _ in words(devices)] == [0, 2, 4]


@pytest.mark.parametrize("gpus", [54, 60, 62, 72, 128, 1000])
def test_the_log_loses_no_device(gpus: int, tmp_path: Path) -> None:
    """The log stores numbers as floats, which are exact up to 53 bits."""
    result = simulate([Job("a", 0.0, 10.0, gpus - 1), Job("b", 0.0, 10.0, 1)], large(gpus), "fifo", IDEAL)
    held = opened(result, EventKind.START)
    assert sorted(map(len, held)) == [1, gpus - 1] and set.union(*held) == set(range(gpus))
    assert Timeline(result).gpus_held.at([5.0]).tolist() == [gpus]
    write_log(result, tmp_path / "log")
    starts = [e for e in map(json.loads, (tmp_path / "log").read_text().splitlines()) if e["event"] == "start"]
    assert [(e["gpus"], e["on"]) for e in starts] == [
        (len(devices), [{"node": "big", "devices": sorted(devices)}]) for devices in held
    ]


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_on_a_node_of_128(policy: str) -> None:
    """Gangs, shares, elastic jobs and parameter servers that get into each other's way."""
    jobs = [
        Job(
            f"j{i}",
            20.0 * i,
            100.0 + 30.0 * (i % 7),
            (1, 30, 100, 0.5, 64, 128, 7, 0.25)[i % 8],
            cpus=1.0,
            memory_gib=1.0,
            min_gpus=1.0 if i % 8 == 4 else None,
            max_gpus=128.0 if i % 8 == 4 else None,
        )
        for i in range(32)
    ]
    trace, settings, wrong = Trace.of_jobs(jobs), Settings(min_run_s=20.0), list[str]()
    engine = Engine(trace, large(128), create(policy), settings, watch=lambda e: wrong.extend(books(e)))
    result = engine.run()
    assert not wrong and not audit(result, trace, settings)
    assert set(result.jobs["status"]) == {"completed"}
    assert free_devices(engine.world) == [(1 << 128) - 1]


@pytest.mark.slow(5)
def test_count_only_nodes_of_any_size_are_quick() -> None:
    jobs = [Job(f"j{i}", float(i), 500.0, 1.0 + 997 * (i % 7), cpus=0.0, memory_gib=0.0) for i in range(60)]
    result = simulate(jobs, large(20_000), "srtf", IDEAL)
    assert set(result.jobs["status"]) == {"completed"}


def test_islands_across_words() -> None:
    """96 GPUs in islands of 40, 40 and 16; the second has devices of both words."""
    cluster = large(96, islands=(40, 40, 16))
    jobs = [Job("a", 0.0, 50.0, 10), Job("b", 1.0, 100.0, 40), Job("c", 2.0, 100.0, 20)]
    result = simulate(jobs, cluster, "fifo", IDEAL)
    assert opened(result, EventKind.START) == [set(range(80, 90)), set(range(40)), set(range(40, 60))]
    slow = Settings.ideal(locality=True)
    spread = simulate([Job("a", 0.0, 50.0, 16), Job("b", 1.0, 100.0, 60)], cluster, "fifo", slow)
    assert opened(spread, EventKind.START)[1] == set(range(60))  # audited: at the speed of two islands


def test_shares_of_devices_in_any_word() -> None:
    jobs = [Job("gang", 0.0, 100.0, 70), *(Job(f"s{i}", 1.0 + i, 50.0, 0.5) for i in range(4))]
    result = simulate(jobs, large(72), "fifo", IDEAL)
    assert opened(result, EventKind.START)[1:] == [{70}, {70}, {71}, {71}]


def test_growing_and_shrinking_over_words() -> None:
    jobs = [Job("a", 0.0, 1000.0, 40, min_gpus=1, max_gpus=128), Job("b", 0.0, 400.0, 10, cpus=1.0)]
    policy = Wanted({0: [(0.0, 40), (100.0, 110), (200.0, 118), (300.0, 60), (400.0, 3)], 1: [(0.0, 10)]})
    result = simulate(jobs, large(128), policy, Settings.ideal(until_s=450.0))
    sizes = [len(devices) for devices in opened(result, EventKind.RESIZE)]
    assert sizes == [110, 118, 60, 3]
    first, second, third, fourth = opened(result, EventKind.RESIZE)
    assert first < second and third < second and fourth < third


def test_a_packed_pair_over_words() -> None:
    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        for job, row in at.items():
            if view.jobs.state[row] == 0 and (job == 0 or at.get(0) is not None):
                plan.run(row, {0: 70}) if job == 0 else plan.pack(row, at[0])
        return plan

    jobs = [Job(name, at, 100.0, 70, cpus=70.0, memory_gib=70.0) for name, at in (("a", 0.0), ("b", 10.0))]
    result = simulate(jobs, large(100), Scripted(step), IDEAL)
    assert opened(result, EventKind.START) == [set(range(70))] * 2
    assert Timeline(result).gpus_held.at([15.0]).tolist() == [70]


def test_what_two_words_need_together_must_fit() -> None:
    """40 CPUs are left: enough for the 28 workers in the first word, and for the 22 in the second, but not for both."""
    cluster = Cluster((Node("big", "v100", 96, cpus=60.0, memory_gib=960.0),))
    jobs = [Job("a", 0.0, 10.0, 20, cpus=20.0, memory_gib=1.0), Job("b", 0.0, 10.0, 50, cpus=50.0, memory_gib=1.0)]

    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        plan.run(at[0], {0: 20}, devices={0: (1 << 20) - 1})
        plan.run(at[1], {0: 50}, devices={0: ((1 << 50) - 1) << 20})
        return plan

    with pytest.raises(InvalidPlan, match="job 'b' does not fit"):
        Engine(Trace.of_jobs(jobs), cluster, Scripted(step), IDEAL).run()


def test_turns_on_devices_of_two_words() -> None:
    """The third job has devices of the second word alone: it runs beside the first, and never beside the second."""
    placements = {0: (1 << 40) - 1, 1: ((1 << 40) - 1) << 30, 2: ((1 << 20) - 1) << 60}

    def step(view: View, at: dict[int, int]) -> Plan:
        plan = Plan.keep(view)
        if len(at) == 3 and not view.running and (view.jobs.state == 0).all():
            for job, devices in placements.items():
                plan.run(at[job], {0: devices.bit_count()}, devices={0: devices})
            plan.slice([at[0], at[1], at[2]], 50.0)
        return plan

    jobs = [Job(f"j{i}", 0.0, 100.0, bits.bit_count(), cpus=1.0, memory_gib=1.0) for i, bits in placements.items()]
    result = simulate(jobs, large(100), Scripted(step), IDEAL)
    assert ends(result) == {"j0": 150.0, "j1": 200.0, "j2": 150.0}


def test_parameter_servers_go_with_one_word() -> None:
    job = Job("a", 0.0, 100.0, 60, ps=3, model="resnet50", cpus=60.0, memory_gib=60.0)
    found = []

    def watch(engine: Engine) -> None:
        found.extend([*books(engine), engine.parts_of(0)] if engine.world.si[0] else [])

    Engine(Trace.of_jobs([job]), large(100), create("drf"), Settings(), watch=watch).run()
    assert [(len(parts), parts[0].devices.bit_count(), parts[0].servers) for parts in found] == [(1, 60, 3)]


def test_a_slip_of_the_pen_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"gpus must be 0\.\.100000, is 1000000"):
        large(1_000_000)
    with pytest.raises(ClusterError, match="are too many"):
        Cluster(tuple(Node(f"n{i}", gpus=80_000 if i == 7 else 8) for i in range(1000)))


def test_free_devices_are_those_that_nobody_has() -> None:
    engine = Engine(Trace.of_jobs([Job("a", 0.0, 10.0, 50)]), large(64), create("fifo"), IDEAL, watch=lambda e: None)
    assert engine.advance()
    engine.decide(np.zeros(1))
    engine.kernel(1)  # carry it out, and let no time pass
    assert free_devices(engine.world) == [((1 << 14) - 1) << 50]
