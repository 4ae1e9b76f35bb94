"""The same traces and policies as published simulators, with their rules: what they and Argosy need.

Their CPU seconds come with the data (`peers/results.csv`), measured on a similar machine at another time: read
the ratio as an order of magnitude. Their rules: no overheads, speeds as in the trace, GPUs are only counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import Json, Options, Row, Watch, measure, warm

SEEDS = (0,)
REPEATS = 5
TARGET_RATIO = 100.0
CASES = (  # file, what results.csv calls it, nodes, GPUs each, their policy, ours
    ("syn4000_g128.csv", "syn4000_g128.csv on 32 nodes x 4 GPUs", 32, 4, "fifo (count)", "fifo"),
    ("syn4000_g128.csv", "syn4000_g128.csv on 32 nodes x 4 GPUs", 32, 4, "shortest-gpu (count)", "srsf"),
    ("60_job.csv", "60_job.csv on 4 nodes x 4 GPUs", 4, 4, "fifo (count)", "fifo"),
    ("60_job.csv", "60_job.csv on 4 nodes x 4 GPUs", 4, 4, "shortest-gpu (count)", "srsf"),
)


def run(options: Options) -> Json:
    folder = options.data / "peers" if options.data is not None else None
    if folder is None or not (folder / "results.csv").exists():
        return {"cases": [], "note": "no peers/results.csv in the data folder: nothing to compare with"}
    return {"cases": [compare(folder, *c) for c in CASES]}


def compare(folder: Path, file: str, title: str, nodes: int, gpus: int, theirs: str, ours: str) -> Json:
    import polars as pl

    rows = pl.read_csv(folder / "results.csv")
    peer = rows.filter((pl.col("trace") == title) & (pl.col("policy") == theirs)).row(0, named=True)
    path = str(folder / "tiresias" / file)
    figures = measure("peers", "case", {"path": path, "nodes": nodes, "gpus": gpus, "policy": ours})
    spent = figures["cpu_s"]["total"]
    return {
        "trace": file,
        "peer": peer["peer"],
        "peer_policy": theirs,
        "policy": ours,
        "peer_cpu_s": peer["cpu_s"],
        "peer_jct_mean_s": peer["avg_jct_s"],
        "ratio": peer["cpu_s"] / spent,
        **figures,
    }


def case(path: str, nodes: int, gpus: int, policy: str) -> Json:
    """The median of several runs, from the file to the metrics."""
    from argosy.cluster.cluster import Cluster
    from argosy.policies.base import create
    from argosy.sim.engine import Engine
    from argosy.sim.metrics import metrics
    from argosy.sim.settings import Settings
    from argosy.workload.importers import get_importer

    warm()
    machines = Cluster.uniform(nodes, gpus, cpus=0.0, memory_gib=0.0)
    spent = []
    for _ in range(REPEATS):
        watch = Watch()
        with watch("read"):
            trace = get_importer("tiresias").run([Path(path)], on_error="fail").trace
        with watch("set_up"):
            engine = Engine(trace, machines, create(policy), Settings.ideal(seed=SEEDS[0]))
        with watch("run"):
            result = engine.run()
        with watch("metrics"):
            figures = metrics(result)
        spent.append(watch.cpu_s)
    stages = {stage: float(np.median([s[stage] for s in spent])) for stage in spent[0]}
    total = float(np.median([sum(s.values()) for s in spent]))
    return {"jobs": len(trace), "jct_mean_s": figures["jct_mean_s"], "cpu_s": {**stages, "total": total}}


def table(figures: Json) -> Sequence[Row]:
    rows: list[Row] = [
        (
            "trace",
            "peer",
            "policy",
            "their CPU s",
            "ours",
            "ratio",
            f"≥ {TARGET_RATIO:g}",
            "their mean JCT s",
            "ours",
        )
    ]
    for c in figures["cases"]:
        rows.append(
            (
                c["trace"],
                c["peer"],
                f"{c['peer_policy']} / {c['policy']}",
                f"{c['peer_cpu_s']:g}",
                f"{c['cpu_s']['total']:.4f}",
                f"{c['ratio']:.0f}×",
                "yes" if c["ratio"] >= TARGET_RATIO else "no",
                f"{c['peer_jct_mean_s']:.1f}",
                f"{c['jct_mean_s']:.1f}",
            )
        )
    return rows
