"""Compiled tables of nodes: which jobs the nodes of one GPU type can hold, and what the placement agent sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy._jit import entry_point, kernel
from argosy.learn.envs.kernels.waiting_rows import show_waiting
from argosy.slack import GPU_SLACK

NODE_UP = 0  # argosy.cluster.view.NodeState
LEAST = 1e-9  # of CPUs or memory for each GPU, against division by zero


@entry_point
def show_placeable(
    n: int,
    rows: int,
    waiting: Any,
    here: Any,
    workers: Any,
    most: float,
    gpus: Any,
    cpus: Any,
    memory_gib: Any,
    queue: Any,
    accepted: Any,
    node_state: Any,
    node_free: Any,
    node_cpus: Any,
    node_memory: Any,
    node_owner: Any,
    node_type: Any,
    of_type: Any,
    gives: Any,
    fits: Any,
    table: Any,
    slack: float,
    total: float,
    window: Any,
    observation: Any,
    mask: Any,
) -> tuple[int, int]:
    """Show the jobs that have waited longest, and which of them free parts of nodes of one GPU type hold completely.

    `total` are the GPUs of the cluster, and `slack` an allowance for rounding. The results are those of `show_waiting`.
    """
    jobs = (gpus, cpus, memory_gib, queue, accepted)
    nodes = (node_state, node_free, node_cpus, node_memory, node_owner, node_type)
    free = fit_on_nodes(n, rows, waiting, here, workers, most, *jobs, *nodes, of_type, gives, fits)
    return show_waiting(n, here, fits, table, (free + slack) / total, window, observation, mask)


@kernel
def fit_on_nodes(
    n: int,
    rows: int,
    waiting: Any,
    here: Any,
    workers: Any,
    most: float,
    gpus: Any,
    cpus: Any,
    memory_gib: Any,
    queue: Any,
    accepted: Any,
    node_state: Any,
    node_free: Any,
    node_cpus: Any,
    node_memory: Any,
    node_owner: Any,
    node_type: Any,
    of_type: Any,
    gives: Any,
    fits: Any,
) -> int:
    """Write what each node gives each of the first `rows` jobs that wait, and whether one GPU type can hold the job.

    `of_type` is scratch for each GPU type. Returns the number of whole GPUs free on nodes that are up.
    """
    nodes, shown, free = len(node_state), 0, 0
    for node in range(nodes):
        if node_state[node] == NODE_UP:
            free += node_free[node]
    for i in range(n):
        fits[0, i] = False
        if not here[i] or shown == rows:
            continue
        shown += 1
        s = waiting[i]
        units = max(gpus[s], 1.0)
        unit_cpus, unit_memory = max(cpus[s] / units, LEAST), max(memory_gib[s] / units, LEAST)
        of_type[:] = 0
        for node in range(nodes):
            mine = node_owner[node] < 0 or node_owner[node] == queue[s]
            fitting = gpus[s] == 0.0 or (accepted[s] >> node_type[node] & 1) > 0
            room = 0.0
            if node_state[node] == NODE_UP and mine and fitting:
                room = float(node_free[node]) if gpus[s] > 0.0 else most
            if room > 0.0:
                room = min(room, np.floor(node_cpus[node] / unit_cpus + GPU_SLACK))
                room = max(min(room, np.floor(node_memory[node] / unit_memory + GPU_SLACK)), 0.0)
            gives[i, node] = int(room)
            of_type[node_type[node]] += gives[i, node]
        for t in range(len(of_type)):
            if of_type[t] >= workers[0, i]:
                fits[0, i] = True
    return free


@entry_point
def show_nodes(
    begins: bool,
    job: int,
    lacks: int,
    hours: float,
    widest: int,
    gives: Any,
    is_open: Any,
    taken: Any,
    node_state: Any,
    node_gpus: Any,
    node_free: Any,
    node_speed: Any,
    node_type: Any,
    of_type: Any,
    columns: int,
    observation: Any,
    mask: Any,
) -> None:
    """Show the nodes to the placement agent, which `begins` or has named some; `columns` come before the GPU type."""
    if begins:
        open_nodes(job, lacks, gives, node_type, of_type, is_open, taken)
    for node in range(len(node_type)):
        given = gives[job, node] if is_open[node] and taken[node] == 0 else 0
        observation[node, 0] = 1.0 if node_state[node] == NODE_UP else 0.0
        observation[node, 1] = node_gpus[node] / widest
        observation[node, 2] = node_free[node] / widest
        observation[node, 3] = min(given, lacks) / widest
        observation[node, 4] = lacks / widest
        observation[node, 5] = taken[node] / widest
        observation[node, 6] = node_speed[node]
        observation[node, 7] = hours
        for t in range(columns, observation.shape[1]):
            observation[node, t] = 0.0
        observation[node, columns + node_type[node]] = 1.0
        mask[node] = given > 0
    mask[len(node_type)] = False


@kernel
def open_nodes(job: int, lacks: int, gives: Any, node_type: Any, of_type: Any, is_open: Any, taken: Any) -> None:
    """Open the nodes of all GPU types that can hold the job completely."""
    of_type[:] = 0
    for node in range(len(node_type)):
        of_type[node_type[node]] += gives[job, node]
        taken[node] = 0
    for node in range(len(node_type)):
        is_open[node] = of_type[node_type[node]] >= lacks
