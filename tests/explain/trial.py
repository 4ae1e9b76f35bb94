"""Ask the mechanism itself whether an explanation is true."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from argosy.mechanism.kernels import layout as L
from argosy.mechanism.supply import Demand
from argosy.sim.engine import Engine


def starts(engine: Engine, row: int, demand: Demand, gone: Iterable[int] = ()) -> bool:
    """Return whether a job of this demand would start if it were first and these rows were stopped, on a copy."""
    real = engine.world
    engine.world = w = L.World(*(matrix.copy() for matrix in real))
    stops = np.array([(L.DO_STOP, w.ji[L.ID, r], 0, 0, 0) for r in gone], np.int64).reshape(-1, 5)
    engine.kernel(L.OP_PLAN, stops)
    w.si[L.PREEMPTIVE] = w.si[L.QUOTAS] = w.si[L.ELASTIC] = 0
    w.qu[L.Q_LIMIT] = np.inf
    w.jf[L.KEY, : w.si[L.ACTIVE]] = np.arange(w.si[L.ACTIVE])
    w.jf[L.KEY, row] = -1.0
    w.ji[L.WANT, row], w.ji[L.WANT_PS, row] = demand.units, demand.servers
    w.si[L.APPLY] = 1
    engine.kernel(L.OP_ADMIT)
    started = bool(w.ji[L.STATE, row] == L.RUNNING)
    engine.world = real
    return started
