"""The logarithms of bids' values, by argonaut's network, with the features that it sees.

`argosy.policies.learned.bid_features` says what the features are, `bid_network` what the network computes; a test
compares both with these loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy._jit import entry_point, kernel

BID, JOB, CLUSTER = 8, 17, 8  # features of a bid, a job, the cluster
SQUEEZED, HIDDEN = 8, 16
MINUTE_S = 60.0
UNIT = 0.25  # logarithms of times and counts are scaled by this
LEAST_SPEED, LEAST_GPUS, LEAST_ASKED = 1e-9, 1e-3, 0.05
RUNNING = 1


@entry_point
def bid_features(
    now: float,
    total: float,
    start_s: float,
    of_type: Any,
    job: Any,
    gpu_type: Any,
    gpus: Any,
    speed: Any,
    cost: Any,
    present: Any,
    left: Any,
    submitted: Any,
    declared: Any,
    done: Any,
    asked: Any,
    low: Any,
    high: Any,
    state: Any,
    waiting: Any,
    started: Any,
    preemptions: Any,
    ps_kind: Any,
    by_type: Any,
    best: Any,
    bids: Any,
    jobs: Any,
    cluster: Any,
) -> None:
    """Write the features of bids, jobs and cluster; `by_type` [jobs, types] and `best` [jobs, 2] are scratch."""
    n, types = len(left), len(of_type)
    best[:, :] = LEAST_SPEED
    by_type[:, :] = 0.0
    for r in range(len(job)):
        j, t = job[r], max(gpu_type[r], 0)
        each = speed[r] / max(gpus[r], LEAST_GPUS)
        best[j, 0], best[j, 1] = max(best[j, 0], speed[r]), max(best[j, 1], each)
        by_type[j, t] = max(by_type[j, t], each)
    for j in range(n):
        total_log, count = 0.0, 0
        for t in range(types):
            if by_type[j, t] > LEAST_SPEED:
                total_log += np.log(by_type[j, t])
                count += 1
        for t in range(types):
            usable = by_type[j, t] > LEAST_SPEED
            by_type[j, t] = np.log(by_type[j, t]) - total_log / max(count, 1) if usable else 0.0
    for r in range(len(job)):
        j, t = job[r], max(gpu_type[r], 0)
        fast = max(speed[r], LEAST_SPEED)
        late = cost[r] * fast / left[j]
        bids[r, 0] = np.log(fast / (1.0 + late))
        bids[r, 1] = 1.0 if present[r] and start_s > 0.0 else 0.0
        bids[r, 2] = np.log(max(gpus[r], LEAST_ASKED))
        bids[r, 3] = np.log1p(late)
        bids[r, 4] = np.log(fast / max(gpus[r], LEAST_GPUS) / best[j, 1])
        bids[r, 5] = np.log(fast / best[j, 0])
        bids[r, 6] = gpus[r] / of_type[t]
        bids[r, 7] = by_type[j, t]
    wanted, waits, known, elastic, mean_left = 0.0, 0, 0, 0, 0.0
    for j in range(n):
        age = now - submitted[j]
        runs = state[j] == RUNNING
        is_declared = not np.isnan(declared[j])
        jobs[j, 0] = UNIT * np.log(left[j] / MINUTE_S)
        jobs[j, 1] = 1.0 if is_declared else 0.0
        jobs[j, 2] = UNIT * np.log1p(done[j] / MINUTE_S)
        jobs[j, 3] = np.log(max(asked[j], LEAST_ASKED))
        jobs[j, 4] = 1.0 if runs else 0.0
        jobs[j, 5] = UNIT * np.log1p(waiting[j] / MINUTE_S)
        jobs[j, 6] = UNIT * np.log1p(age / MINUTE_S)
        jobs[j, 7] = np.log(max(high[j], 1.0) / max(low[j], 1.0))
        jobs[j, 8] = np.log1p(preemptions[j])
        jobs[j, 9] = 1.0 if 0.0 < asked[j] < 1.0 else 0.0
        jobs[j, 10] = 1.0 if ps_kind[j] >= 0 else 0.0
        jobs[j, 11] = np.log(best[j, 0])
        jobs[j, 12] = UNIT * np.log((age + MINUTE_S) / (done[j] + MINUTE_S))
        jobs[j, 13] = UNIT * np.log1p((now - started[j]) / MINUTE_S) if runs else 0.0
        jobs[j, 14] = jobs[j, 0] if is_declared else 0.0
        wanted += asked[j]
        waits += 0 if runs else 1
        known += 1 if is_declared else 0
        elastic += 1 if high[j] > low[j] else 0
        mean_left += jobs[j, 0]
    each_one = 1.0 / max(n, 1)
    cluster[0] = np.log((wanted + 1.0) / total)
    for j in range(n):
        jobs[j, 15] = jobs[j, 0] * cluster[0]
        jobs[j, 16] = jobs[j, 0] * elastic * each_one
    cluster[1] = UNIT * np.log1p(waits)
    cluster[2] = UNIT * np.log(total)
    cluster[3] = 1.0 if types > 1 else 0.0
    cluster[4] = known * each_one
    cluster[5] = elastic * each_one
    cluster[6] = UNIT * np.log1p(start_s)
    cluster[7] = mean_left * each_one


@entry_point
def log_values(
    bids: Any,
    jobs: Any,
    cluster: Any,
    job: Any,
    a_: Any,
    a: Any,
    b_: Any,
    c_: Any,
    d_: Any,
    b: Any,
    e_: Any,
    f_: Any,
    d: Any,
    w: Any,
    v: Any,
    s: Any,
    t: Any,
    of_job: Any,
    own: Any,
    squeezed: Any,
    common: Any,
    hidden: Any,
    out: Any,
) -> None:
    """Write the logarithm of each bid's value. Weights are named as in `bid_network`, matrices with an underscore."""
    n = len(jobs)
    for k in range(SQUEEZED):
        squeezed[k] = 0.0
    for j in range(n):
        for k in range(SQUEEZED):
            x = a[k]
            for i in range(JOB):
                x += jobs[j, i] * a_[i, k]
            squeezed[k] += soft(x) / n
    for k in range(HIDDEN):
        x = b[k]
        for i in range(SQUEEZED):
            x += squeezed[i] * c_[i, k]
        for i in range(CLUSTER):
            x += cluster[i] * d_[i, k]
        common[k] = x
    for j in range(n):
        for k in range(HIDDEN):
            hidden[k] = common[k]
        own[j] = 0.0
        for i in range(JOB):
            own[j] += jobs[j, i] * t[i]
            add_row(hidden, b_, i, jobs[j, i])
        for k in range(HIDDEN):
            hidden[k] = soft(hidden[k])
            own[j] += hidden[k] * v[k]
            of_job[j, k] = d[k]
        for i in range(HIDDEN):
            for k in range(HIDDEN):
                of_job[j, k] += hidden[i] * f_[i, k]
    for r in range(len(bids)):
        j = job[r]
        x = own[j]
        for k in range(HIDDEN):
            hidden[k] = of_job[j, k]
        for i in range(BID):
            x += bids[r, i] * s[i]
            add_row(hidden, e_, i, bids[r, i])
        for k in range(HIDDEN):
            x += w[k] * soft(hidden[k])
        out[r] = x


@kernel
def soft(x: float) -> float:
    """Return x bounded to -1..1, smoothly: the softsign, which is many times as fast as a hyperbolic tangent."""
    return x / (1.0 + abs(x))


@kernel
def add_row(out: Any, matrix: Any, row: int, factor: float) -> None:
    """Add a multiple of a matrix' row."""
    for k in range(len(out)):
        out[k] += factor * matrix[row, k]
