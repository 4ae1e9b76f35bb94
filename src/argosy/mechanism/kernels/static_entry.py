"""The entry point for runs of policies whose keys are fixed at arrival.

They need so little of the kernels that compiling it takes a third of the time of compiling all: see entry.py.
"""

from __future__ import annotations

from argosy._jit import entry_point
from argosy.mechanism.kernels.accounting import close
from argosy.mechanism.kernels.clock import advance_static, reprice
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.static import admit_static


@entry_point
def enter_static(
    jf: F1,
    ji: I1,
    nf: F1,
    ni: I1,
    bk: I1,
    en: I1,
    hp: F1,
    lg: F1,
    sf: F1,
    si: I1,
    tr: F1,
    so: I1,
    rs: F1,
    rt: F1,
    ps: F1,
    pr: F1,
    ov: F1,
    cb: F1,
    pt: F1,
    wk: I1,
    sk: F1,
    wq: I4,
    ex: F1,
    qu: F1,
    gp: I1,
    gq: F1,
    ops: I1,
    parts: I1,
) -> int:
    w = World(jf, ji, nf, ni, bk, en, hp, lg, sf, si, tr, so, rs, rt, ps, pr, ov, cb, pt, wk, sk, wq, ex, qu, gp, gq)
    if si[OP] == OP_CLOSE:
        close(w)
        return 0
    if si[OP] == OP_REPRICE:
        reprice(w)
        return 0
    while True:
        if si[APPLY]:
            if not admit_static(w):
                return GROW_JOBS
            si[APPLY] = 0
        code = advance_static(w)
        if code != DECIDE:
            return code
        si[APPLY] = 1
