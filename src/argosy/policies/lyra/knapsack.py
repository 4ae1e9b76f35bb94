"""The multiple-choice knapsack: at most one item of each group, so that the values add up to as much as possible.

A group is an elastic job, an item a number of extra workers; its weight is their GPUs, its value the time that they
save the job. Solved exactly by dynamic programming over the GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from argosy.policies.base import Floats, Ints

NONE = -1


def choose(groups: Sequence[tuple[Ints, Floats]], capacity: int) -> list[int]:
    """Return the item chosen of each group (weights, values), or -1; only items that fit and are worth something."""
    best = np.zeros(capacity + 1)  # with at most so many GPUs
    taken = np.full((len(groups), capacity + 1), NONE, np.int32)
    for g, (weights, values) in enumerate(groups):
        before = best.copy()
        for item, (weight, value) in enumerate(zip(weights.tolist(), values.tolist())):
            if value <= 0 or not 0 < weight <= capacity:
                continue
            with_it = before[: capacity + 1 - weight] + value
            better = with_it > best[weight:]
            best[weight:][better] = with_it[better]
            taken[g, weight:][better] = item
    chosen, room = [NONE] * len(groups), capacity
    for g in range(len(groups) - 1, -1, -1):
        item = int(taken[g, room])
        if item != NONE:
            chosen[g] = item
            room -= int(groups[g][0][item])
    return chosen
