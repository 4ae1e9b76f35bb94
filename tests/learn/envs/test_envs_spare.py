"""`under="grow-when-spare"` in an environment: a learner sizes jobs, and spare GPUs are added to what it decides."""

from __future__ import annotations

import polars as pl
import pytest

from argosy import Cluster, Job, Settings, Trace
from argosy.errors import InputError
from argosy.learn.envs.cluster import ClusterEnv
from argosy.learn.envs.source import Fixed
from argosy.sim.metrics import metrics
from argosy.sim.result import EventKind

UNDER = "grow-when-spare:reserve=0:idle=0"


def source() -> Fixed:
    jobs = [
        Job("takes", 0, 7200, 2, quality="average", spare_gpus=2),
        Job("elastic", 1800, 1800, 2, min_gpus=1, max_gpus=3),
        Job("late", 4000, 600, 1, min_gpus=1, max_gpus=2),
    ]
    return Fixed(Trace.of_jobs(jobs), Cluster.uniform(1, gpus=4), Settings.ideal())


def run(env: ClusterEnv) -> dict[str, float]:
    env.reset(seed=0)
    over = False
    while not over:
        *_, terminated, truncated, _ = env.step(env.advice())
        over = terminated or truncated
    return metrics(env.result())


@pytest.mark.parametrize("use", ["replicas", "growth", "nobody"])
def test_spare_gpus_are_added_to_what_a_learner_decides(use: str) -> None:
    env = ClusterEnv(source(), "size", under=f"{UNDER}:use={use}", jobs=4, cap=4, slot_s=600)
    found, plain = run(env), run(ClusterEnv(source(), "size", under="fifo", jobs=4, cap=4, slot_s=600))
    assert found["completed"] == 3 and found["jct_others_mean_s"] <= plain["jct_others_mean_s"] + 2
    assert (found["spare_gpu_h"] > 0.2) == (use != "nobody")
    assert (env.result().events.filter(pl.col("kind") == EventKind.GROW).height > 0) == (use == "growth")


def test_on_autopilot_the_whole_policy_decides() -> None:
    env = ClusterEnv(source(), "joint", under=UNDER, autopilot=True, jobs=4, cap=4)
    assert run(env)["spare_gpu_h"] > 0.2


def test_a_learner_that_gives_no_sizes_is_refused() -> None:
    env = ClusterEnv(source(), "pick", under=UNDER, jobs=4)
    with pytest.raises(InputError, match="sizes"):
        env.reset(seed=0)
