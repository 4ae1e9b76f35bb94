"""Run the job with the shortest remaining time first, with preemption.

Decision: the job with the least expected time left runs first (srtf), or the one with the least expected
GPU-time left (srsf).
State used: the estimate of what is left (exact with the oracle estimator); for srsf also requested GPUs.
Parameters: none.
Differences from the paper: none; preemption is damped by a minimum run time, as for all policies.
References: Schrage 1968, the usual upper bound for mean completion time; Tiresias (NSDI'19) for srsf.

    srtf:  key(j) = expected_left_s(j)
    srsf:  key(j) = expected_left_s(j) · gpus(j), and 0 for CPU-only jobs
"""

from __future__ import annotations

from argosy.policies.base import Policy, register


@register("srtf", "shortest remaining time first, preemptive")
class Srtf(Policy):
    uses = frozenset({"estimate"})
    key = "expected_left_s"
    preemptive = True
    eager = True


@register("srsf", "shortest remaining service (GPU-time) first, preemptive", "Tiresias, NSDI'19")
class Srsf(Policy):
    uses = frozenset({"demand", "estimate"})
    key, key_factor = "expected_left_s", "gpus"
    preemptive = True
    eager = True
