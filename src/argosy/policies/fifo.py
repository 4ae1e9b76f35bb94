"""Run jobs in the order of submission: first in, first out.

Decision: jobs run in the order of submission. With `fifo` no job overtakes one that does not fit; with `fifo-backfill`
jobs that fit do.
State used: submit times.
Parameters: none.
Differences from the paper: back-filling is greedy; it makes no reservation for the job at the head.
References: the default of most cluster managers.

    key(j) = submitted(j)
"""

from __future__ import annotations

from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy, register


@register("fifo", "first come, first served; no job overtakes another")
class Fifo(Policy):
    static = True
    eager = True
    backfill = False

    def rank(self, view: View) -> Floats:
        return view.jobs.submitted


@register("fifo-backfill", "first come, first served; jobs that fit may overtake those that do not")
class FifoBackfill(Fifo):
    backfill = True
