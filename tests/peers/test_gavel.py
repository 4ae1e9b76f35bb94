"""Argosy's results are within two per cent of those of Gavel's own simulator, except where it says otherwise.

Its semantics: no overheads, consolidated throughputs only, rounds of whole steps, and what `authors` switches on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.perf import catalogue
from argosy.perf.measured_speeds import Point, TableModel
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.importers import get_importer
from argosy.workload.trace import Trace

TYPES = ("v100", "p100", "k80")


@pytest.fixture(scope="module")
def measured(shared_data: Path) -> Iterator[pl.DataFrame]:
    """Gavel's measurements, as the performance models of this module's runs."""
    table = pl.read_csv(shared_data / "throughput" / "gavel_single.csv").filter(pl.col("gpu_type").is_in(TYPES))
    with catalogue.borrowed():
        for (name,), rows in table.filter(pl.col("steps_per_s") > 0).group_by("model", maintain_order=True):
            points = [
                Point(r["gpu_type"], r["scale_factor"], 0, r["batch_size"], r["steps_per_s"])
                for r in rows.iter_rows(named=True)
            ]
            catalogue.register(TableModel.of(str(name), points, unit="steps", per_gpu_batch=True))
        yield table


def restricted(trace: Trace, measured: pl.DataFrame) -> Trace:
    """Restrict each job to the GPU types on which it was measured to run."""
    fails = {
        (r["model"].lower(), r["batch_size"], r["scale_factor"], r["gpu_type"])
        for r in measured.filter(pl.col("steps_per_s") <= 0).iter_rows(named=True)
    }
    accepted = [
        [t for t in TYPES if (r["model"], r["batch_size"], r["gpus"], t) not in fails]
        for r in trace.frame.iter_rows(named=True)
    ]
    named = [None if len(types) == len(TYPES) else "|".join(types) for types in accepted]
    return Trace(trace.frame.with_columns(gpu_type=pl.Series(named, dtype=pl.String)), trace.name)


@pytest.mark.parametrize(
    "file, gpus, theirs, ours",
    [
        ("fresh_101.csv", 12, "fifo_perf", "gavel-fifo"),
        ("fresh_101.csv", 12, "finish_time_fairness_perf", "gavel-ftf"),
        ("fresh_101.csv", 12, "isolated", "gavel-isolated"),
        ("fresh_101.csv", 12, "max_min_fairness", "gavel-max-min-agnostic"),
        pytest.param("fresh_101.csv", 12, "max_min_fairness_perf", "gavel-max-min", marks=pytest.mark.slow),
        pytest.param("fresh_101.csv", 12, "max_sum_throughput_perf", "gavel-throughput", marks=pytest.mark.slow),
        pytest.param("fresh_101.csv", 12, "min_total_duration", "gavel-makespan-agnostic", marks=pytest.mark.slow),
        pytest.param("fresh_101.csv", 12, "min_total_duration_perf", "gavel-makespan", marks=pytest.mark.slow),
        ("fresh_303.csv", 12, "fifo_perf", "gavel-fifo"),
        ("fresh_303.csv", 12, "isolated", "gavel-isolated"),
        ("fresh_303.csv", 12, "max_min_fairness", "gavel-max-min-agnostic"),
        pytest.param("fresh_303.csv", 12, "max_min_fairness_perf", "gavel-max-min", marks=pytest.mark.slow),
        pytest.param("fresh_303.csv", 12, "max_sum_throughput_perf", "gavel-throughput", marks=pytest.mark.slow),
        pytest.param("fresh_303.csv", 12, "min_total_duration_perf", "gavel-makespan", marks=pytest.mark.slow),
        ("physical_max_min_fairness.csv", 12, "fifo_perf", "gavel-fifo"),
        ("physical_max_min_fairness.csv", 12, "isolated", "gavel-isolated"),
        ("physical_max_min_fairness.csv", 12, "max_min_fairness", "gavel-max-min-agnostic"),
        ("physical_max_min_fairness.csv", 12, "max_min_fairness_perf", "gavel-max-min"),
        ("physical_max_min_fairness.csv", 12, "finish_time_fairness_perf", "gavel-ftf"),
        ("msr_seed0_ed69ec.csv", 36, "fifo_perf", "gavel-fifo"),
        ("msr_seed0_ed69ec.csv", 36, "max_min_fairness", "gavel-max-min-agnostic"),
    ],
)
def test_mean_completion_time(
    shared_data: Path, measured: pl.DataFrame, file: str, gpus: int, theirs: str, ours: str
) -> None:
    told = pl.read_csv(shared_data / "peers" / "results.csv").filter(
        pl.col("peer") == "gavel", pl.col("trace") == file, pl.col("policy") == theirs
    )["avg_jct_s"][0]
    trace = get_importer("gavel").run([shared_data / "peers" / "gavel" / file], on_error="fail").trace
    cluster = Cluster(tuple(Node(t, t, gpus) for t in TYPES))
    settings = Settings.ideal(perf="table", reference_type="v100")
    jobs = Engine(restricted(trace, measured), cluster, create(f"{ours}:authors=true"), settings).run().jobs
    assert (jobs["finish_s"] - jobs["submit_s"]).mean() == pytest.approx(told, rel=0.02)


@pytest.mark.parametrize(
    "theirs, ours, exact",
    [
        ("fifo_perf", "gavel-fifo", 0.9),
        ("isolated", "gavel-isolated", 0.5),
        ("max_min_fairness", "gavel-max-min-agnostic", 0.35),
    ],
)
def test_many_jobs_end_at_the_same_second(
    shared_data: Path, measured: pl.DataFrame, theirs: str, ours: str, exact: float
) -> None:
    folder = shared_data / "peers" / "gavel"
    told = pl.read_csv(folder / "fresh_303_jct.csv").filter(pl.col("policy") == theirs).drop_nulls("jct_s")
    trace = get_importer("gavel").run([folder / "fresh_303.csv"], on_error="fail").trace
    cluster = Cluster(tuple(Node(t, t, 12) for t in TYPES))
    settings = Settings.ideal(perf="table", reference_type="v100")
    jobs = Engine(restricted(trace, measured), cluster, create(f"{ours}:authors=true"), settings).run().jobs
    jct = dict(zip(jobs["job_id"], (jobs["finish_s"] - jobs["submit_s"]).to_list(), strict=True))
    near = [abs(jct[str(job)] / jct_s - 1) < 1e-3 for job, jct_s in told.select("job_id", "jct_s").iter_rows()]
    assert sum(near) >= exact * len(near)
