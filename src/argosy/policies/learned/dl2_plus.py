"""dl2+: it solves DL2's problem with one small network that is applied to every job.

Decision: as in DL2, units are granted one by one in every time slot. The same small network, which also sees the mean
over all jobs, gives each job's next worker, server or pair a score; the highest goes first, and none below 0 is
granted, except a job's smallest size, if there is room. So the weights fit any number of jobs and any cluster, and
equal jobs are treated equally.
State used: as DL2, and time slots since the job arrived, GPUs and CPUs of the cluster per job present.
Parameters: `weights`, a file or the name of shipped ones (`argosy zoo`); `slot_s`, the length of a time slot;
`newcomers`, jobs that come between two time slots: they `start` at their smallest size on what is free, or `wait`, as
in the paper; `guard`, time slots after which a waiting job gets its smallest size before all others; `under`, another
policy that orders, starts, stops and places the jobs.
Differences from the paper: the network, its context columns, and the order in which jobs are placed, which is that of
their first grants. docs/dl2.md says how the shipped weights were made, and how the two compare.
References: after Peng et al., DL2, TPDS 2021, and Mao et al., Decima, SIGCOMM'19.

    h_j = relu(W1 x_j + b1);  e_j = W2 h_j + Wc mean(h) + b2
    scores(j, w, u) = W5 relu(W4 relu(e_j + W3 s(w, u)) + b4) + b5
"""

from __future__ import annotations

from argosy.policies.base import register
from argosy.policies.learned.networks import ScoreNetwork
from argosy.policies.learned.rules import GUARD, GrantRules
from argosy.policies.learned.sizer import UnitSizer


@register("dl2+", "a learned score for the next worker or server of every job", "after Peng et al., TPDS 2021")
class Dl2Plus(UnitSizer):
    """The policy dl2+: it runs every job for which there is room, and places jobs in the order of first grants."""

    def __init__(
        self,
        weights: str | ScoreNetwork = "dl2+",
        slot_s: float = 1200.0,
        newcomers: str = "start",
        guard: float = GUARD,
        under: str = "",
    ) -> None:
        rules = GrantRules(guard, score_floor=True, by_first_grant=True, newcomers=newcomers)
        super().__init__(ScoreNetwork.find(weights), slot_s, rules, under)
