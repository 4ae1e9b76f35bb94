"""Long runs keep no more in memory than somebody may still ask for, and columns without values take none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from argosy.cluster.cluster import Cluster
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.metrics import metrics
from argosy.sim.timeline import Steps
from argosy.workload.synth import generate
from argosy.workload.trace import Trace

MACHINES = Cluster.uniform(4, 8)


def test_the_matrix_of_the_trace_is_freed_unless_a_run_is_watched() -> None:
    trace = generate("philly", 60, 1, gpus=32.0, load=1.5)
    alone = Engine(trace, MACHINES, create("fifo"))
    watched = Engine(trace, MACHINES, create("fifo"), watch=lambda engine: None)
    results = [engine.run() for engine in (alone, watched)]
    assert results[0].jobs.equals(results[1].jobs)
    assert alone.world.tr.shape[1] == 0 < watched.world.tr.shape[1]
    assert watched.requested(3).work_s == results[1].jobs["alone_s"][3]


def test_a_parquet_file_with_empty_columns_is_the_same_trace(tmp_path: Path) -> None:
    trace = generate("philly", 50, 2)
    trace.write(tmp_path / "jobs.parquet")
    read = Trace.read(tmp_path / "jobs.parquet")
    assert read.frame.equals(trace.frame) and read.frame.schema == trace.frame.schema
    assert read.frame["deadline_s"].null_count() == len(trace)


def test_metrics_do_not_depend_on_how_often_they_are_asked_for() -> None:
    result = Engine(generate("philly", 200, 3, gpus=32.0, load=1.5), MACHINES, create("las")).run()
    once, again = metrics(result), metrics(result)
    assert repr(once) == repr(again)
    jobs = result.jobs.with_columns(speed=pl.col("alone_s") / (pl.col("finish_s") - pl.col("submit_s")))
    x = jobs.filter(pl.col("alone_s") > 0).group_by("queue").agg(pl.col("speed").mean())["speed"].to_numpy()
    assert once["queue_jain"] == pytest.approx(x.sum() ** 2 / (len(x) * (x**2).sum()))


def test_averages_over_nothing_are_the_value_there() -> None:
    steps = Steps.of_changes([0.0, 1.0, 2.0], [1, 2, -3])
    assert steps.average([0.0, 1.0, 0.5], [2.0, 1.0, 1.5]) == pytest.approx([2.0, 3.0, 2.0])
    assert float(steps.average(0.0, 1.0)) == 1.0 and float(steps.at(-1.0)) == 0.0
    many = np.linspace(-1.0, 3.0, 200_001)
    assert (steps.at(many) == np.select([many < 0, many < 1, many < 2], [0.0, 1.0, 3.0], 0.0)).all()


def test_fractional_changes_are_summed_in_their_order() -> None:
    rng = np.random.default_rng(1)
    t, change = rng.integers(0, 50, 1000).astype(float), rng.random(1000)
    order = np.argsort(t, kind="stable")
    last = np.append(t[order][1:] != t[order][:-1], True)
    assert (Steps.of_changes(t, change).value == np.cumsum(change[order])[last]).all()
