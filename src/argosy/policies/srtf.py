"""Run the job with the shortest remaining time first, with preemption.

Decision: the job with the least expected time left runs first (srtf), or the one with the least expected
GPU-time left (srsf).
State used: the estimate of what is left (exact with the oracle estimator); for srsf also requested GPUs.
Parameters: none.
Differences from the paper: none; preemption is damped by a minimum run time, as for all policies.
References: Schrage 1968, the usual upper bound for mean completion time; Tiresias (NSDI'19) for srsf.

    srtf:  key(j) = expected_left_s(j)
    srsf:  key(j) = expected_left_s(j) · gpus(j)
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy, register


@register("srtf", "shortest remaining time first, preemptive")
class Srtf(Policy):
    uses = frozenset({"estimate"})
    key = "expected_left_s"
    preemptive = True
    eager = True


@register("srsf", "shortest remaining service (GPU-time) first, preemptive", "Tiresias, NSDI'19")
class Srsf(Policy):
    uses = frozenset({"demand", "estimate"})
    preemptive = True
    eager = True

    def rank(self, view: View) -> Floats:
        gpus = view.jobs.gpus
        # CPU-only jobs are left out of the product: with an unknown length it would be ∞ · 0
        gpu_s = np.zeros(len(gpus))
        np.multiply(view.jobs.expected_left_s, gpus, out=gpu_s, where=gpus > 0)
        return gpu_s
