"""Start the job with the shortest expected duration first.

Decision: of the jobs that wait, the one with the shortest expected duration starts first; running jobs are left
alone.
State used: the estimate of the whole duration (exact with the oracle estimator).
Parameters: none.
Differences from the paper: jobs are gangs instead of single tasks, so longer jobs overtake a short one that does not
fit.
References: Smith, Various optimizers for single-stage production, 1956.

    key(j) = expected_s(j)
"""

from __future__ import annotations

from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy, register


@register("sjf", "shortest expected job first; no job is preempted", "Smith 1956")
class Sjf(Policy):
    uses = frozenset({"estimate"})
    static = True
    eager = True

    def rank(self, view: View) -> Floats:
        return view.jobs.expected_s
