"""Windows of real traces: `joint` and `argonaut` against `las` and `tiresias-gittins`, each from an empty cluster.

Needs the folder of public traces (`--data`). Training never saw a real trace. One run stands behind each row.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Json, Options, Row

if TYPE_CHECKING:
    from argosy.workload.trace import Trace

SEEDS = (0,)
DAY_S = 86400.0
WINDOWS = {  # file, first and last day, nodes of eight GPUs
    "Philly, days 66–80, 40 × 8": ("philly_pass_80d", 66.0, 80.0, 40),
    "Philly, days 30–44, 40 × 8": ("philly_pass_80d", 30.0, 44.0, 40),
    "Philly, days 45–59, 40 × 8": ("philly_pass_80d", 45.0, 59.0, 40),
    "virtual cluster 7f04ca, 16 × 8": ("philly_vc_7f04ca", 0.0, 1e4, 16),
    "virtual cluster 7f04ca, 24 × 8": ("philly_vc_7f04ca", 0.0, 1e4, 24),
    "virtual cluster 2869ce, 7 × 8": ("philly_vc_2869ce", 0.0, 1e4, 7),
    "virtual cluster 2869ce, 12 × 8": ("philly_vc_2869ce", 0.0, 1e4, 12),
}
POLICIES = ("las", "tiresias-gittins", "joint", "argonaut")


def run(options: Options) -> Json:
    """Return the figures of every policy on every window; with --quick, of a day of the first."""
    from argosy.cluster.cluster import Cluster
    from argosy.errors import InputError
    from argosy.sim.metrics import metrics
    from argosy.sim.run import simulate
    from argosy.sim.settings import Settings

    if options.data is None:
        raise InputError("the windows need the public traces", hint="give their folder: --data FOLDER")
    rows: list[Json] = []
    for name, (file, first, last, nodes) in list(WINDOWS.items())[: 1 if options.quick else None]:
        trace = jobs_of(options.data, file, first, first + 1 if options.quick else last)
        for policy in POLICIES:
            found = metrics(simulate(trace, Cluster.uniform(nodes, gpus=8), policy, Settings(oversized="skip")))
            rows.append(
                {
                    "window": name,
                    "policy": policy,
                    "jobs": len(trace),
                    "jct_mean_h": found["jct_mean_s"] / 3600.0,
                    "jct_p99_h": found["jct_p99_s"] / 3600.0,
                    "restarts_per_job": found["restarts_per_job"],
                }
            )
    return {"windows": rows}


def jobs_of(data: Path, file: str, first: float, last: float) -> Trace:
    """Return the jobs that a trace has between two days."""
    from argosy.workload.trace import Trace

    return Trace.read(data / "traces" / f"{file}.csv.gz").window(first * DAY_S, last * DAY_S)


def table(figures: Json) -> list[Row]:
    """Return a row for every policy on every window."""
    found: list[Row] = [("window", "policy", "mean JCT, h", "p99, h", "restarts a job")]
    for row in figures["windows"]:
        hours = f"{row['jct_mean_h']:.2f}", f"{row['jct_p99_h']:.1f}"
        found.append((row["window"], row["policy"], *hours, f"{row['restarts_per_job']:.2f}"))
    return found
