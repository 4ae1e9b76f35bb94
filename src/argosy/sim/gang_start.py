"""Start one waiting job on nodes that a host has chosen and checked, without the detour of a plan for all jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InvalidPlan
from argosy.mechanism.kernels import layout as L
from argosy.slack import GPU_SLACK

if TYPE_CHECKING:
    from argosy.sim.engine import Engine


def start_gang(engine: Engine, row: int, nodes: NDArray[np.int64], gpus: NDArray[np.int64]) -> bool:
    """Start the job in this row with so many GPUs on each of the nodes; return False if its queue is at its limit.

    As in a `Plan`, the number is 1 for a share of a device and 0 for a job without GPUs. No time passes.
    """
    w = engine.world
    if w.ji[L.STATE, row] != L.WAITING:
        raise InvalidPlan(f"job {engine.job_name(int(w.ji[L.ID, row]))!r} cannot be started: it does not wait")
    asked, queue = float(w.jf[L.GPUS, row]), int(w.ji[L.QUEUE, row])
    more = float(np.add.reduce(gpus)) if asked >= 1 else asked
    if more > 0 and w.qu[L.Q_HELD, queue] + more > w.qu[L.Q_LIMIT, queue] + GPU_SLACK:
        return False
    job = int(w.ji[L.ID, row])
    ops = np.array([[L.DO_START, job, 0, len(nodes), 0]], np.int64)
    parts = np.zeros((len(nodes), L.PART_FIELDS), np.int64)
    parts[:, L.PART_NODE], parts[:, L.PART_GPUS] = nodes, gpus
    parts[:, L.PART_MILLI] = round(asked * L.WHOLE) if 0 < asked < 1 else L.WHOLE
    if engine.kernel(L.OP_PLAN, ops, parts) >= 0:
        taken = dict(zip(nodes.tolist(), gpus.tolist()))
        raise InvalidPlan(f"job {engine.job_name(job)!r} does not fit on these nodes (GPUs by node): {taken}")
    return True
