"""dl2+: DL2's problem, with one small network for every job.

Decision: as in DL2, units one by one in every slot. Each job's next worker, server or pair has a score from the same
small network, which also sees the mean over all jobs; the highest goes first, and none below 0 is granted, but for a
job's smallest size, if there is room. So the weights fit any number of jobs and any cluster, and equal jobs are equal.
State used: as DL2, and slots since the job came, GPUs and CPUs of the cluster per job present.
Parameters: `weights`, a file or the name of shipped ones (`argosy zoo`); `slot_s`; `newcomers`, between two slots:
`start` at their smallest size on what is free, or `wait`, as in the paper; `guard`, slots after which a job that waits
gets its smallest size before all others; `under`, another policy that orders, starts, stops and places.
Differences from the paper: the network, its context and the order in which jobs are placed, which is that of
their first grants. docs/learning.md says how the shipped weights were made, and what this buys.
References: after Peng et al., DL2, TPDS 2021, and Mao et al., Decima, SIGCOMM'19.

    h_j = relu(W1 x_j + b1);  e_j = W2 h_j + Wc mean(h) + b2
    scores(j, w, u) = W5 relu(W4 relu(e_j + W3 s(w, u)) + b4) + b5
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.policies.base import Floats, Ints, register
from argosy.policies.learned.networks import Grants, ScoreNetwork
from argosy.policies.learned.sizer import GUARD, LAST, UnitSizer


@register("dl2+", "a learned score for the next worker or server of every job", "after Peng et al., TPDS 2021")
class Dl2Plus(UnitSizer):
    def __init__(
        self,
        weights: str | ScoreNetwork = "dl2+",
        slot_s: float = 1200.0,
        newcomers: str = "start",
        guard: float = GUARD,
        under: str = "",
    ) -> None:
        super().__init__(ScoreNetwork.find(weights), slot_s, newcomers, guard, under)

    def _order(self, view: View, rows: Ints, grants: Grants) -> Floats:
        key = np.full(len(view.jobs), LAST)
        key[rows] = np.where(grants.order < len(rows), grants.order, LAST)
        return key
