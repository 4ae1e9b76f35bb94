"""Tetris: start the jobs that fit the free resources best, and prefer those with little work left.

Decision: of the jobs that wait, the one with the highest score starts first. The score is the alignment of
the job's demand with the free resources, minus a multiple of the work that it has left. Demands and free
amounts are fractions of the cluster's GPUs, CPUs and memory, so that no unit dominates.
State used: demands, free resources of the nodes that are up, the estimate of the time left.
Parameters: `weight`, how much short work counts against alignment (1: both equally on average, 0: alignment
alone); `dl2`, the score of DL2's code, which *adds* demand × remaining fraction and so prefers jobs with
more work left.
Differences from the paper: alignment is with the cluster's free resources instead of one machine's, and is
computed once per decision instead of after every single start; network and disk are not modelled.
References: Grandl et al., Multi-resource packing for cluster schedulers, SIGCOMM'14; DL2 (pengyanghua/DL2)
for `dl2`.

    a(j) = Σ_r free_r · demand_jr,    p(j) = expected_left_s(j) · Σ_r demand_jr
    key(j) = −(a(j) − weight · (ā / p̄) · p(j))                        ā, p̄: means over the active jobs
    dl2:  key(j) = −(a(j) + weight · Σ_r demand_jr · (1 − progress(j)))
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Policy, register
from argosy.policies.common.demands import cluster_totals, free
from argosy.policies.common.estimates import longest_where_unknown


@register("tetris", "best aligned with the free resources and short work first", "Grandl et al., SIGCOMM'14")
class Tetris(Policy):
    uses = frozenset({"demand", "nodes", "estimate"})
    eager = True

    def __init__(self, weight: float = 1.0, dl2: bool = False) -> None:
        if not 0 <= weight < np.inf:
            raise InputError(f"tetris: weight must be a number ≥ 0, is {weight}")
        self.weight, self.dl2 = weight, dl2
        if dl2:
            self.uses = frozenset({"demand", "nodes", "progress", "declared"})

    def reset(self, context: Context) -> None:
        totals = cluster_totals(context)
        self._per_total = np.divide(1.0, totals, out=np.zeros(3), where=totals > 0)

    def rank(self, view: View) -> Floats:
        jobs = view.jobs
        demand = np.stack([jobs.gpus, jobs.cpus, jobs.memory_gib])
        alignment = (free(view) * self._per_total * self._per_total) @ demand
        size = self._per_total @ demand
        if self.dl2:
            undone = np.clip(np.nan_to_num(1.0 - jobs.done_s / jobs.declared_s, nan=1.0), 0.0, 1.0)
            return np.asarray(-(alignment + self.weight * size * undone))
        work = size * longest_where_unknown(jobs.expected_left_s)
        scale = self.weight * alignment.sum() / total if (total := work.sum()) > 0 else 0.0
        return np.asarray(scale * work - alignment, np.float64)
