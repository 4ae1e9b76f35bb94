"""Compiled grants by the score network: units go to the highest score, while one is above 0.

A grant changes the score of one job only, so the jobs are kept in a heap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from argosy._jit import entry_point, kernel
from argosy.policies.learned.kernels.constants import KINDS, LEAST_SCORE, LOG_UNIT, SIZE_LOG, SLOTS_PER_UNIT
from argosy.policies.learned.kernels.units import Division, possible, serve, smallest, take


class Scorer(NamedTuple):
    """The layers of the network after the embedding, scratch arrays, and the best score of each job."""

    embedded: Any  # [job, H]
    w3: Any
    w4: Any
    b4: Any
    w5: Any
    b5: Any
    hidden: Any
    cap: Any
    score: Any  # [job] score of the best unit that the job can still have
    choice: Any  # [job] which unit that is


@entry_point
def embed(
    types: Any,
    times: Any,
    gpus_per_job: float,
    cpus_per_job: float,
    w1: Any,
    b1: Any,
    w2: Any,
    wc: Any,
    b2: Any,
    encoded: Any,
    mean: Any,
    crowd: Any,
    embedded: Any,
) -> None:
    """Compute what does not change within a time slot, up to the first layer that sees the size.

    h = relu(W1 x + b1);  embedded = W2 h + Wc mean(h) + b2. `encoded`, `mean` and `crowd` are scratch.
    """
    n, size, width = len(types), len(b1), len(b2)
    known = len(w1) - 5
    for k in range(size):
        mean[k] = 0.0
    for j in range(n):
        a, b, c = log_time(times[j, 0]), log_time(times[j, 1]), log_time(times[j, 2])
        for k in range(size):
            x = b1[k] + a * w1[known, k] + b * w1[known + 1, k] + c * w1[known + 2, k]
            x += np.float32(gpus_per_job) * w1[known + 3, k] + np.float32(cpus_per_job) * w1[known + 4, k]
            if types[j] >= 0:
                x += w1[types[j], k]
            encoded[j, k] = max(x, np.float32(0.0))
            mean[k] += encoded[j, k]
    for i in range(width):
        crowd[i] = b2[i]
    for k in range(size):
        x = mean[k] / np.float32(max(n, 1))
        for i in range(width):
            crowd[i] += x * wc[k, i]
    for j in range(n):
        for i in range(width):
            embedded[j, i] = crowd[i]
        for k in range(size):
            x = encoded[j, k]
            if x > 0.0:
                for i in range(width):
                    embedded[j, i] += x * w2[k, i]


@kernel
def log_time(time: Any) -> Any:
    return np.float32(np.log1p(SLOTS_PER_UNIT * time) / LOG_UNIT)


@entry_point
def fill_by_score(
    counts: Any,
    amounts: Any,
    free: Any,
    used: Any,
    workers: Any,
    servers: Any,
    order: Any,
    first: Any,
    embedded: Any,
    w3: Any,
    w4: Any,
    b4: Any,
    w5: Any,
    b5: Any,
    hidden: Any,
    cap: int,
    score: Any,
    choice: Any,
    heap: Any,
) -> int:
    """Divide a time slot, and return how many units were granted.

    `hidden`, `score`, `choice` and `heap` are scratch.
    """
    division = Division(counts, amounts, free, used, workers, servers, order)
    net = Scorer(embedded, w3, w4, b4, w5, b5, hidden, cap, score, choice)
    n, count, steps = len(counts), 0, 0
    turn = serve(division, first)
    for j in range(n):
        rate(division, net, j)
        if score[j] > 0.0:
            heap[count] = j
            count += 1
            rise(heap, score, count - 1)
    while count > 0:
        j = heap[0]
        if possible(division, j, choice[j]):
            take(division, j, choice[j])
            steps += 1
            if order[j] == n:
                order[j] = turn
                turn += 1
        # a unit that does not fit will not fit later either: the next rating leaves it out
        rate(division, net, j)
        if score[j] <= 0.0:
            count -= 1
            heap[0] = heap[count]
        sink(heap, score, count)
    return steps


@kernel
def rate(division: Division, net: Scorer, j: int) -> None:
    """Set the best unit that job j can still have, and its score; the unit that makes the job run has a floor."""
    workers, servers, w3 = division.workers[j], division.servers[j], net.w3
    w, u = np.float32(workers / net.cap), np.float32(servers / net.cap)
    some_w, some_u = np.float32(workers > 0), np.float32(servers > 0)
    log_w, log_u = np.float32(np.log2(1.0 + workers) * SIZE_LOG), np.float32(np.log2(1.0 + servers) * SIZE_LOG)
    for k in range(len(net.hidden)):
        net.hidden[k] = net.b4[k]
    for i in range(net.embedded.shape[1]):
        x = (
            net.embedded[j, i]
            + w * w3[0, i]
            + u * w3[1, i]
            + some_w * w3[2, i]
            + some_u * w3[3, i]
            + log_w * w3[4, i]
            + log_u * w3[5, i]
        )
        if x > 0.0:
            for k in range(len(net.hidden)):
                net.hidden[k] += x * net.w4[i, k]
    net.score[j], net.choice[j] = 0.0, -1
    for what in range(KINDS):
        if (workers == 0 and what != smallest(division, j)) or not possible(division, j, what):
            continue
        value = net.b5[what]
        for k in range(len(net.hidden)):
            if net.hidden[k] > 0.0:
                value += net.hidden[k] * net.w5[k, what]
        if workers == 0:
            value = max(value, np.float32(LEAST_SCORE))
        if value > net.score[j]:
            net.score[j], net.choice[j] = value, what


@kernel
def before(a: int, b: int, score: Any) -> bool:
    """Return whether job a goes before job b: the higher score first, then the earlier row."""
    return score[a] > score[b] or (score[a] == score[b] and a < b)


@kernel
def rise(heap: Any, score: Any, i: int) -> None:
    while i > 0:
        parent = (i - 1) // 2
        if not before(heap[i], heap[parent], score):
            return
        heap[i], heap[parent] = heap[parent], heap[i]
        i = parent


@kernel
def sink(heap: Any, score: Any, count: int) -> None:
    i = 0
    while True:
        child = 2 * i + 1
        if child >= count:
            return
        if child + 1 < count and before(heap[child + 1], heap[child], score):
            child += 1
        if not before(heap[child], heap[i], score):
            return
        heap[i], heap[child] = heap[child], heap[i]
        i = child
