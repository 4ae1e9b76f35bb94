"""Compiled tables of waiting jobs: who waits, which sizes are offered, what rows show, and what the mask allows.

Arrays of sizes are [size, job], and jobs are numbered in order of arrival. All arrays may be longer than the number of
jobs: columns of jobs come at full length (`EngineState.full_columns`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy._jit import entry_point, kernel
from argosy.slack import GPU_SLACK

WAITING, RUNNING = 0, 1  # argosy.cluster.view.JobState
NODE_UP = 0  # argosy.cluster.view.NodeState
RUNS, WAITS = 0.0, 1.0  # ranks
UNKNOWN = -2  # a job whose type has not been found yet


@entry_point
def find_waiting(
    jobs: int,
    state: Any,
    index: Any,
    least: Any,
    held: Any,
    held_servers: Any,
    running: int,
    free_gpus: int,
    waiting: Any,
    counts: Any,
    helpers: Any,
    rank: Any,
) -> int:
    """Write the rows of waiting jobs in order of arrival; return their number, 0 if none of them can start.

    That is so if all need more whole devices (`least`) than are free while others run. If one can, `counts`, `helpers`
    and `rank` get the sizes and ranks with which running jobs go on as they are, and no other job starts.
    """
    n, smallest = 0, np.inf
    for s in range(jobs):
        if state[s] == WAITING:
            waiting[n] = s
            smallest = min(smallest, least[s])
            n += 1
    if n == 0 or (running > 0 and smallest >= 1.0 and smallest > free_gpus):
        return 0
    gap = n // 2  # Shell's sort, which needs no memory
    while gap > 0:
        for i in range(gap, n):
            row, key, j = waiting[i], index[waiting[i]], i
            while j >= gap and index[waiting[j - gap]] > key:
                waiting[j] = waiting[j - gap]
                j -= gap
            waiting[j] = row
        gap //= 2
    for s in range(jobs):
        runs = state[s] == RUNNING
        counts[s] = max(int(np.ceil(held[s])), 1) if runs else 0
        helpers[s] = held_servers[s]
        rank[s] = RUNS if runs else WAITS
    return n


@entry_point
def offer_sizes(
    waiting: Any,
    n: int,
    joint: bool,
    cap: int,
    now: float,
    hours_unit_s: float,
    most: float,
    per_share: Any,
    shapes: Any,
    gang: Any,
    index: Any,
    submitted: Any,
    expected_left_s: Any,
    gpus: Any,
    cpus: Any,
    memory_gib: Any,
    min_gpus: Any,
    max_gpus: Any,
    ps: Any,
    ps_kind: Any,
    accepted: Any,
    type_of: Any,
    types: int,
    workers: Any,
    servers: Any,
    possible: Any,
    need: Any,
    table: Any,
    here: Any,
) -> bool:
    """Write the sizes of waiting jobs, what each needs [size, job, resource], and the constant columns of their rows.

    `shapes` are the shapes of nodes that are up: GPU type, GPUs, CPUs, memory, number of such nodes. `gang` is scratch
    for each GPU type. The arithmetic is that of `argosy.policies.common.demands`. Returns False if the type of a job is
    not known yet.
    """
    choices = workers.shape[0]
    for i in range(n):
        s = waiting[i]
        number = type_of[index[s]]
        if number == UNKNOWN:
            return False
        here[i] = True
        units = max(gpus[s], 1.0)
        unit_cpus, unit_memory = cpus[s] / units, memory_gib[s] / units
        whole = gpus[s] >= 1.0
        low = max(int(np.ceil(min_gpus[s])), 1) if whole else 1
        high = int(np.floor(max_gpus[s])) if whole else 1
        with_servers = high > low and ps_kind[s] >= 0  # their number can be chosen
        if joint:
            gang[:] = 0
            for k in range(shapes.shape[0]):
                room = shapes[k, 1]
                if unit_cpus > 0.0:
                    room = min(room, shapes[k, 2] / unit_cpus)
                if unit_memory > 0.0:
                    room = min(room, shapes[k, 3] / unit_memory)
                gang[int(shapes[k, 0])] += int(shapes[k, 4]) * int(np.floor(room + GPU_SLACK))
            largest = 0
            for t in range(len(gang)):
                if accepted[s] >> t & 1:
                    largest = max(largest, gang[t])
            high = max(min(min(high, cap), largest), low)
        for k in range(choices):
            if joint:
                size = low << k
                workers[k, i] = min(size, high)
                possible[k, i] = k == 0 or low << (k - 1) < high
                servers[k, i] = workers[k, i]
            else:
                workers[k, i], possible[k, i], servers[k, i] = max(int(np.ceil(gpus[s])), 1), True, ps[s]
            if not with_servers:
                servers[k, i] = ps[s]
            w, u = float(workers[k, i]), float(servers[k, i])
            need[k, i, 0] = w if whole else 0.0
            need[k, i, 1] = unit_cpus * w + unit_cpus * u
            need[k, i, 2] = unit_memory * w + unit_memory * u
        for c in range(types):
            table[i, c] = 0.0
        if number >= 0:
            table[i, number] = 1.0
        table[i, types] = (now - submitted[s]) / hours_unit_s
        table[i, types + 1] = min(expected_left_s[s] / hours_unit_s, most)
        share = need[0, i, 0] * per_share[0]
        for r in range(1, 3):
            share = max(share, need[0, i, r] * per_share[r])
        table[i, types + 2] = share
    return True


@entry_point
def show_fitting(
    n: int,
    node_state: Any,
    node_free: Any,
    node_cpus: Any,
    node_memory: Any,
    slack: Any,
    need: Any,
    possible: Any,
    here: Any,
    free: Any,
    fits: Any,
    table: Any,
    gpus: float,
    window: Any,
    observation: Any,
    mask: Any,
) -> tuple[int, int]:
    """Show the jobs that have waited longest, with the sizes that the free parts of all nodes together would hold.

    `gpus` are those of the cluster. The results are those of `show_waiting`.
    """
    fit_by_totals(n, node_state, node_free, node_cpus, node_memory, slack, need, possible, here, free, fits)
    return show_waiting(n, here, fits, table, free[0] / gpus, window, observation, mask)


@kernel
def fit_by_totals(
    n: int,
    node_state: Any,
    node_free: Any,
    node_cpus: Any,
    node_memory: Any,
    slack: Any,
    need: Any,
    possible: Any,
    here: Any,
    free: Any,
    fits: Any,
) -> None:
    """Write what is free in all (`free`, three resources), and which sizes of which jobs might fit into it."""
    free[:] = 0.0
    for node in range(len(node_state)):
        if node_state[node] == NODE_UP:
            free[0] += node_free[node]
            free[1] += node_cpus[node]
            free[2] += node_memory[node]
    for r in range(3):
        free[r] += slack[r]
    for k in range(fits.shape[0]):
        for i in range(n):
            fits[k, i] = (
                here[i]
                and possible[k, i]
                and need[k, i, 0] <= free[0]
                and need[k, i, 1] <= free[1]
                and need[k, i, 2] <= free[2]
            )


@entry_point
def show_waiting(
    n: int, here: Any, fits: Any, table: Any, free_share: float, window: Any, observation: Any, mask: Any
) -> tuple[int, int]:
    """Show the jobs that have waited longest; return the number of rows, and how many actions are possible.

    `window` gets the job of each row. The last action, which ends the decision, is not counted.
    """
    rows, columns, choices = observation.shape[0], observation.shape[1], fits.shape[0]
    waiting = 0
    for i in range(n):
        waiting += here[i]
    mask[: rows * choices] = False
    shown, valid = 0, 0
    for i in range(n):
        if shown == rows:
            break
        if not here[i]:
            continue
        window[shown] = i
        for c in range(columns - 2):
            observation[shown, c] = table[i, c]
        observation[shown, columns - 2], observation[shown, columns - 1] = free_share, waiting / rows
        for k in range(choices):
            if fits[k, i]:
                mask[shown * choices + k] = True
                valid += 1
        shown += 1
    observation[shown:] = 0.0
    return shown, valid
