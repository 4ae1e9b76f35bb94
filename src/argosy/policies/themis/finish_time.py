"""Finish-time fairness: how late a job finishes compared with a fair share of the cluster, and what GPUs would change.

ρ(g) = T_shared(g) / T_ideal
T_shared(g) = age + left / speed(g, placement)
T_ideal = duration · max(1, gpus / (cluster GPUs / N)),     N: competing applications, average over its life
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import View
from argosy.policies.base import Floats, Ints
from argosy.policies.common.demands import size_range
from argosy.workload.durations import DEFAULT_S

Bools = NDArray[np.bool_]
LEAST_S = 1.0  # shorter times count as this


class Claims(NamedTuple):
    """What the value of GPUs to each job depends on."""

    age_s: Floats
    left_s: Floats  # at reference speed
    ideal_s: Floats
    low: Ints  # smallest and largest size
    high: Ints

    @classmethod
    def of(cls, view: View, competitors: Floats, total_gpus: int) -> Claims:
        jobs = view.jobs
        known = np.isfinite(jobs.expected_s)
        longest = jobs.expected_s[known].max(initial=LEAST_S) if known.any() else DEFAULT_S
        duration_s = np.maximum(np.where(known, jobs.expected_s, longest), LEAST_S)
        left_s = np.where(known, jobs.expected_left_s, longest)
        stretch = np.maximum(jobs.gpus * competitors / max(total_gpus, 1), 1.0)
        return cls(view.now - jobs.submitted, left_s, duration_s * stretch, *size_range(view))


class Pool(NamedTuple):
    """The GPUs that are auctioned, by type."""

    gpus: Ints
    on_a_node: Ints  # the largest number on one node
    in_a_rack: Ints

    @classmethod
    def of(cls, view: View, rows: Ints, types: int) -> Pool:
        """Collect the GPUs that are free or held by these jobs, on nodes that no queue has reserved."""
        nodes = view.nodes
        free = nodes.free.copy()
        for row in rows.tolist():
            for part in view.placement(row):
                free[part.node] += part.devices.bit_count()
        free[(nodes.state != 0) | (nodes.owner >= 0)] = 0
        gpus, on_a_node, in_a_rack = (np.zeros(types, np.int64) for _ in range(3))
        for t in range(types):
            here = nodes.type == t
            gpus[t], on_a_node[t] = free[here].sum(), free[here].max(initial=0)
            in_a_rack[t] = np.bincount(nodes.rack[here], free[here], 1).max()
        return cls(gpus, on_a_node, in_a_rack)

    def level(self, gpu_type: int, gpus: Ints) -> Ints:
        """Return the widest boundary that this many GPUs have to cross: 0 island, 1 node, 2 rack, 3 cluster."""
        wide = (gpus > 1) * 1 + (gpus > self.on_a_node[gpu_type]) + (gpus > self.in_a_rack[gpu_type])
        return np.asarray(wide, np.int64)


def time_shared(age_s: Floats, left_s: Floats, fast: Floats) -> Floats:
    """Return a job's age at its end if it goes on at this speed; inf where it makes no progress."""
    never = np.full(np.broadcast_shapes(left_s.shape, fast.shape), np.inf)
    return np.asarray(np.maximum(age_s + np.divide(left_s, fast, out=never, where=fast > 0), LEAST_S))


def speed(view: View, rows: Ints, gpu_type: int, gpus: Ints, level: Ints) -> Floats:
    """Return the seconds of reference work that jobs do per second."""
    jobs = view.jobs
    rate = view.profile.rate(jobs.kind[rows], gpu_type, gpus, level)
    servers = jobs.ps_kind[rows]
    if (servers >= 0).any():
        rate = np.where(servers >= 0, view.profile.ps_rate(np.maximum(servers, 0), jobs.ps[rows], gpus), rate)
    share = np.where(jobs.gpus[rows] < 1, jobs.gpus[rows], 1.0)
    return np.asarray(rate * share / np.maximum(jobs.reference_rate[rows], 1e-300))


def options(low: Ints, high: Ints, most: int, count: int) -> Ints:
    """Return the sizes to bid for: 0, then `count` from the smallest to the largest (only one if they are equal)."""
    steps = np.linspace(0.0, 1.0, count if (high > low).any() else 1)
    grid = np.rint(low[:, None] * (high / low)[:, None] ** steps).astype(np.int64)
    return np.concatenate([np.zeros((len(low), 1), np.int64), np.minimum(grid, most)], axis=1)


def looked_up(names: Ints, values: Floats, wanted: Ints, otherwise: float) -> Floats:
    """Look up values in a table with sorted names; names that are not in it get `otherwise`."""
    if not len(names):
        return np.full(len(wanted), otherwise)
    at = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    return np.where(names[at] == wanted, values[at], otherwise)
