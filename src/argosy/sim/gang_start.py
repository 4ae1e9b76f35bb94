"""Start one waiting job on nodes that a host has chosen and checked, without the detour of a plan for all jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from argosy.errors import InvalidPlan
from argosy.mechanism.kernels import layout as L
from argosy.slack import GPU_SLACK

if TYPE_CHECKING:
    from argosy.sim.engine import Engine


def start_gang(engine: Engine, row: int, named: Sequence[tuple[int, int]]) -> bool:
    """Start the job in this row on these (node, GPUs); return False if its queue is at its limit.

    As in a `Plan`, the number is 1 for a share of a device and 0 for a job without GPUs. No time passes.
    """
    w = engine.world
    job, queue, asked = int(w.ji[L.ID, row]), w.ji[L.QUEUE, row], float(w.jf[L.GPUS, row])
    if w.ji[L.STATE, row] != L.WAITING:
        raise InvalidPlan(f"job {engine.job_name(job)!r} cannot be started: it does not wait")
    more = float(sum([gpus for _, gpus in named])) if asked >= 1 else asked
    if more > 0 and w.qu[L.Q_HELD, queue] + more > w.qu[L.Q_LIMIT, queue] + GPU_SLACK:
        return False
    milli = round(asked * L.WHOLE) if 0 < asked < 1 else L.WHOLE
    ops = np.array([(L.DO_START, job, 0, len(named), 0)], np.int64)
    parts = np.array([(node, gpus, 0, 0, milli, 0) for node, gpus in sorted(named)], np.int64)
    if engine.kernel(L.OP_PLAN, ops, parts) >= 0:
        raise InvalidPlan(f"job {engine.job_name(job)!r} does not fit on these nodes (GPUs by node): {dict(named)}")
    return True
