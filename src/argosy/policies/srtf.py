"""Shortest remaining time first, preemptive.

Decision: the job with the least expected time left runs first.
State used: the estimate of what is left (exact with the oracle estimator).
Parameters: none.
Differences from the paper: none; damping by a minimum run time is the mechanism's.
References: Schrage 1968; the usual upper bound for mean completion time.

    key(j) = expected_left_s(j)
"""

from __future__ import annotations

from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy, register


@register("srtf", "shortest remaining time first, preemptive")
class Srtf(Policy):
    uses = frozenset({"estimate"})
    preemptive = True
    eager = True

    def rank(self, view: View) -> Floats:
        return view.jobs.expected_left_s


@register("srsf", "shortest remaining service (GPU-time) first, preemptive", "Tiresias, NSDI'19")
class Srsf(Policy):
    uses = frozenset({"demand", "estimate"})
    preemptive = True
    eager = True

    def rank(self, view: View) -> Floats:
        return view.jobs.expected_left_s * view.jobs.gpus
