"""Compiled tables of bids: which bids find a row, what the rows show, and which bids an action makes."""

from __future__ import annotations

from typing import Any

from argosy._jit import entry_point

WAITING = 0  # argosy.cluster.view.JobState


@entry_point
def find_rows(
    jobs: int,
    state: Any,
    by_arrival: Any,
    most_jobs: int,
    job: Any,
    gpu_type: Any,
    workers: Any,
    servers: Any,
    gpus: Any,
    speed: Any,
    cost_s: Any,
    present: Any,
    first: Any,
    row_of: Any,
    numbers: Any,
    mask: Any,
    counted: Any,
    measured: Any,
    is_present: Any,
) -> int:
    """Find rows for at most `most_jobs` jobs, each with all its bids: running jobs first, then by arrival.

    `job` is the job of each bid, in ascending order; `first` is scratch for one more than the jobs. `row_of` gets the
    row of each bid, -1 for none, and `numbers` of each row the number of its job. The last arrays get the columns of
    the bids that are shown, by row: `counted` job, type, workers and servers, `measured` GPUs, speed and cost. Returns
    the number of rows.
    """
    rows = len(mask)
    for s in range(jobs + 1):
        first[s] = 0
    for b in range(len(job)):
        first[job[b] + 1] += 1
        row_of[b] = -1
    for s in range(jobs):
        first[s + 1] += first[s]
    n, number = 0, 0
    for waiting in range(2):
        for i in range(jobs):
            s = by_arrival[i]
            count = first[s + 1] - first[s]
            if (state[s] == WAITING) != (waiting == 1) or count == 0 or n + count > rows or number == most_jobs:
                continue
            for b in range(first[s], first[s + 1]):
                row_of[b], mask[n], numbers[n] = n, True, number
                counted[0, n], counted[1, n], counted[2, n], counted[3, n] = s, gpu_type[b], workers[b], servers[b]
                measured[0, n], measured[1, n], measured[2, n] = gpus[b], speed[b], cost_s[b]
                is_present[n] = present[b]
                n += 1
            number += 1
    mask[n:] = False
    numbers[n:] = 0
    return n


@entry_point
def show_rows(n: int, job: Any, numbers: Any, of_bid: Any, of_job: Any, of_cluster: Any, observation: Any) -> None:
    """Write the features of `n` bids into the observation; row i of `of_bid` belongs to bid i."""
    rows = len(observation)
    bid_columns, job_columns, cluster_columns = of_bid.shape[1], of_job.shape[1], len(of_cluster)
    for r in range(n):
        observation[r, 0] = numbers[r] / rows
        for c in range(bid_columns):
            observation[r, 1 + c] = of_bid[r, c]
        for c in range(job_columns):
            observation[r, 1 + bid_columns + c] = of_job[job[r], c]
        for c in range(cluster_columns):
            observation[r, 1 + bid_columns + job_columns + c] = of_cluster[c]
    observation[n:] = 0.0


@entry_point
def bounded(n: int, logs: Any, bound: float, out: Any) -> int:
    """Write the first `n` numbers of an action, within the bounds; return the first that is NaN, -1 if none is."""
    for r in range(n):
        if logs[r] != logs[r]:
            return r
        out[r] = logs[r]
        out[r] = min(max(out[r], -bound), bound)
    return -1


@entry_point
def make_bids(
    row_of: Any,
    log: Any,
    worth: Any,
    bound: float,
    goes_on: float,
    weight: Any,
    job: Any,
    gpu_type: Any,
    workers: Any,
    servers: Any,
    present: Any,
    columns: Any,
    value: Any,
) -> int:
    """Write the bids of an action: `columns` gets job, type, workers and servers; return their number.

    `worth` has the value of each row, and `log` its logarithm, which withdraws the bid at the lower bound. Of jobs that
    are not shown, those that run bid `goes_on` for what they have.
    """
    n = 0
    for b in range(len(job)):
        r = row_of[b]
        if (r >= 0 and log[r] <= -bound) or (r < 0 and not present[b]):
            continue
        columns[0, n], columns[1, n], columns[2, n], columns[3, n] = job[b], gpu_type[b], workers[b], servers[b]
        value[n] = worth[r] * weight[job[b]] if r >= 0 else goes_on
        n += 1
    return n


@entry_point
def show_jobs(n: int, numbers: Any, skipped: int, bids: Any, jobs: Any, mask: Any) -> None:
    """Show the jobs of the first `n` rows of `bids`, without the `skipped` columns that describe the bid."""
    shown = 0
    for r in range(n):
        if numbers[r] < shown:
            continue
        for c in range(jobs.shape[1]):
            jobs[shown, c] = bids[r, skipped + c]
        mask[shown] = True
        shown += 1
    jobs[shown:] = 0.0
    mask[shown:] = False
