"""Argosy beside the authors' own simulators: the same jobs, their rules, mean completion times.

Theirs are in `peers/results.csv` of the data folder. `authors=true` switches their rules on, with their mistakes; the
policy's own form beside it shows what those are worth. No overheads, speeds as measured by the authors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Json, warm

if TYPE_CHECKING:
    import polars as pl

    from argosy.sim.result import Result
    from argosy.workload.trace import Trace

GAVEL_TYPES = ("v100", "p100", "k80")
SMALL, SYN = "60_job.csv", "syn4000_g128.csv"
PHYSICAL, MSR = "physical_max_min_fairness.csv", "msr_seed0_ed69ec.csv"
SAMPLES = "yarn-gput1000.csv"
TIRESIAS = (  # file, nodes of 4 GPUs, what results.csv calls it, ours, remark
    (SMALL, 4, "fifo (count)", "fifo", ""),
    (SYN, 32, "fifo (count)", "fifo", ""),
    (SMALL, 4, "shortest-gpu (count)", "srsf", ""),
    (SYN, 32, "shortest-gpu (count)", "srsf", ""),
    (SMALL, 4, "dlas-gpu", "tiresias-las:authors=true", ""),
    (SMALL, 4, "dlas-gpu", "tiresias-las", "other rules, as for the next trace; they make no difference here"),
    (SYN, 32, "dlas-gpu (count)", "tiresias-las:authors=true", ""),
    (
        SYN,
        32,
        "dlas-gpu (count)",
        "tiresias-las",
        "other rules: demotion exactly on the threshold,"
        " waiting jobs ordered by their first start instead of a list that is kept",
    ),
    (SYN, 32, "gittins (sort order corrected)", "tiresias-gittins:authors=true:history=SAMPLES", ""),
    (
        SYN,
        32,
        "gittins (sort order corrected)",
        "tiresias-gittins:history=SAMPLES",
        "other rules: the paper's index, of S − a, and queues",
    ),
    (
        SYN,
        32,
        "gittins (sort order corrected)",
        "tiresias-gittins:quantum=best:history=SAMPLES",
        "the same with the best quantum instead of the queue's limit",
    ),
)
FRESH_101, FRESH_303 = "fresh_101.csv", "fresh_303.csv"
GAVEL = (  # file, GPUs of each type, what results.csv calls it, ours
    (PHYSICAL, 12, "fifo_perf", "gavel-fifo"),
    (PHYSICAL, 12, "isolated", "gavel-isolated"),
    (PHYSICAL, 12, "max_min_fairness", "gavel-max-min-agnostic"),
    (PHYSICAL, 12, "max_min_fairness_perf", "gavel-max-min"),
    (PHYSICAL, 12, "finish_time_fairness_perf", "gavel-ftf"),
    (MSR, 36, "fifo_perf", "gavel-fifo"),
    (MSR, 36, "max_min_fairness", "gavel-max-min-agnostic"),
    (FRESH_101, 12, "fifo_perf", "gavel-fifo"),
    (FRESH_101, 12, "isolated", "gavel-isolated"),
    (FRESH_101, 12, "max_min_fairness", "gavel-max-min-agnostic"),
    (FRESH_101, 12, "max_min_fairness_perf", "gavel-max-min"),
    (FRESH_101, 12, "max_sum_throughput_perf", "gavel-throughput"),
    (FRESH_101, 12, "min_total_duration", "gavel-makespan-agnostic"),
    (FRESH_101, 12, "min_total_duration_perf", "gavel-makespan"),
    (FRESH_101, 12, "finish_time_fairness", "gavel-ftf-agnostic"),
    (FRESH_101, 12, "finish_time_fairness_perf", "gavel-ftf"),
    (FRESH_303, 12, "fifo_perf", "gavel-fifo"),
    (FRESH_303, 12, "isolated", "gavel-isolated"),
    (FRESH_303, 12, "max_min_fairness", "gavel-max-min-agnostic"),
    (FRESH_303, 12, "max_min_fairness_perf", "gavel-max-min"),
    (FRESH_303, 12, "max_sum_throughput_perf", "gavel-throughput"),
    (FRESH_303, 12, "min_total_duration_perf", "gavel-makespan"),
    (FRESH_303, 12, "finish_time_fairness_perf", "gavel-ftf"),
    (FRESH_303, 12, "allox", "gavel-allox"),
)
OWN_ROUNDS = (
    "other rules: freed GPUs do not idle until the round ends, work is not rounded to whole steps,"
    " new jobs may run at once"
)
OWN_QUEUE = "other rules: reacts to every arrival and end at once, without rounds"
TOLERANCE = {"tiresias": 0.01, "gavel": 0.02, "pollux": 0.05}


def tiresias(data: str, quick: bool) -> Json:
    warm()
    folder = Path(data) / "peers"
    rows = []
    for file, nodes, theirs, ours, remark in TIRESIAS:
        if quick and file != SMALL:
            continue
        policy = ours.replace("SAMPLES", str(folder / "tiresias" / SAMPLES))
        jct_s = mean_jct_s(run_tiresias(folder, file, nodes, policy))
        rows.append(compared(folder, "tiresias", file, theirs, ours.replace("SAMPLES", SAMPLES), jct_s, remark))
    return {"rows": rows}


def gavel(data: str, quick: bool) -> Json:
    warm()
    register_speeds(Path(data))
    folder = Path(data) / "peers"
    rows = []
    for file, gpus, theirs, ours in GAVEL:
        if quick and file != PHYSICAL:
            continue
        own = OWN_QUEUE if ours == "gavel-fifo" else OWN_ROUNDS
        for policy, remark in ((f"{ours}:authors=true", ""), (ours, own)):
            jct_s = mean_jct_s(run_gavel(Path(data), file, gpus, policy))
            rows.append(compared(folder, "gavel", file, theirs, policy, jct_s, remark))
    return {"rows": rows}


def compared(folder: Path, peer: str, file: str, theirs: str, ours: str, jct_s: float, remark: str) -> Json:
    known = published(folder, peer, file, theirs)["avg_jct_s"]
    return {
        "system": peer.capitalize(),
        "policy": theirs,
        "ours": ours,
        "trace": file,
        "their_jct_s": known,
        "jct_s": jct_s,
        "off": jct_s / known - 1,
        "tolerance": TOLERANCE[peer],
        "authors": not remark,
        "holds": abs(jct_s / known - 1) <= TOLERANCE[peer],
        "remark": remark,
    }


def published(folder: Path, peer: str, file: str, policy: str) -> Json:
    import polars as pl

    rows = pl.read_csv(folder / "results.csv").filter(
        pl.col("peer") == peer, pl.col("trace").str.starts_with(file), pl.col("policy") == policy
    )
    return rows.row(0, named=True)


def mean_jct_s(result: Result) -> float:
    jobs = result.jobs
    return float((jobs["finish_s"] - jobs["submit_s"]).to_numpy().mean())


def run_tiresias(folder: Path, file: str, nodes: int, policy: str) -> Result:
    """Its simulator only counts GPUs."""
    from argosy.cluster.cluster import Cluster
    from argosy.sim.run import simulate
    from argosy.sim.settings import Settings
    from argosy.workload.importers import get_importer

    trace = get_importer("tiresias").run([folder / "tiresias" / file], on_error="fail").trace
    return simulate(trace, Cluster.uniform(nodes, 4, cpus=0.0, memory_gib=0.0), policy, Settings.ideal())


def run_gavel(data: Path, file: str, gpus: int, policy: str) -> Result:
    """One node for each GPU type, since its simulator knows consolidated speeds only."""
    from argosy.cluster.cluster import Cluster, Node
    from argosy.sim.run import simulate
    from argosy.sim.settings import Settings

    cluster = Cluster(tuple(Node(name, name, gpus) for name in GAVEL_TYPES))
    settings = Settings.ideal(perf="table", reference_type="v100")
    return simulate(gavel_jobs(data, file), cluster, policy, settings)


def gavel_jobs(data: Path, file: str) -> Trace:
    """A job accepts the GPU types on which it was measured to run at all."""
    import polars as pl

    from argosy.workload.importers import get_importer
    from argosy.workload.trace import Trace

    trace = get_importer("gavel").run([data / "peers" / "gavel" / file], on_error="fail").trace
    failed = {
        (r["model"].lower(), r["batch_size"], r["scale_factor"], r["gpu_type"])
        for r in measured_speeds(data).filter(pl.col("steps_per_s") <= 0).iter_rows(named=True)
    }
    accepted = []
    for job in trace.frame.iter_rows(named=True):
        demand = (job["model"], job["batch_size"], job["gpus"])
        types = [name for name in GAVEL_TYPES if (*demand, name) not in failed]
        accepted.append(None if len(types) == len(GAVEL_TYPES) else "|".join(types))
    return Trace(trace.frame.with_columns(gpu_type=pl.Series(accepted, dtype=pl.String)), trace.name)


def measured_speeds(data: Path) -> pl.DataFrame:
    import polars as pl

    return pl.read_csv(data / "throughput" / "gavel_single.csv").filter(pl.col("gpu_type").is_in(GAVEL_TYPES))


def register_speeds(data: Path) -> None:
    """Gavel's measurements, under the names of the models, in this process."""
    import polars as pl

    from argosy.perf import catalogue
    from argosy.perf.measured_speeds import Point, TableModel

    running = measured_speeds(data).filter(pl.col("steps_per_s") > 0)
    for (model,), rows in running.group_by("model", maintain_order=True):
        points = [
            Point(r["gpu_type"], r["scale_factor"], 0, r["batch_size"], r["steps_per_s"])
            for r in rows.iter_rows(named=True)
        ]
        catalogue.register(TableModel.of(str(model), points, unit="steps", per_gpu_batch=True))
