"""Judging in the shadow: what completion times a policy would have had with the jobs of a log, by simulation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from argosy.cluster.cluster import Cluster
from argosy.learn.envs.source import Fixed
from argosy.learn.errors import TrainingError
from argosy.learn.training.score import Jobs, completion_times_s
from argosy.policies.base import Policy
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace


class Score(NamedTuple):
    """How a policy did in the shadow; smaller is better."""

    mean_s: float
    p99_s: float


def judge(policy: Policy, trace: Trace, cluster: Cluster, settings: Settings) -> Score:
    """Run the jobs under a policy, and return its mean completion time and the 99th percentile."""
    spent = completion_times_s(policy, Jobs(Fixed(trace, cluster, settings), trace, 0.0), settings.seed)
    score = Score(float(spent.mean()), float(np.quantile(spent, 0.99)))
    if not np.isfinite(score.mean_s):
        raise TrainingError(
            f"the mean completion time in the shadow is {score.mean_s}", hint="keep the present weights"
        )
    return score
