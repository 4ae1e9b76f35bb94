"""Start the job that asks for the fewest GPUs first.

Decision: of the jobs that wait, the one that asks for the fewest GPUs starts first; running jobs are left
alone.
State used: requested GPUs.
Parameters: none.
Differences from the paper: none; ties go to the earlier submission, as everywhere.
References: a baseline of the Tiresias simulator (NSDI'19).

    key(j) = gpus(j)
"""

from __future__ import annotations

from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy, register


@register("smallest-first", "fewest GPUs first; no job is preempted", "Tiresias simulator, NSDI'19")
class SmallestFirst(Policy):
    static = True
    eager = True

    def rank(self, view: View) -> Floats:
        return view.jobs.gpus
