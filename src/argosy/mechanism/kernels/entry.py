"""The entry point from Python into the kernels, except for runs of policies whose keys are fixed (static_entry.py).

There are no more, because each entry point would compile all that it calls again; the scalar OP says what to do. It
takes the World field by field, because Numba unpacks plain arguments several times faster than a tuple.
"""

from __future__ import annotations

from argosy._jit import entry_point
from argosy.mechanism.kernels.accounting import close, set_batch
from argosy.mechanism.kernels.admit import admit
from argosy.mechanism.kernels.apply import apply_plan
from argosy.mechanism.kernels.clock import advance, derive, reprice
from argosy.mechanism.kernels.keyed import rank_without_policy
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.live import pass_time, told


@entry_point
def enter(
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
    op = si[OP]
    if op == OP_STEP:  # carry out the ranking in the job matrices, then go on to the next decision
        while True:
            if si[APPLY]:
                admit(w)
                if si[BAD_KEY]:
                    return DECIDE
                si[APPLY] = 0
            code = advance(w)
            if code != DECIDE:
                return code
            si[APPLY] = 1
            derive(w)
            if si[KEY_ROW] < 0 and si[ORDER_FN] == 0:
                si[APPLY] = 0
                return DECIDE
            rank_without_policy(w)
    if op == OP_ADMIT:  # carry out the ranking and let no time pass, for callers that inspect the outcome
        if si[APPLY]:
            admit(w)
        si[APPLY] = 0
    elif op == OP_PLAN:  # carry out an explicit plan: -1, or the row that could not be
        return apply_plan(w, ops, parts)
    elif op == OP_BATCH:  # jobs have other batch sizes: rows of (job, class)
        for i in range(ops.shape[0]):
            set_batch(w, so[ops[i, 0]], ops[i, 1])
    elif op == OP_REPRICE:  # machine speeds have changed
        reprice(w)
    elif op == OP_CLOSE:  # the run is over: settle and note the jobs that are still active
        close(w)
    elif op == OP_PASS:  # a live cluster: let the clock go on to UNTIL, and prepare the columns for the policy
        code = pass_time(w)
        derive(w)
        return code
    elif op == OP_TOLD:  # a live cluster: take in what happened
        told(w, ops)
    return 0
