"""DL2: a network that grants workers and parameter servers one by one.

Decision: in every slot, from nothing, the network is shown the first J jobs in order of arrival and names one action:
one more worker, one more server or one of both for one of them, or that it is enough. What it grants changes what it
sees next. Then the next J jobs follow. The likeliest possible action is taken.
State used: of each job its type (one-hot), slots it has run, work left in slots, and the share of its dominant
resource, workers and servers granted so far in this slot; not what is free in the cluster.
Parameters: `weights`, a file or the name of shipped ones (`argosy zoo`); `slot_s`; `newcomers`, between two slots:
`start` at their smallest size on what is free, or `wait`, as in the paper; `guard`, slots after which a job that waits
gets its smallest size before all others; `under`, another policy that orders, starts, stops and places.
Differences from the paper: the work left is in slots at the size the job asked for, not in epochs. The authors' code
grants each job one worker and one server at the beginning; here the network does, and `guard` keeps a job that it
overlooks from starving. Jobs that have one size only are served first. The action is the likeliest one, not drawn.
References: Peng et al., DL2, TPDS 2021; pengyanghua/DL2. docs/learning.md says how the shipped weights were made.

    action 3i: job i +1 worker    3i+1: +1 server    3i+2: +1 of both    3J: enough;   a = argmax π(a | J × (L + 5))
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.policies.base import Ints, register
from argosy.policies.common.demands import Demands
from argosy.policies.learned.networks import TableNetwork
from argosy.policies.learned.sizer import GUARD, UnitSizer


@register("dl2", "a learned network grants workers and servers one by one", "Peng et al., TPDS 2021")
class Dl2(UnitSizer):
    def __init__(
        self,
        weights: str | TableNetwork = "dl2",
        slot_s: float = 1200.0,
        newcomers: str = "start",
        guard: float = GUARD,
        under: str = "",
    ) -> None:
        super().__init__(TableNetwork.find(weights), slot_s, newcomers, guard, under)

    def _must_run(self, needs: Demands, waits: Ints) -> NDArray[np.bool_]:
        """Also those that have one size only: there is nothing to decide for a network that sizes."""
        only = (needs.low == needs.high) & (needs.servers == 0)
        return np.asarray(super()._must_run(needs, waits) | only)
