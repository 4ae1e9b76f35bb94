"""First in, first out.

Decision: the order of submission. `fifo` blocks behind a job that does not fit; `fifo-backfill` goes on
with those that do.
State used: submit times.
Parameters: none.
Differences from the paper: back-filling is greedy; it makes no reservation for the job at the head.
References: the default of most cluster managers.

    key(j) = submitted(j)
"""

from __future__ import annotations

from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy, register


@register("fifo", "first come, first served; nobody overtakes")
class Fifo(Policy):
    static = True
    eager = True
    backfill = False

    def rank(self, view: View) -> Floats:
        return view.jobs.submitted


@register("fifo-backfill", "first come, first served; those that fit may overtake those that do not")
class FifoBackfill(Fifo):
    backfill = True
