"""DL2: a network that grants workers and parameter servers one by one.

Decision: at the beginning of every time slot all resources are divided again. The network sees the first J jobs in
order of arrival and chooses one action: one more worker, one more server or one of both for one of them, or to stop.
Each grant changes its next input. After it stops, the next J jobs follow. The likeliest possible action is taken.
State used: of each job its type (one-hot), time slots it has run, work left in time slots, and the share of its
dominant resource, workers and servers granted so far in this time slot; not what is free in the cluster.
Parameters: `weights`, a file or the name of shipped ones (`argosy zoo`); `slot_s`, the length of a time slot;
`newcomers`, jobs that come between two time slots: they `start` at their smallest size on what is free, or `wait`, as
in the paper; `guard`, time slots after which a waiting job gets its smallest size before all others; `under`, another
policy that orders, starts, stops and places the jobs.
Differences from the paper: the work left is in time slots at the size the job asked for, not in epochs. The authors'
code grants each job one worker and one server at the beginning; here the network does, and `guard` keeps a job that it
overlooks from starving. Jobs with only one size are served first. The action is the likeliest one, not sampled.
References: Peng et al., DL2, TPDS 2021; pengyanghua/DL2. docs/dl2.md says how the shipped weights were made.

    action 3i: job i +1 worker    3i+1: +1 server    3i+2: +1 of both    3J: stop;   a = argmax π(a | J × (L + 5))
"""

from __future__ import annotations

from argosy.policies.base import register
from argosy.policies.learned.networks import TableNetwork
from argosy.policies.learned.rules import GUARD, GrantRules
from argosy.policies.learned.sizer import UnitSizer


@register("dl2", "a learned network grants workers and servers one by one", "Peng et al., TPDS 2021")
class Dl2(UnitSizer):
    """The policy dl2: it serves jobs that have only one size first, and places all jobs in order of arrival."""

    def __init__(
        self,
        weights: str | TableNetwork = "dl2",
        slot_s: float = 1200.0,
        newcomers: str = "start",
        guard: float = GUARD,
        under: str = "",
    ) -> None:
        rules = GrantRules(guard, rigid_first=True, newcomers=newcomers)
        super().__init__(TableNetwork.find(weights), slot_s, rules, under)
