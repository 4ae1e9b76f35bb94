"""The base heuristics of RLTune: they order the queue that the network sees, and are what it is rewarded for beating.

Any registered policy that only ranks can be one. Two more of the authors' are here:

    slurm     1000 · wait / 12 h + 1000 · (1 − GPUs / 160), the largest first: Slurm's multifactor priority
    f1        log10(expected run time) · GPUs + 870 · log10(submit time), the smallest first (Carastan-Santos and
              de Camargo, SC'17)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Policy, create
from argosy.policies.common.estimates import longest_where_unknown

OWN = ("slurm", "f1")
SLURM_WAIT_S, SLURM_GPUS = 12 * 3600.0, 160.0
F1_SUBMIT = 870.0


class Heuristic(Policy):
    """An order of the queued jobs."""

    name = "base heuristic"


class Slurm(Heuristic):
    def rank(self, view: View) -> Floats:
        jobs = view.jobs
        wait = np.minimum((view.now - jobs.submitted) / SLURM_WAIT_S, 1.0)
        return np.asarray(-1000.0 * wait - 1000.0 * (1.0 - jobs.gpus / SLURM_GPUS))


class F1(Heuristic):
    uses = frozenset({"demand", "estimate"})

    def rank(self, view: View) -> Floats:
        jobs = view.jobs
        expected_s = np.maximum(longest_where_unknown(jobs.expected_s), 1.0)
        return np.asarray(np.log10(expected_s) * jobs.gpus + F1_SUBMIT * np.log10(np.maximum(jobs.submitted, 1.0)))


class Registered(Heuristic):
    """A registered policy that only ranks."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.uses = policy.uses

    def reset(self, context: Context) -> None:
        self._policy.reset(context)

    def rank(self, view: View) -> Floats:
        return self._policy.rank(view)

    def state(self) -> dict[str, Any]:
        return self._policy.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._policy.restore(state)


def find_heuristic(base: str) -> Heuristic:
    """Return a base heuristic by name; raise InputError if the policy does more than rank."""
    if base in OWN:
        return Slurm() if base == "slurm" else F1()
    policy = create(base)
    more = sorted(policy.answers - {"rank", "wake_at"})
    if more or not (policy.key or "rank" in policy.answers):
        hint = f"choose one that only ranks, such as fifo, sjf or smallest-first, or one of {', '.join(OWN)}"
        what = f"rltune: {base!r} cannot order the queue, because it also answers {', '.join(more)}"
        raise InputError(what, hint=hint)
    return Registered(policy)
