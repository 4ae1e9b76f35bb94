"""The size up to which a job can grow, unit by unit, without becoming slower."""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, View
from argosy.policies.base import Ints
from argosy.policies.common.node_shapes import largest_node_gpus
from argosy.policies.common.speeds import AllReduceSpeeds
from argosy.slack import RELATIVE_SLACK


class GrowthLimit:
    """Finds growth limits from the profile: speeds with as many servers as workers, or on GPUs alone."""

    def __init__(self, context: Context) -> None:
        self._node_gpus = largest_node_gpus(context)
        self._known: dict[tuple[int, ...], int] = {}

    def most(self, view: View, low: Ints, high: Ints) -> Ints:
        """Return the largest size that each job reaches from `low` without ever becoming slower; at most `high`."""
        jobs = view.jobs
        types = AllReduceSpeeds(view.profile, self._node_gpus).best_types(jobs.kind, jobs.types)
        distinct, which = np.unique(np.stack([jobs.ps_kind, jobs.kind, types, low, high]), axis=1, return_inverse=True)
        for key in map(tuple, distinct.T.tolist()):
            if key not in self._known:
                self._known[key] = self._limit(view, *key)
        return np.array([self._known[tuple(key)] for key in distinct.T.tolist()], np.int64)[which.ravel()]

    def _limit(self, view: View, ps_kind: int, kind: int, gpu_type: int, low: int, high: int) -> int:
        sizes = np.arange(low, high + 1)
        if ps_kind >= 0:
            speed = view.profile.ps_rate(ps_kind, sizes, sizes)
        else:
            times = AllReduceSpeeds(view.profile, self._node_gpus).times(kind, gpu_type, high)
            speed = 1.0 / np.array(times)[sizes]
        slower = np.flatnonzero(speed[1:] < speed[:-1] * (1.0 - RELATIVE_SLACK))
        return low + int(slower[0]) if len(slower) else high
