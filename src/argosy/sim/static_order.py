"""A fast path for policies with fixed keys: all jobs of a trace are ranked once, and kernels keep the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from argosy.mechanism.feasibility import classify
from argosy.mechanism.kernels import layout as L
from argosy.sim.answers import check_key
from argosy.sim.views import view_on_arrival

if TYPE_CHECKING:
    from argosy.sim.engine import Engine

MAX_CLASSES = 256  # demand classes; with more of them the ordinary walk is as fast


def prepare(engine: Engine) -> bool:
    """Use the fast path if the policy need not be asked during the run; return whether it is used."""
    w, policy = engine.world, engine.policy
    w.si[L.STATIC] = 0
    blocked = (
        not policy.static
        or policy.preemptive
        or engine.must_ask
        or engine.external.disturbs
        or w.si[L.QUOTAS]
        or np.isfinite(w.qu[L.Q_LIMIT]).any()
    )
    if blocked:
        return False
    tr, jobs = w.tr, len(engine.trace)
    demand = np.stack(
        [
            tr[L.GPUS],
            tr[L.CPU_UNIT],
            tr[L.MEM_UNIT],
            tr[L.STATIC_F + L.TYPES],
            tr[L.STATIC_F + L.WANT_PS_ASKED],
            tr[L.STATIC_F + L.WANT_PLACE],
            tr[L.STATIC_F + L.CLASS],
        ]
    )
    if len(engine.tables.gpu_types) == 1:
        demand[-1] = 0.0  # with one GPU type, the class does not affect placement
    inverse, representatives = classify(demand)
    classes = len(representatives)
    if classes > MAX_CLASSES:
        return False
    keys = check_key(policy.rank(view_on_arrival(engine, tr, np.arange(jobs))), jobs, policy)
    if np.isnan(keys).any():
        engine.refuse_key(int(np.isnan(keys).argmax()))
    order = np.argsort(keys, kind="stable")
    wq = np.zeros((L.WQ_ROWS, jobs), np.int32)
    wq[L.WQ_CLASS, : len(inverse)] = inverse
    wq[L.WQ_RANKED, : len(order)] = order
    wq[L.WQ_RANK, order] = np.arange(len(order))
    sizes = np.bincount(inverse, minlength=classes)
    wq[L.WQ_OFFSET, :classes] = np.cumsum(sizes) - sizes
    engine.world = w._replace(wq=wq)
    w.si[L.STATIC], w.si[L.CLASSES], w.si[L.EAGER] = 1, classes, 0
    return True
