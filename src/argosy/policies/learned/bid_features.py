"""What argonaut knows of bids: features of each bid, of its job and of the cluster, for deciding and for training.

All are logarithms, flags or shares of about the size of 1, and none depends on the number of jobs, nodes or GPU types,
so that one set of weights serves all clusters. Times are in reference seconds: at the size that a job asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import Context, Overhead, View
from argosy.policies.base import Floats
from argosy.policies.common.candidates import Candidates

BID = (
    "log effective speed",  # with the time that changing to it costs taken off
    "is what the job has now, where changes cost time",
    "log GPUs",
    "log (1 + cost of the change / work left)",
    "log speed per GPU, over the job's best",
    "log speed, over the job's best",
    "share of the type's GPUs",
    "log speed per GPU of the type, over the mean of the types",
)
JOB = (
    "log work left",
    "work is declared",
    "log work done",
    "log GPUs asked for",
    "runs",
    "log waiting time",
    "log age",
    "log of its largest size over its smallest",
    "log preemptions",
    "asks for a share of a GPU",
    "has parameter servers",
    "log best speed",
    "log age over work done",
    "log time since its start",
    "log work left, if it is declared",
    "log work left, times the load",
    "log work left, times the share of jobs that are elastic",
)
CLUSTER = (
    "log GPUs asked for over GPUs",
    "log waiting jobs",
    "log GPUs",
    "has several GPU types",
    "share of jobs whose work is declared",
    "share of jobs that are elastic",
    "log cost of a start",
    "mean log work left",
)
Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BidFeatures:
    """Features of all bids of a view."""

    bid: Matrix  # [bids, len(BID)]
    job: Matrix  # [jobs, len(JOB)]
    cluster: Matrix  # [len(CLUSTER)]


class BidFeatureReader:
    """Reads features off a view and the candidates of its jobs."""

    def __init__(self, context: Context) -> None:
        types = len(context.gpu_types)
        installed = [context.node_gpus[context.node_types == t].sum() for t in range(types)]
        self._of_type = np.maximum(np.array(installed, np.float64), 1.0)
        self._gpus = max(float(context.total_gpus), 1.0)
        self._start_s = context.costs()[:, Overhead.START]

    def read(self, view: View, candidates: Candidates, left: Floats) -> BidFeatures:
        """Return the features; `left` is the work that each job is thought to have left."""
        from argosy.policies.learned.kernels.bid_values import bid_features  # imports Numba

        jobs, c, n = view.jobs, candidates, len(view.jobs)
        found = BidFeatures(np.empty((len(c.job), len(BID))), np.empty((n, len(JOB))), np.empty(len(CLUSTER)))
        bid_features(
            view.now,
            self._gpus,
            float(np.add.reduce(self._start_s)) / len(self._start_s),
            self._of_type,
            c.job,
            c.type,
            c.gpus,
            c.speed,
            c.overhead_s,
            c.present,
            left,
            jobs.submitted,
            jobs.declared_s,
            jobs.done_s,
            jobs.gpus,
            jobs.min_gpus,
            jobs.max_gpus,
            jobs.state,
            jobs.waiting_s,
            jobs.started,
            jobs.preemptions,
            jobs.ps_kind,
            np.empty((n, len(self._of_type))),
            np.empty((n, 2)),
            found.bid,
            found.job,
            found.cluster,
        )
        return found
