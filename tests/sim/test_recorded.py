"""The past as a run: `actual` shows what the log says, whatever the cluster."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError
from argosy.report.comparison import Comparison
from argosy.report.reproduction import reproduction_lines, reproductions
from argosy.sim.metrics import metrics
from argosy.sim.recorded import ACTUAL
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.importers import get_importer
from argosy.workload.trace import Job, Trace


def cluster(nodes: int = 4, gpus: int = 8, gpu_type: str = "v100") -> Cluster:
    return Cluster(tuple(Node(f"n{i}", gpu_type, gpus, 64.0, 512.0) for i in range(nodes)), "test")


def moment(t: int) -> str:
    return f"2024-03-{1 + t // 86400:02d}T{clock(t % 86400)}"


def clock(t: int) -> str:
    return f"{t // 3600:02d}:{t // 60 % 60:02d}:{t % 60:02d}"


def slurm_log(path: Path, jobs: int = 300) -> Path:
    """Write what a cluster with one GPU would have logged, first come, first served, with a requeue now and then."""
    draw = random.Random(7)
    lines, free_at, submit = ["JobID|User|JobName|Partition|Submit|Start|End|Elapsed|State|AllocTRES"], 0, 0
    for job in range(jobs):
        submit += draw.randrange(200)
        for state in ("PREEMPTED", "COMPLETED") if job % 10 == 3 else ("COMPLETED",):
            start = max(free_at, submit)
            free_at = start + draw.randrange(1, 300)
            times = "|".join(map(moment, (submit, start, free_at)))
            lines.append(f"{job}|u{job % 5}|n|gpu|{times}|{clock(free_at - start)}|{state}|gres/gpu=1")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_figures_are_those_of_the_raw_log(tmp_path: Path) -> None:
    path = slurm_log(tmp_path / "jobs.txt")
    trace = get_importer("sacct").run([path], on_error="fail").trace
    found = metrics(simulate(trace, cluster(1, 1), ACTUAL))

    raw = pl.read_csv(path, separator="|", try_parse_dates=True).with_columns(
        held=(pl.col("End") - pl.col("Start")).dt.total_seconds()
    )
    times = pl.col("Submit").min(), pl.col("Start").min(), pl.col("End").max(), pl.col("held").sum()
    jobs = raw.group_by("JobID").agg(times).with_columns(jct=(pl.col("End") - pl.col("Submit")).dt.total_seconds())
    span = (raw["End"].max() - raw["Submit"].min()).total_seconds()  # type: ignore[operator]
    wait = (jobs["Start"] - jobs["Submit"]).dt.total_seconds()

    assert jobs.height == found["jobs"] == 300
    assert found["jct_mean_s"] == pytest.approx(jobs["jct"].mean())
    assert found["jct_p90_s"] == pytest.approx(jobs["jct"].quantile(0.9, "linear"))
    assert found["first_wait_mean_s"] == pytest.approx(wait.mean())
    assert found["queueing_mean_s"] == pytest.approx((jobs["jct"] - jobs["held"]).mean())
    assert found["held_gpu_h"] == pytest.approx(raw["held"].sum() / 3600)
    assert found["utilisation_held"] == pytest.approx(raw["held"].sum() / span)
    assert found["preemptions"] == (raw["State"] == "PREEMPTED").sum() == 30


def test_a_simulation_of_what_was_in_charge_reproduces_the_past() -> None:
    jobs = [Job(f"j{i}", 10.0 * i, 300.0, 8) for i in range(60)]
    exact = Settings.ideal()
    fifo = simulate(Trace.of_jobs(jobs), cluster(2), "fifo", exact).jobs
    times = fifo.select("first_start_s", "finish_s").rows()
    recorded = [Job(f"j{i}", 10.0 * i, 300.0, 8, start_s=start, end_s=end) for i, (start, end) in enumerate(times)]
    trace = Trace.of_jobs(recorded)
    runs = tuple(simulate(trace, cluster(2), policy, exact) for policy in (ACTUAL, "smallest-first", "fifo"))
    assert metrics(runs[0])["jct_mean_s"] == pytest.approx(metrics(runs[2])["jct_mean_s"])
    assert metrics(runs[0])["utilisation_held"] == pytest.approx(metrics(runs[2])["utilisation_held"])
    (best, _) = reproductions(Comparison(runs))
    assert (best.jct_error, best.near, best.wait_correlation) == pytest.approx((0.0, 1.0, 1.0))
    assert "fifo: mean JCT +0% against what happened" in "\n".join(reproduction_lines(Comparison(runs)))
    assert runs[0].notes == ()


def test_a_cluster_that_cannot_have_run_the_jobs_is_said() -> None:
    jobs = [Job(f"j{i}", 0.0, 100.0, 8, start_s=0.0, end_s=100.0) for i in range(3)]
    (note,) = simulate(Trace.of_jobs(jobs), cluster(2), ACTUAL).notes
    assert "cannot explain what was run: 33.3% of the GPU-hours did not fit" in note
    wanted = [Job("a", 0.0, 100.0, 8, gpu_type="a100", start_s=0.0, end_s=100.0)]
    both = Cluster((*cluster(1).nodes, Node("a", "a100", 4, 64.0, 512.0)), "mixed")
    (note,) = simulate(Trace.of_jobs(wanted), both, ACTUAL).notes
    assert "found no room on a GPU type that it accepts" in note


def test_shares_cpu_jobs_and_jobs_that_never_started() -> None:
    trace = Trace.of_jobs(
        [
            *(Job(f"half{i}", 0.0, 10.0, 0.5, start_s=0.0, end_s=10.0) for i in range(2)),
            Job("cpu", 0.0, 20.0, 0, cpus=4, start_s=5.0, end_s=25.0),
            Job("never", 0.0, 20.0, 1),
            Job("instant", 1.0, 0.0, 1, start_s=2.0, end_s=2.0),
            Job("large", 0.0, 10.0, 12, start_s=0.0, end_s=10.0, status="failed"),
        ]
    )
    run = simulate(trace, cluster(2), ACTUAL)
    found = metrics(run)
    assert (found["completed"], found["failed"], found["unfinished"]) == (4, 1, 1)
    assert found["held_gpu_h"] * 3600 == pytest.approx(10 + 120)
    assert run.notes == ()
    assert found["first_wait_mean_s"] == pytest.approx((0 + 0 + 5 + 1 + 0) / 5)


def test_a_trace_without_starts_has_no_past() -> None:
    with pytest.raises(InputError, match="does not say when jobs really started") as caught:
        simulate(Trace.of_jobs([Job("a", 0.0, 1.0, 1)]), cluster(), ACTUAL)
    assert "argosy import" in str(caught.value)


def test_attempts_out_of_order_are_refused() -> None:
    jobs = [Job("a", 0.0, 1.0, 1, start_s=0.0, end_s=9.0, attempts="5-9 0-2")]
    with pytest.raises(InputError, match="job 'a': its attempts '5-9 0-2' are not in the order of time"):
        simulate(Trace.of_jobs(jobs), cluster(), ACTUAL)
