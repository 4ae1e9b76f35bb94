"""Moving running jobs to machines that are believed to be faster, at the end of a walk.

The policy says with its bids how fast it believes each machine to be, and by what factor machines must be faster for a
job to move there: the longer a job goes on and the cheaper its move, the smaller the factor.
"""

from __future__ import annotations

import numpy as np

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import old_enough_at
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.place import choose, slowest
from argosy.mechanism.kernels.taken import move, put_back, take_away
from argosy.slack import TIME_SLACK_S

MOST_FAILED = 64  # jobs that find no faster place; then the rest is not tried


@kernel
def seek_faster(w: World) -> None:
    """Let jobs move to free places on faster machines, in the order of the walk."""
    jf, ji, si, so = w.jf, w.ji, w.si, w.so
    best = fastest_free(w, -1)
    failed = 0
    for i in range(si[ORDER_N]):
        s = so[w.wk[W_ORDER, i]]
        if ji[STATE, s] != RUNNING or jf[GPUS, s] < 1.0 or ji[PEER, s] >= 0 or ji[GROUP, s] >= 0:
            continue
        needed = speed_of_held(w, s) * jf[LEAST_GAIN, s]
        if needed > best or max(old_enough_at(w, s), jf[READY, s], jf[LEASE, s]) > w.sf[NOW] + TIME_SLACK_S:
            continue
        if failed == MOST_FAILED:
            return
        if needed > fastest_free(w, ji[HELD_TYPE, s]):
            continue
        racks = count_held_racks(w, s)
        gpus, servers, wanted = int(np.round(jf[HELD, s])), ji[PS_HELD, s], ji[WANT_TYPES, s]
        ji[WANT_TYPES, s] = 1 << ji[HELD_TYPE, s]
        take_away(w, s)
        parts = choose(w, s, gpus, servers, False)
        ji[WANT_TYPES, s] = wanted
        if parts and slowest(w, parts) >= needed and count_racks(w, parts) <= racks:
            move(w, s, parts)
            best = fastest_free(w, -1)
        else:
            put_back(w, s)
            failed += 1


@kernel
def fastest_free(w: World, gpu_type: int) -> float:
    """Return the believed speed of the fastest machine with a free GPU of a type; -1: of any."""
    best = 0.0
    for node in range(w.si[NODES]):
        of_type = gpu_type < 0 or w.ni[N_TYPE, node] == gpu_type
        if of_type and w.ni[N_STATE, node] == NODE_UP and w.ni[N_FREE, node] > 0:
            best = max(best, w.nf[BELIEVED, node])
    return best


@kernel
def speed_of_held(w: World, s: int) -> float:
    """Return the believed speed of the slowest machine that a running job has GPUs on."""
    speed = np.inf
    e = w.ji[HEAD, s]
    while e >= 0:
        if w.en[e, E_MASK]:
            speed = min(speed, w.nf[BELIEVED, w.en[e, E_NODE]])
        e = w.en[e, E_NEXT]
    return speed


@kernel
def count_held_racks(w: World, s: int) -> int:
    """Return 1 if all that a running job holds is in one rack, 2 if not."""
    e = w.ji[HEAD, s]
    first = w.ni[N_RACK, w.en[e, E_NODE]]
    while e >= 0:
        if w.ni[N_RACK, w.en[e, E_NODE]] != first:
            return 2
        e = w.en[e, E_NEXT]
    return 1


@kernel
def count_racks(w: World, parts: int) -> int:
    """Return 1 if a proposal is in one rack, 2 if not."""
    for p in range(1, parts):
        if w.ni[N_RACK, w.wk[W_NODE, p]] != w.ni[N_RACK, w.wk[W_NODE, 0]]:
            return 2
    return 1
