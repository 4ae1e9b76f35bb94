"""The search: generations of allocations, from those of the last search and one that is made job by job."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from argosy._jit import entry_point
from argosy.policies.pollux.kernels.genetic import (
    copy_row,
    draw,
    evaluate,
    fronts_of,
    mutate,
    repair,
    survive,
    tournament,
)
from argosy.policies.pollux.kernels.greedy import fill_up
from argosy.slack import RELATIVE_SLACK


@partial(entry_point, allocates=True)
def search(
    node: Any,
    gpus: Any,
    count: Any,
    first: int,
    capacity: Any,
    room: Any,
    of_type: Any,
    allowed: Any,
    group: Any,
    low: Any,
    high: Any,
    unit: Any,
    queue: Any,
    limit: Any,
    speedup: Any,
    restart: Any,
    weight: float,
    p: float,
    avoid: bool,
    greedy: bool,
    generations: int,
    patience: int,
    seed: int,
    slots: Any,
    score: Any,
) -> int:
    """Search for the fittest allocation; return its number. Of the allocations the first `first` are given.

    `slots` are the numbers of parents and offspring; the last allocation of `node`, `gpus` and `count` is what runs
    now. With `greedy` one more is made job by job. The search ends after `generations`, or if the best fitness has not
    grown for `patience` of them.
    """
    base = count.shape[0] - 1
    both = len(slots)
    parents = both // 2
    jobs, nodes = count.shape[1], len(capacity)
    rng = np.empty(1, np.uint64)
    rng[0] = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x2545F4914F6CDD1D)
    free, left = np.zeros(2 * nodes, np.int64), np.zeros(2 * nodes, np.int64)
    room_left, limit_left = np.zeros((2, nodes)), np.zeros(len(limit))
    first = min(first, parents)
    if greedy and first < parents:
        fill_up(
            node,
            gpus,
            count,
            slots[first],
            base,
            capacity,
            of_type,
            allowed,
            group,
            low,
            high,
            speedup,
            restart,
            weight,
            p,
            np.zeros(2 * nodes + jobs, np.int64),
        )
        first += 1
    rank, crowd, scratch = np.zeros(both + 1, np.int64), np.zeros(both + 1), np.zeros(both, np.int64)
    for i in range(parents):
        a = slots[i]
        if i >= first:
            for j in range(jobs):
                copy_row(node, gpus, count, a, base if first == 0 else slots[i % first], j)
            mutate(node, gpus, count, a, base, capacity, allowed, group, free, rng)
        repair(
            node,
            gpus,
            count,
            a,
            base,
            capacity,
            room,
            of_type,
            allowed,
            group,
            low,
            high,
            unit,
            queue,
            limit,
            left,
            room_left,
            limit_left,
            avoid,
            rng,
        )
        evaluate(node, gpus, count, a, base, capacity, left, speedup, restart, weight, p, score[a])
    fronts_of(slots[:parents], score, rank, crowd)
    best, since = -np.inf, 0
    for _ in range(generations):
        for i in range(parents, both, 2):
            mother = tournament(slots, parents, rank, crowd, rng)
            father = tournament(slots, parents, rank, crowd, rng)
            point = int(draw(rng) * jobs)
            other = slots[i + 1] if i + 1 < both else -1
            for j in range(jobs):
                copy_row(node, gpus, count, slots[i], mother if j < point else father, j)
                if other >= 0:
                    copy_row(node, gpus, count, other, father if j < point else mother, j)
        for i in range(parents, both):
            a = slots[i]
            mutate(node, gpus, count, a, base, capacity, allowed, group, free, rng)
            repair(
                node,
                gpus,
                count,
                a,
                base,
                capacity,
                room,
                of_type,
                allowed,
                group,
                low,
                high,
                unit,
                queue,
                limit,
                left,
                room_left,
                limit_left,
                avoid,
                rng,
            )
            evaluate(node, gpus, count, a, base, capacity, left, speedup, restart, weight, p, score[a])
        fronts_of(slots, score, rank, crowd)
        survive(slots, rank, crowd, scratch)
        found = -np.inf
        for i in range(parents):
            found = max(found, score[slots[i], 0])
        since = 0 if found > best * (1.0 + RELATIVE_SLACK) else since + 1
        best = max(best, found)
        if since >= patience:
            break
    fittest = slots[0]
    for i in range(parents):
        if score[slots[i], 0] > score[fittest, 0]:
            fittest = slots[i]
    return int(fittest)
