"""Packing: a waiting job runs on the same devices as a running one, and each of them is slower."""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import (
    count_held,
    expect_end,
    log_placement,
    measure,
    price,
    settle,
    start,
)
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import give, popcount
from argosy.mechanism.kernels.place import holds, is_open, propose_these
from argosy.slack import GPU_SLACK


@kernel
def pack(w: World, s: int, host: int) -> bool:
    """Run a waiting job on the same devices as a running one; each holds half of every device."""
    jf, ji, en = w.jf, w.ji, w.en
    whole = jf[GPUS, s] >= 1.0 and jf[GPUS, host] >= 1.0
    if not whole or ji[STATE, host] != RUNNING or ji[PEER, host] >= 0 or jf[HELD, host] != jf[GPUS, s]:
        return False
    settle(jf, w.sf, host, w.sf[NOW])
    parts, units = 0, 0
    e = ji[HEAD, host]
    while e >= 0:
        node, gpus = en[e, E_NODE], popcount(en[e, E_MASK])
        units = units + gpus if parts and w.wk[W_NODE, parts - 1] == node else gpus
        if not holds(w.ni, w.nf, node, 0, units * jf[CPU_UNIT, s], units * jf[MEM_UNIT, s]):
            return False
        propose_these(w, parts, node, gpus, en[e, E_WORD], en[e, E_MASK], WHOLE // 2)
        parts += 1
        e = en[e, E_NEXT]
    count_held(w, host, -1.0)
    jf[HELD, host] /= 2
    count_held(w, host, 1.0)
    e = ji[HEAD, host]
    while e >= 0:
        give(w.ni, w.bk, w.si, en[e, E_NODE], en[e, E_WORD], en[e, E_MASK], WHOLE // 2)
        en[e, E_MILLI] = WHOLE // 2
        e = en[e, E_NEXT]
    ji[PEER, s], ji[PEER, host] = ji[ID, host], ji[ID, s]
    start(w, s, parts)
    price(w, host)
    expect_end(w, host)
    measure(w, host, True)
    log_placement(w, host, K_RESUME, 0.0)
    return True


@kernel
def pack_wanted(w: World) -> None:
    """Pack the jobs that still wait with those that their bids name (WANT_PEER), where that is possible."""
    ji, so, qu = w.ji, w.so, w.qu
    for s in range(w.si[ACTIVE]):
        if ji[STATE, s] != WAITING or ji[WANT_PEER, s] < 0:
            continue
        q, host = ji[QUEUE, s], so[ji[WANT_PEER, s]]
        allowed = qu[Q_HELD, q] + w.jf[GPUS, s] / 2 <= qu[Q_LIMIT, q] + GPU_SLACK
        e = ji[HEAD, host]
        while allowed and e >= 0:
            allowed = is_open(w.ni, w.en[e, E_NODE], ji[TYPES, s], q)
            e = w.en[e, E_NEXT]
        if allowed:
            pack(w, s, host)
