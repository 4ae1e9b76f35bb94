"""Shortest job first, but jobs that wait gain on later ones.

Decision: the job with the shortest expected duration starts first, and every second of waiting makes a job count as
`patience` seconds shorter, so that long jobs do not starve.
State used: submit times and the estimate of the duration.
Parameters: `patience`, seconds of duration that one second of waiting makes up for.
Differences from the paper: there is no paper; this is the example of docs/add-a-policy.md.
References: ageing, in any textbook on operating systems.

    key(j) = expected_s(j) − patience · (now − submitted(j)),    less the part that is the same for all
"""

from __future__ import annotations

from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy, register


@register("patient-sjf", "shortest job first; jobs that wait gain on later ones")
class PatientSjf(Policy):
    uses = frozenset({"demand", "estimate"})
    static = True  # without `now`, the rank is fixed when a job arrives
    eager = True

    def __init__(self, patience: float = 0.5) -> None:
        self.patience = patience

    def rank(self, view: View) -> Floats:
        key: Floats = view.jobs.expected_s + self.patience * view.jobs.submitted
        return key
