"""Compiled tables of bids: which bids find a row, and what the rows show."""

from __future__ import annotations

from typing import Any

from argosy._jit import entry_point

WAITING = 0  # argosy.cluster.view.JobState


@entry_point
def show_bids(
    job: Any,
    state: Any,
    by_arrival: Any,
    most_jobs: int,
    of_bid: Any,
    of_job: Any,
    of_cluster: Any,
    first: Any,
    row_of: Any,
    numbers: Any,
    observation: Any,
    mask: Any,
) -> int:
    """Show the bids of at most `most_jobs` jobs that find rows for all their bids: running jobs first, then by arrival.

    `job` is the job of each bid, in ascending order; `first` is scratch for one more than the jobs. `row_of` gets the
    row of each bid, -1 for none, and `numbers` of each row the number of its job. Returns the number of rows.
    """
    jobs, rows = len(state), len(mask)
    bid_columns, job_columns, cluster_columns = of_bid.shape[1], of_job.shape[1], len(of_cluster)
    first[:] = 0
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
                observation[n, 0] = number / rows
                for c in range(bid_columns):
                    observation[n, 1 + c] = of_bid[b, c]
                for c in range(job_columns):
                    observation[n, 1 + bid_columns + c] = of_job[s, c]
                for c in range(cluster_columns):
                    observation[n, 1 + bid_columns + job_columns + c] = of_cluster[c]
                n += 1
            number += 1
    observation[n:] = 0.0
    mask[n:] = False
    numbers[n:] = 0
    return n
