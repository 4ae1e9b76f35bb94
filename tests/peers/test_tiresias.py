"""The authors' simulator, answered to the second.

Their semantics: no overheads, whole seconds, GPUs are counted and not placed, ends come before arrivals.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from argosy.cluster.cluster import Cluster
from argosy.policies.base import Policy, create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.importers import get_importer


def completion(folder: Path, file: str, nodes: int, policy: Policy) -> tuple[float, float, float]:
    """Mean and p99 of the completion times, and the makespan."""
    trace = get_importer("tiresias").run([folder / "peers" / "tiresias" / file], on_error="fail").trace
    jobs = Engine(trace, Cluster.uniform(nodes, 4), policy, Settings.ideal()).run().jobs
    jct = np.sort((jobs["finish_s"] - jobs["submit_s"]).to_numpy())
    makespan = float((jobs["finish_s"].to_numpy()).max())
    return float(jct.mean()), float(jct[int(0.99 * len(jct))]), makespan


def told(folder: Path, file: str, policy: str) -> tuple[float, float, float]:
    rows = pl.read_csv(folder / "peers" / "results.csv").filter(
        pl.col("trace").str.starts_with(file), pl.col("policy") == policy
    )
    return tuple(float(rows[column][0]) for column in ("avg_jct_s", "p99_jct_s", "makespan_s"))  # type: ignore[return-value]


@pytest.mark.parametrize("file, nodes, digits", [("60_job.csv", 4, 1), ("syn4000_g128.csv", 32, 0)])
@pytest.mark.parametrize("theirs, ours", [("fifo (count)", "fifo"), ("shortest-gpu (count)", "srsf")])
def test_completion_times_to_the_second(
    shared_data: Path, file: str, nodes: int, digits: int, theirs: str, ours: str
) -> None:
    mean, p99, makespan = completion(shared_data, file, nodes, create(ours))
    assert (round(mean, digits), p99, makespan) == told(shared_data, file, theirs)
