from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path

import polars as pl
import pytest
from results_by_hand import HandJob, Stint, by_hand

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError, UnknownName
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.run import simulate, write_log
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

CLUSTER = Cluster.uniform(2, 4)
TRACE = Trace.of_jobs([Job("wide", 0.0, 100.0, 6), Job('odd "ü"', 5.0, 40.0, 0.5), Job("cpu", 5.0, 30.0, 0, cpus=2.0)])


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_policy_by_name_or_as_an_object() -> None:
    by_name = simulate(TRACE, CLUSTER, "las:quantum_s=60", Settings.ideal())
    as_object = simulate(TRACE, CLUSTER, create("las:quantum_s=60"), Settings.ideal())
    assert (by_name.policy, as_object.policy) == ("las:quantum_s=60", "las")
    assert by_name.events.equals(as_object.events)
    with pytest.raises(UnknownName, match="did you mean las"):
        simulate(TRACE, CLUSTER, "lass")


def test_the_log_has_one_line_an_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write_log(simulate(TRACE, CLUSTER, "fifo", Settings.ideal()), path)
    events = lines(path)
    start = next(e for e in events if e["event"] == "start" and e["job"] == "wide")
    assert start == {
        "seq": start["seq"],
        "t": 0,
        "event": "start",
        "job": "wide",
        "gpus": 6,
        "overhead_s": 0,
        "on": start["on"],
    }
    held = sorted((part["node"], len(part["devices"])) for part in start["on"])  # type: ignore[union-attr, index, call-overload, attr-defined]
    assert [count for _, count in held] in ([2, 4], [4, 2])
    share = next(e for e in events if e["event"] == "start" and e["job"] == 'odd "ü"')
    assert share["gpus"] == 0.5 and share["on"][0]["share"] == 0.5  # type: ignore[index]
    cpu = next(e for e in events if e["event"] == "start" and e["job"] == "cpu")
    assert cpu["gpus"] == 0 and cpu["on"][0]["devices"] == []  # type: ignore[index]
    assert {"t": 100, "event": "finish", "job": "wide"}.items() <= events[-1].items()
    assert "on" not in events[-1]
    assert [e["seq"] for e in events] == list(range(len(events)))


def test_node_events_name_their_node(tmp_path: Path) -> None:
    settings = Settings.ideal(node_mtbf_h=0.05, node_repair_h=0.01, checkpoint_every_s=5.0)
    path = tmp_path / "events.jsonl"
    write_log(simulate(TRACE, CLUSTER, "srtf", settings), path)
    downs = [e for e in lines(path) if e["event"] == "node_down"]
    assert downs
    assert all(e["node"] in ("n0", "n1") and "job" not in e for e in downs)


def test_same_run_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_log(simulate(TRACE, CLUSTER, "srtf", Settings(seed=3, job_mtbf_h=0.01)), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_device_62_and_a_long_gang(tmp_path: Path) -> None:
    """The largest bit of a node's devices, and more nodes than a chunk of the writer would notice."""
    cluster = Cluster(tuple(Node(f"n{i}", gpus=62) for i in range(40)))
    devices = {i: [61] for i in range(40)}
    result = by_hand([HandJob("gang", 0.0, [Stint(0.0, 1.0, devices)], gpus=40)], cluster)
    write_log(result, tmp_path / "log")
    start = next(e for e in lines(tmp_path / "log") if e["event"] == "start")
    assert start["gpus"] == 40
    assert start["on"] == [{"node": f"n{i}", "devices": [61]} for i in range(40)]


def test_a_log_that_can_not_be_written(tmp_path: Path) -> None:
    result = simulate(TRACE, CLUSTER, "fifo")
    with pytest.raises(InputError, match="cannot be written"):
        write_log(result, tmp_path / "missing" / "log")


@pytest.mark.parametrize("gpus", range(1, 9))
def test_every_size_starts_on_an_empty_cluster(gpus: int) -> None:
    result = simulate(Trace.of_jobs([Job("gang", 0.0, 10.0, gpus)]), CLUSTER, "fifo", Settings.ideal())
    assert result.jobs["finish_s"].to_list() == [pytest.approx(10.0)]


@pytest.mark.parametrize("policy", ["fifo", "fifo-backfill", "srtf"])
def test_a_job_that_lost_its_node_comes_back(policy: str) -> None:
    settings = Settings.ideal(node_mtbf_h=0.05, node_repair_h=0.01, checkpoint_every_s=5.0, until_s=2000.0)
    result = simulate(Trace.of_jobs([Job("one", 0.0, 100.0, 1)]), CLUSTER, policy, settings)
    assert result.jobs["faults"][0] > 0
    assert result.jobs["status"][0] == "completed"


def test_progress_is_told(tmp_path: Path) -> None:
    jobs = [Job(f"j{i}", float(i), 1.0, 1) for i in range(30_000)]
    heard: list[tuple[int, int, float]] = []
    result = simulate(Trace.of_jobs(jobs), CLUSTER, "fifo", progress=lambda *told: heard.append(told))
    assert result.jobs.select(pl.col("finish_s").is_not_null().all()).item()
    assert heard and all(total == 30_000 for _, total, _ in heard)
    assert [done for done, _, _ in heard] == sorted(done for done, _, _ in heard)


def test_an_engine_leaves_no_cycle_behind() -> None:
    """An engine's large matrices are freed with its last reference, not at some later garbage collection."""
    engine = Engine(Trace.of_jobs([Job("a", 0, 5, 1)]), Cluster.uniform(1, 1), create("fifo"), Settings.ideal())
    engine.run()
    gone = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert gone() is None
    finally:
        gc.enable()
