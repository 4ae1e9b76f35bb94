"""The rules around a network's grants, which are the same in a policy and in an environment.

They say which jobs are served before the network is asked, which grants it cannot refuse, in which order jobs are
placed, and what happens to jobs that arrive within a time slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.policies.base import Floats, Ints, Sizes
from argosy.policies.common.demands import Demands

GUARD = 72.0  # time slots; a day at 1200 s each
LAST = 1e9  # rank of jobs that get nothing


@dataclass(frozen=True, slots=True)
class GrantRules:
    """The rules of granting; by default, as in DL2, no job is preferred and granting may stop at any time."""

    guard: float = np.inf  # a job that has waited for this many time slots gets its smallest size before all others
    rigid_first: bool = False  # so do jobs with only one size, because there is nothing to decide about them
    score_floor: bool = False  # a job's first grant is its smallest size, and is made while there is room for it
    by_first_grant: bool = False  # jobs are placed in the order of their first grants, not of their arrival
    newcomers: str = "wait"  # between two time slots: "wait", or "start" at the smallest size on what is free

    def served_first(self, needs: Demands, waited: Ints) -> NDArray[np.bool_]:
        """Return which jobs get their smallest size before all others; `waited` is in time slots."""
        first = waited >= self.guard
        if self.rigid_first:
            first = first | ((needs.low == needs.high) & (needs.servers == 0))
        return np.asarray(first)

    def placing_order(self, arrival: Floats, rows: Ints, order: Ints) -> Floats:
        """Return the rank of each job; `order` is the order of first grants of `rows`, len(rows) for no grant."""
        if not self.by_first_grant:
            return arrival
        key = np.full(len(arrival), LAST)
        key[rows] = np.where(order < len(rows), order, LAST)
        return key


def granted_sizes(needs: Demands, workers: Ints, servers: Ints, count: int) -> Sizes:
    """Turn grants, by row of `needs`, into sizes of the view's `count` jobs.

    A job that needs workers and servers, but was granted only one of the two kinds, does not run.
    """
    both = needs.servers > 0
    runs = (workers > 0) & ((servers > 0) | ~both)
    all_workers, all_servers = np.zeros(count, np.int64), np.zeros(count, np.int64)
    all_workers[needs.rows] = np.where(runs, workers, 0)
    all_servers[needs.rows] = np.where(both, servers * runs, needs.fixed)
    return Sizes(all_workers, all_servers)


class JobMemory:
    """Remembers of each job, by its index, since when it has waited and what it got in this time slot."""

    def __init__(self) -> None:
        self._rows: Ints = np.zeros((64, 3), np.int64)  # 1 + slot in which it last ran or came, workers, servers

    def of(self, index: Ints) -> Ints:
        """Return what is remembered of these jobs: [job, 3]; a new job has zeros."""
        if len(index) and (last := int(index.max())) >= len(self._rows):
            self._rows = np.pad(self._rows, ((0, 2 * last - len(self._rows)), (0, 0)))
        return np.asarray(self._rows[index])

    def waited(self, index: Ints, slot: int) -> Ints:
        """Return for how many time slots these jobs have not run; 0 for new ones."""
        since = self.of(index)[:, 0]
        return np.where(since > 0, slot + 1 - since, 0)

    def remember(self, index: Ints, slot: int, sizes: Sizes) -> None:
        """Note what each job gets in this time slot."""
        before = self.of(index)[:, 0]
        since = np.where((sizes.workers > 0) | (before == 0), slot + 1, before)
        assert sizes.servers is not None
        self._rows[index] = np.stack([since, sizes.workers, sizes.servers], axis=1)

    def state(self) -> dict[str, Any]:
        return {str(i): self._rows[i].tolist() for i in np.flatnonzero(self._rows[:, 0]).tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        self._rows = np.zeros((max([64, *(int(i) + 1 for i in state)]), 3), np.int64)
        for i, row in state.items():
            self._rows[int(i)] = row
