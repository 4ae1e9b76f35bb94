"""Rotate time-sliced groups, in which jobs whose placements overlap take turns.

At the end of each quantum the members that have waited longest for a turn run, as many as have disjoint devices.
"""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import begin, count_held, derive_one, hold, leave, log, make_safe, settle
from argosy.mechanism.kernels.heap import push
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import are_left, popcount
from argosy.mechanism.kernels.place import holds


@kernel
def schedule_rotation(w: World, group: int, at: float) -> None:
    w.gq[group, G_GEN] += 1
    push(w.hp, w.si, at, DUE_SLICE, group, int(w.gq[group, G_GEN]))


@kernel
def forget_strangers(w: World) -> None:
    """Drop the rows of jobs that have ended or left their group."""
    gp, si = w.gp, w.si
    n = 0
    for i in range(si[GROUP_ROWS]):
        s = w.so[gp[i, G_JOB]]
        if s >= 0 and w.ji[GROUP, s] == gp[i, G_GROUP]:
            for f in range(GP_FIELDS):
                gp[n, f] = gp[i, f]
            n += 1
    si[GROUP_ROWS] = n


@kernel
def pause(w: World, s: int) -> None:
    jf, ji, t = w.jf, w.ji, w.sf[NOW]
    settle(jf, w.sf, s, t)
    if jf[SAVES, s] == SAVES_AT_STOP:  # others stay in memory only
        make_safe(jf, s, t)
    jf[OWED, s] = max(jf[READY, s] - t, 0.0)
    leave(w, s)
    ji[STATE, s] = PAUSED
    jf[WAIT_SINCE, s] = t
    jf[RATE, s] = 0.0
    derive_one(w, s)
    log(w.lg, w.si, t, K_PAUSE, ji[ID, s], -1, 0, 0, 0, 0.0)
    w.si[LOG_SEQ] += 1


@kernel
def take_turn(w: World, s: int, group: int) -> None:
    """Run a paused member on the placement recorded for it."""
    jf, ji, gp, t = w.jf, w.ji, w.gp, w.sf[NOW]
    for i in range(w.si[GROUP_ROWS]):
        if gp[i, G_GROUP] == group and gp[i, G_JOB] == ji[ID, s]:
            hold(w, s, gp[i, G_NODE], gp[i, G_WORD], gp[i, G_MASK], WHOLE, gp[i, G_PS])
    first = ji[RUNS, s] == 0
    if first:
        w.rs[R_FIRST_START, ji[ID, s]] = t
    jf[WAITED, s] += t - jf[WAIT_SINCE, s]
    jf[STARTED, s] = t
    ji[STATE, s] = RUNNING
    ji[RUNS, s] += 1
    w.si[RUNNING_N] += 1
    count_held(w, s, 1.0)
    overhead = w.ov[ji[CLASS, s], O_START if first else O_SLICE] + jf[OWED, s]
    jf[OWED, s] = 0.0
    begin(w, s, K_START if first else K_RESUME, overhead)


@kernel
def rotate(w: World, group: int) -> None:
    """End the turn of a group: choose the members that run next, pause the others, and set when the turn ends."""
    gp, si, ji = w.gp, w.si, w.ji
    forget_strangers(w)
    si[TURN] += 1
    n = si[GROUP_ROWS]
    chosen = w.wk[W_KEPT]  # rows of the members that run next
    members = 0
    for i in range(n):
        chosen[i] = 0
        members += gp[i, G_GROUP] == group and (i == 0 or gp[i - 1, G_JOB] != gp[i, G_JOB])
    for _ in range(members):
        best = -1
        for i in range(n):
            first_row = i == 0 or gp[i - 1, G_JOB] != gp[i, G_JOB]
            candidate = gp[i, G_GROUP] == group and first_row and gp[i, G_TURN] >= 0
            if candidate and (best < 0 or gp[i, G_TURN] < gp[best, G_TURN]):
                best = i
        fits = True
        i = best
        while i < n and gp[i, G_JOB] == gp[best, G_JOB]:
            fits = fits and not overlaps(w, i)
            i += 1
        i = best
        while i < n and gp[i, G_JOB] == gp[best, G_JOB]:
            chosen[i] = fits
            gp[i, G_TURN] = ~gp[i, G_TURN]  # marks it as considered; restored below
            i += 1
    for i in range(n):
        if gp[i, G_GROUP] == group:
            gp[i, G_TURN] = si[TURN] if chosen[i] else ~gp[i, G_TURN]
            s = w.so[gp[i, G_JOB]]
            if not chosen[i] and ji[STATE, s] == RUNNING:
                pause(w, s)
    for i in range(n):
        if gp[i, G_GROUP] == group and chosen[i]:
            s = w.so[gp[i, G_JOB]]
            if ji[STATE, s] == PAUSED and is_clear(w, s, group):
                take_turn(w, s, group)
    waits = False
    for i in range(n):
        waits |= gp[i, G_GROUP] == group and ji[STATE, w.so[gp[i, G_JOB]]] == PAUSED
    if waits:
        schedule_rotation(w, group, w.sf[NOW] + w.gq[group, G_QUANTUM])


@kernel
def overlaps(w: World, i: int) -> bool:
    """Return whether a member that runs next has a device of this row."""
    gp = w.gp
    for j in range(w.si[GROUP_ROWS]):
        same_word = gp[j, G_NODE] == gp[i, G_NODE] and gp[j, G_WORD] == gp[i, G_WORD]
        if same_word and w.wk[W_KEPT, j] and gp[j, G_MASK] & gp[i, G_MASK]:
            return True
    return False


@kernel
def is_clear(w: World, s: int, group: int) -> bool:
    """Return whether the devices, CPUs and memory of a member's placement are free, and its nodes up."""
    gp, ni, jf = w.gp, w.ni, w.jf
    at, units = -1, 0
    for i in range(w.si[GROUP_ROWS]):
        if gp[i, G_GROUP] == group and gp[i, G_JOB] == w.ji[ID, s]:
            node = gp[i, G_NODE]
            if node != at:  # rows of one node follow each other
                at, units = node, 0
            units += popcount(gp[i, G_MASK]) + gp[i, G_PS]
            if ni[N_STATE, node] != NODE_UP or not are_left(ni, node, gp[i, G_WORD], gp[i, G_MASK], WHOLE):
                return False
            if not holds(ni, w.nf, node, 0, units * jf[CPU_UNIT, s], units * jf[MEM_UNIT, s]):
                return False
    return True
