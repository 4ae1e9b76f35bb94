"""Compiled grants by DL2's network, which sees J jobs at once and grants one unit after the other until it stops.

A grant changes three inputs, so the first layer is updated instead of computed again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy._jit import entry_point, kernel
from argosy.policies.learned.kernels.constants import KINDS, SERVER, WORKER
from argosy.policies.learned.kernels.units import Division, possible, serve, take


@entry_point
def fill_by_table(
    rows: int,
    cap: int,
    counts: Any,
    amounts: Any,
    free: Any,
    used: Any,
    workers: Any,
    servers: Any,
    order: Any,
    first: Any,
    per_share: Any,
    static: Any,
    w1: Any,
    b1: Any,
    w2: Any,
    b2: Any,
    w3: Any,
    b3: Any,
    h1: Any,
    h2: Any,
    logits: Any,
    found: Any,
) -> int:
    """Divide a time slot among batches of `rows` jobs in the given order, and return how many units were granted.

    `static` are the columns of a job that do not change within a time slot; three more follow: share × rows,
    workers / cap and servers / cap. Weights are [inputs, outputs]; `h1`, `h2`, `logits` and `found` are scratch.
    """
    division = Division(counts, amounts, free, used, workers, servers, order)
    n, last, steps = len(static), rows * KINDS, 0
    width = static.shape[1] + 3
    serve(division, first)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        if not any_possible(division, start, stop):
            continue
        for k in range(len(h1)):
            h1[k] = b1[k]
        for j in range(start, stop):
            show(division, j, (j - start) * width, rows, cap, per_share, static, w1, h1)
        while any_possible(division, start, stop):
            forward(h1, w2, b2, w3, b3, h2, logits, found)
            action = best_action(division, start, stop, logits, last)
            if action == last:
                break
            steps += 1
            j = start + action // KINDS
            w, u, share = workers[j], servers[j], share_of(used[j], per_share)
            take(division, j, action % KINDS)
            base = (j - start) * width + static.shape[1]
            by_share = np.float32((share_of(used[j], per_share) - share) * rows)
            by_w, by_u = np.float32((workers[j] - w) / cap), np.float32((servers[j] - u) / cap)
            for k in range(len(h1)):
                h1[k] += by_share * w1[base, k] + by_w * w1[base + 1, k] + by_u * w1[base + 2, k]
    return steps


@kernel
def show(
    division: Division, j: int, base: int, rows: int, cap: int, per_share: Any, static: Any, w1: Any, h1: Any
) -> None:
    """Add the features of a job to the first layer."""
    fixed = static.shape[1]
    for f in range(fixed + 3):
        if f < fixed:
            x = static[j, f]
        elif f == fixed:
            x = np.float32(share_of(division.used[j], per_share) * rows)
        elif f == fixed + 1:
            x = np.float32(division.workers[j] / cap)
        else:
            x = np.float32(division.servers[j] / cap)
        if x != 0.0:
            for k in range(len(h1)):
                h1[k] += x * w1[base + f, k]


@kernel
def forward(h1: Any, w2: Any, b2: Any, w3: Any, b3: Any, h2: Any, logits: Any, found: Any) -> None:
    for k in range(len(h2)):
        h2[k] = b2[k]
    add_positive(h1, w2, h2, found)
    for a in range(len(logits)):
        logits[a] = b3[a]
    add_positive(h2, w3, logits, found)


@kernel
def add_positive(h: Any, w: Any, out: Any, found: Any) -> None:
    """Compute out += max(h, 0) · w for eight units at once, because testing signs and reading `out` cost most."""
    count, q = 0, 0
    for i in range(len(h)):
        found[count] = i
        count += h[i] > 0.0
    while q + 8 <= count:
        a, b, c, d = found[q], found[q + 1], found[q + 2], found[q + 3]
        e, f, g, i = found[q + 4], found[q + 5], found[q + 6], found[q + 7]
        ha, hb, hc, hd, he, hf, hg, hi = h[a], h[b], h[c], h[d], h[e], h[f], h[g], h[i]
        for k in range(len(out)):
            first = ha * w[a, k] + hb * w[b, k] + hc * w[c, k] + hd * w[d, k]
            out[k] += first + (he * w[e, k] + hf * w[f, k] + hg * w[g, k] + hi * w[i, k])
        q += 8
    for r in range(q, count):
        a = found[r]
        ha = h[a]
        for k in range(len(out)):
            out[k] += ha * w[a, k]


@kernel
def any_possible(division: Division, start: int, stop: int) -> bool:
    for j in range(start, stop):
        if possible(division, j, WORKER) or possible(division, j, SERVER):
            return True
    return False


@kernel
def best_action(division: Division, start: int, stop: int, logits: Any, last: int) -> int:
    """Return the likeliest possible action."""
    best, action = logits[last], last
    for j in range(start, stop):
        for what in range(KINDS):
            a = (j - start) * KINDS + what
            if logits[a] > best and possible(division, j, what):
                best, action = logits[a], a
    return action


@kernel
def share_of(used: Any, per_share: Any) -> float:
    """Return the share of the resource of which a job has most."""
    return max(used[0] * per_share[0], used[1] * per_share[1], used[2] * per_share[2])
