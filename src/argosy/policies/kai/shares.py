"""Divide GPUs between queues: quotas first, then the rest by priority and weight; and down the tree of queues."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from argosy.policies.base import Floats, Ints
from argosy.slack import GPU_SLACK


@dataclass(frozen=True, slots=True)
class Claims:
    """What queues ask for and are due; arrays by queue, older queues first."""

    want: Floats  # GPUs, at most the limit
    quota: Floats
    weight: Floats
    priority: Floats
    usage: Floats = field(default_factory=lambda: np.zeros(0))  # lately, as a part of the cluster; empty: none

    def of(self, queues: Ints) -> Claims:
        used = self.usage[queues] if len(self.usage) else self.usage
        return Claims(self.want[queues], self.quota[queues], self.weight[queues], self.priority[queues], used)


def divide(total: float, claims: Claims, against_usage: float = 1.0) -> Floats:
    """Return the GPUs that each queue is due; `against_usage` is how much past use counts against a queue."""
    share = np.minimum(claims.quota, claims.want)
    left = max(total - float(share.sum()), 0.0)
    fraction = np.zeros(len(share))
    for priority in np.unique(claims.priority)[::-1]:
        left = _by_weight(left, share, fraction, claims, claims.priority == priority, against_usage)
    for q in np.lexsort((np.arange(len(share)), -fraction)).tolist():  # single GPUs that rounding has left
        if left < 1 - GPU_SLACK:
            break
        if fraction[q] > 0 and share[q] < claims.want[q] - GPU_SLACK:
            more = min(1.0, float(claims.want[q] - share[q]))
            share[q] += more
            left -= more
    return share


def _by_weight(
    left: float, share: Floats, fraction: Floats, claims: Claims, among: np.ndarray, against_usage: float
) -> float:
    """Give queues of one priority whole GPUs by weight, until all want more than their part; return what is left."""
    while left > GPU_SLACK:
        queues = np.flatnonzero(among & (share < claims.want - GPU_SLACK))
        if not len(queues):
            break
        part = claims.weight[queues] / claims.weight[queues].sum()
        if len(claims.usage):
            part = np.maximum(part + against_usage * (part - claims.usage[queues]), 0.0)
        if not part.sum() > 0:
            break
        offer = left * part / part.sum()
        wants = claims.want[queues] - share[queues]
        met = wants <= offer + GPU_SLACK
        given = np.where(met, wants, np.floor(offer + GPU_SLACK))
        share[queues] += given
        fraction[queues] = np.where(met, 0.0, offer - given)
        left -= float(given.sum())
        if not (wants < offer - GPU_SLACK).any():
            break
    return max(left, 0.0)


def down_the_tree(total: float, claims: Claims, parent: Ints, against_usage: float = 1.0) -> Floats:
    """Return what every queue of a tree is due: the top queues share the cluster, the others their parent's share."""
    share = np.zeros(len(parent))
    above, room = [-1], {-1: total}
    while above:
        node = above.pop()
        children = np.flatnonzero(parent == node)
        if not len(children):
            continue
        share[children] = divide(room[node], claims.of(children), against_usage)
        for child in children.tolist():
            room[child] = float(share[child])
            above.append(child)
    return share


def by_queue(queue: Ints, amount: Floats, queues: int) -> Floats:
    """Return the sum of the amounts of each queue's jobs."""
    return np.asarray(np.bincount(queue, amount, queues), np.float64)


def up_the_tree(amount: Floats, parent: Ints) -> Floats:
    """Return amounts with those of the queues below added."""
    total = amount.copy()
    for q, value in enumerate(amount.tolist()):
        node = int(parent[q])
        while value and node >= 0:
            total[node] += value
            node = int(parent[node])
    return total
