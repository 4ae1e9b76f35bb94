"""A straightforward NSGA-II over allocations, in numpy: what Pollux' compiled search is compared with.

States are dense arrays [state, job, node] of GPUs; the operators are those of the paper's artifact. It knows what the
benchmark's problems have: nodes of one type, elastic jobs, no CPUs or memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from argosy.policies.pollux.problem import Problem

POPULATION, STABLE, MOST_NODES = 100, 1e-3, 16
States = NDArray[np.int16]
Scores = NDArray[np.float64]


def plain_search(problem: Problem, seed: int, *, generations: int) -> float:
    """Return the fitness of the best allocation after so many generations, beginning with what runs now."""
    rng = np.random.default_rng(seed)
    base = np.zeros((len(problem.rows), len(problem.capacity)), np.int16)
    for j, row in enumerate(problem.present):
        for node, gpus in row.items():
            base[j, node] = gpus
    states = np.repeat(base[None], POPULATION, axis=0)
    states[1:] = repaired(problem, mutated(problem, states[1:], base, rng), rng)
    scores = scored(problem, states, base)
    for _ in range(generations):
        rank, crowd = ranked(scores)
        parents = [winners(rank, crowd, POPULATION // 2, rng) for _ in range(2)]
        points = rng.integers(len(base), size=(POPULATION // 2, 1, 1))
        first = np.arange(len(base))[None, :, None] < points
        mother, father = states[parents[0]], states[parents[1]]
        children = np.concatenate([np.where(first, mother, father), np.where(first, father, mother)])
        children = repaired(problem, mutated(problem, children, base, rng), rng)
        states, scores = np.concatenate([states, children]), np.concatenate([scores, scored(problem, children, base)])
        _, distinct = np.unique(scores, axis=0, return_index=True)  # equal scores: nearly always the same state
        if len(distinct) >= POPULATION:
            states, scores = states[distinct], scores[distinct]
        rank, crowd = ranked(scores)
        kept = np.lexsort((-crowd, rank))[:POPULATION]
        states, scores = states[kept], scores[kept]
    return float(scores[:, 0].max())


def mutated(problem: Problem, states: States, base: States, rng: np.random.Generator) -> States:
    """Reset rows to what runs now, zero some entries, and increase some where there is room."""
    count, jobs, nodes = states.shape
    states = np.where(rng.random((count, jobs, 1)) < 0.1, base, states)
    for j in np.argwhere(rng.random((count, jobs)) < 0.1):
        states[tuple(j)][rng.random(nodes) < 0.1] = 0
    room = (problem.capacity - states.sum(axis=1)) > 0
    chance = np.repeat(room[:, None] / jobs, jobs, axis=1)
    there = (states > 0) & room[:, None]
    beside = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
    grow = rng.random(states.shape) < chance + beside - chance * beside
    drawn = rng.integers(states, problem.capacity.astype(np.int16) + 1, endpoint=False)
    return np.asarray(np.where(grow, drawn, states), np.int16)


def repaired(problem: Problem, states: States, rng: np.random.Generator) -> States:
    """Enforce one spanning job to a node, sizes of jobs, nodes of a job, and what nodes have."""
    spanning = (np.count_nonzero(states, axis=2) > 1)[:, :, None] & (states > 0)
    states = np.where(spanning.cumsum(axis=1) > 1, 0, states)
    order = np.argsort(rng.random(states.shape), axis=2)
    shuffled = np.take_along_axis(states, order, axis=2)
    shuffled = np.diff(np.minimum(shuffled.cumsum(axis=2), problem.high[None, :, None]), axis=2, prepend=0)
    shuffled = np.where((shuffled > 0).cumsum(axis=2) <= MOST_NODES, shuffled, 0)
    states = np.take_along_axis(shuffled, np.argsort(order, axis=2), axis=2)
    states = np.diff(np.minimum(states.cumsum(axis=1), problem.capacity), axis=1, prepend=0)
    enough = states.sum(axis=2, keepdims=True) >= problem.low[None, :, None]
    return np.asarray(np.where(enough, states, 0), np.int16)


def scored(problem: Problem, states: States, base: States) -> Scores:
    """Return fitness and utility of each state."""
    total, several = states.sum(axis=2), np.count_nonzero(states, axis=2) > 1
    speedup: Any = problem.speedup[np.arange(len(base))[None], several.astype(np.int64), total]
    changed = (states != base).any(axis=2)
    value = speedup * problem.weight * np.where(changed, problem.restart, 1.0)
    fitness = 1.0 / (1.0 / (value + STABLE)).mean(axis=1)
    used = ((states.sum(axis=1) > 0) * problem.capacity).sum(axis=1)
    return np.stack([fitness, speedup.sum(axis=1) / np.maximum(used, 1)], axis=1)


def ranked(scores: Scores) -> tuple[NDArray[np.int64], Scores]:
    """Return the front and the crowding distance of each state."""
    better = (scores[:, None] >= scores[None]).all(axis=2) & (scores[:, None] > scores[None]).any(axis=2)
    rank, left, front = np.zeros(len(scores), np.int64), np.ones(len(scores), bool), 0
    crowd = np.zeros(len(scores))
    while left.any():
        best = left & ~(better & left[:, None]).any(axis=0)
        rank[best] = front
        members = np.flatnonzero(best)
        for objective in scores[members].T:
            order = np.argsort(objective)
            span = max(objective[order[-1]] - objective[order[0]], 1e-12)
            crowd[members[order[[0, -1]]]] = np.inf
            crowd[members[order[1:-1]]] += (objective[order[2:]] - objective[order[:-2]]) / span
        left &= ~best
        front += 1
    return rank, crowd


def winners(rank: NDArray[np.int64], crowd: Scores, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the better one of two random states, so many times."""
    pairs = rng.integers(len(rank), size=(count, 2))
    first, second = pairs.T
    wins = (rank[first] < rank[second]) | ((rank[first] == rank[second]) & (crowd[first] >= crowd[second]))
    return np.asarray(np.where(wins, first, second))
