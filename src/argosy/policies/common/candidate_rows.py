"""Writing out the candidates of all jobs of a view, in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy._jit import entry_point, kernel

RUNNING = 1  # argosy.cluster.view.JobState
START, SUSPEND, RESUME, MIGRATE, RESIZE = range(5)  # columns of the overheads, as argosy.cluster.view.Overhead


@entry_point
def write_rows(
    group: Any,
    first: Any,
    count: Any,
    flat: Any,
    state: Any,
    held_type: Any,
    held: Any,
    peer: Any,
    held_servers: Any,
    asked: Any,
    reference: Any,
    executed_s: Any,
    kind: Any,
    ps_kind: Any,
    overheads: Any,
    in_node: Any,
    in_rack: Any,
    with_servers: Any,
    largest: Any,
    counted: Any,
    measured: Any,
) -> int:
    """Write a row for each candidate of each job, and one for what a job has now where that is not among them.

    `counted` gets job, type, workers, servers and whether it is what the job has now; `measured` GPUs, relative speed
    and the cost of changing to it. Returns the number of rows.
    """
    n = 0
    for j in range(len(group)):
        share = asked[j] if 0.0 < asked[j] < 1.0 else 1.0
        runs = state[j] == RUNNING
        gpus = 2.0 * held[j] if peer[j] >= 0 else held[j]  # of GPUs that two jobs share each holds one half
        has = int(np.round(gpus)) if asked[j] >= 1.0 else 1
        costs = overheads[kind[j]]
        wait_s = costs[SUSPEND] + costs[RESUME] if executed_s[j] > 0.0 else costs[START]
        listed = False
        for c in range(first[group[j]], first[group[j]] + count[group[j]]):
            gpu_type, workers, servers = int(flat[0, c]), int(flat[1, c]), int(flat[2, c])
            present = runs and gpu_type == held_type[j] and workers == has and servers == held_servers[j]
            listed |= present
            cost = wait_s
            if runs:
                cost = 0.0 if present else costs[RESIZE] if workers != has else costs[MIGRATE]
            speed = flat[3, c] * share / reference[j]
            put(n, j, gpu_type, workers, servers, present, asked[j], speed, cost, counted, measured)
            n += 1
        if runs and not listed and held_type[j] >= 0:
            t, servers = held_type[j], held_servers[j]
            if ps_kind[j] >= 0:
                table = with_servers[ps_kind[j]]
                rate = table[min(servers, table.shape[0] - 1), min(has, table.shape[1] - 1)]
            else:
                rates = in_node[kind[j], t] if has <= largest[t] else in_rack[kind[j], t]
                k = min(has, len(rates) - 1)
                rate = rates[k] * has / max(k, 1)
            put(n, j, t, has, servers, True, asked[j], rate * share / reference[j], 0.0, counted, measured)
            n += 1
    return n


@kernel
def put(
    n: int,
    job: int,
    gpu_type: int,
    workers: int,
    servers: int,
    present: bool,
    asked: float,
    speed: float,
    cost: float,
    counted: Any,
    measured: Any,
) -> None:
    counted[0, n], counted[1, n], counted[2, n], counted[3, n], counted[4, n] = job, gpu_type, workers, servers, present
    measured[0, n] = float(workers) if asked >= 1.0 else asked
    measured[1, n], measured[2, n] = speed, cost
