"""The doors from Python into the kernels.

They take the World field by field, because Numba unpacks plain arguments several times faster than a tuple.
"""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels import apply, clock
from argosy.mechanism.kernels.admit import admit
from argosy.mechanism.kernels.book import note, settle
from argosy.mechanism.kernels.clock import advance, derive
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.static import admit_static


@kernel
def step(
    jf: F1, ji: I1, nf: F1, ni: I1, bk: I1, en: I1, hp: F1, lg: F1, sf: F1, si: I1, tr: F1, so: I1, rs: F1,
    rt: F1, ps: F1, pr: F1, ov: F1, wk: I1, ex: F1, qu: F1, gp: I1, gq: F1,
) -> int:
    """Carry out the ranking in the job matrices (if APPLY is set), then go on to the next decision."""
    w = World(jf, ji, nf, ni, bk, en, hp, lg, sf, si, tr, so, rs, rt, ps, pr, ov, wk, ex, qu, gp, gq)
    if si[APPLY]:
        admit(w)
        si[APPLY] = 0
        if si[BAD_KEY]:
            return DECIDE
    code = advance(w)
    if code == DECIDE:
        derive(w)
    return code


@kernel
def run_static(
    jf: F1, ji: I1, nf: F1, ni: I1, bk: I1, en: I1, hp: F1, lg: F1, sf: F1, si: I1, tr: F1, so: I1, rs: F1,
    rt: F1, ps: F1, pr: F1, ov: F1, wk: I1, ex: F1, qu: F1, gp: I1, gq: F1,
) -> int:
    """Run a policy with fixed keys until the host must help or all is done."""
    w = World(jf, ji, nf, ni, bk, en, hp, lg, sf, si, tr, so, rs, rt, ps, pr, ov, wk, ex, qu, gp, gq)
    while True:
        if si[APPLY]:
            if not admit_static(w):
                return GROW_JOBS
            si[APPLY] = 0
        code = advance(w)
        if code != DECIDE:
            return code
        si[APPLY] = 1


@kernel
def carry_out(
    jf: F1, ji: I1, nf: F1, ni: I1, bk: I1, en: I1, hp: F1, lg: F1, sf: F1, si: I1, tr: F1, so: I1, rs: F1,
    rt: F1, ps: F1, pr: F1, ov: F1, wk: I1, ex: F1, qu: F1, gp: I1, gq: F1,
    ops: I1, parts: I1,
) -> int:
    """Carry out an explicit plan; -1, or the row that could not be."""
    return apply.apply_plan(World(jf, ji, nf, ni, bk, en, hp, lg, sf, si, tr, so, rs, rt, ps, pr, ov, wk, ex, qu, gp, gq), ops, parts)


@kernel
def reprice(
    jf: F1, ji: I1, nf: F1, ni: I1, bk: I1, en: I1, hp: F1, lg: F1, sf: F1, si: I1, tr: F1, so: I1, rs: F1,
    rt: F1, ps: F1, pr: F1, ov: F1, wk: I1, ex: F1, qu: F1, gp: I1, gq: F1,
) -> None:
    """Machine speeds have changed."""
    clock.reprice(World(jf, ji, nf, ni, bk, en, hp, lg, sf, si, tr, so, rs, rt, ps, pr, ov, wk, ex, qu, gp, gq))


@kernel
def tidy(
    jf: F1, ji: I1, nf: F1, ni: I1, bk: I1, en: I1, hp: F1, lg: F1, sf: F1, si: I1, tr: F1, so: I1, rs: F1,
    rt: F1, ps: F1, pr: F1, ov: F1, wk: I1, ex: F1, qu: F1, gp: I1, gq: F1,
) -> None:
    """Drop stale entries from the heap."""
    clock.tidy(World(jf, ji, nf, ni, bk, en, hp, lg, sf, si, tr, so, rs, rt, ps, pr, ov, wk, ex, qu, gp, gq))


@kernel
def close_books(
    jf: F1, ji: I1, nf: F1, ni: I1, bk: I1, en: I1, hp: F1, lg: F1, sf: F1, si: I1, tr: F1, so: I1, rs: F1,
    rt: F1, ps: F1, pr: F1, ov: F1, wk: I1, ex: F1, qu: F1, gp: I1, gq: F1,
) -> None:
    """The run is over: settle and note the jobs that are still active."""
    w = World(jf, ji, nf, ni, bk, en, hp, lg, sf, si, tr, so, rs, rt, ps, pr, ov, wk, ex, qu, gp, gq)
    for s in range(si[ACTIVE]):
        if ji[STATE, s] == RUNNING:
            settle(jf, sf, s, sf[NOW])
        note(w, s, UNFINISHED)
