"""Carry out an explicit plan: first stops, then moves (all are removed before any is placed), then starts."""

from __future__ import annotations

from argosy._jit import kernel
from argosy.mechanism.kernels.accounting import (
    fall_back,
    finish_move,
    hold_chosen,
    save_if_asked,
    start,
    stop,
)
from argosy.mechanism.kernels.groups import pause, rotate
from argosy.mechanism.kernels.layout import *
from argosy.mechanism.kernels.nodes import are_left
from argosy.mechanism.kernels.pack import pack
from argosy.mechanism.kernels.place import holds, propose_these
from argosy.mechanism.kernels.resize import lay_down
from argosy.slack import GPU_SLACK


@kernel
def load_parts(w: World, parts: I1, first: int, n: int) -> None:
    """Copy parts of a plan into the scratch rows."""
    for i in range(n):
        p = parts[first + i]
        propose_these(w, i, p[PART_NODE], p[PART_GPUS], p[PART_WORD], p[PART_MASK], p[PART_MILLI])
        w.wk[W_PS, i] = p[PART_PS]


@kernel
def parts_fit(w: World, s: int, n: int) -> bool:
    """Return whether every part of the proposal is free on a node that is up; parts on one node are adjacent."""
    jf, ni, wk = w.jf, w.ni, w.wk
    units = 0
    for i in range(n):
        node, count, mask = wk[W_NODE, i], wk[W_COUNT, i], wk[W_MASK, i]
        if i == 0 or wk[W_NODE, i - 1] != node:
            units = 0
        units += count + wk[W_PS, i] if jf[GPUS, s] >= 1.0 else 1
        if ni[N_STATE, node] == NODE_DOWN:
            return False
        if not holds(ni, w.nf, node, 0, units * jf[CPU_UNIT, s], units * jf[MEM_UNIT, s]):
            return False
        if mask == 0 and ni[N_FREE, node] < count:
            return False
        if not are_left(ni, node, wk[W_WORD, i], mask, wk[W_MILLI, i]):
            return False
    return True


@kernel
def granted(w: World, s: int, n: int) -> float:
    """Return the GPUs of the proposal: an elastic job may get fewer than it asked for."""
    if w.jf[GPUS, s] < 1.0:
        return float(w.jf[GPUS, s])
    gpus = 0
    for i in range(n):
        gpus += w.wk[W_COUNT, i]
    return float(gpus)


@kernel
def apply_plan(w: World, ops: I1, parts: I1) -> int:
    """Carry out the rows of a plan; return -1, or the first row that cannot be carried out."""
    si, ji, so = w.si, w.ji, w.so
    n = ops.shape[0]
    for i in range(n):
        s = so[ops[i, P_JOB]]
        if ops[i, P_OP] == DO_STOP and ji[STATE, s] == RUNNING:
            stop(w, s, K_PREEMPT, True)
        elif ops[i, P_OP] == DO_STOP and ji[STATE, s] == PAUSED:
            ji[STATE, s], ji[GROUP, s] = WAITING, -1
            ji[PREEMPTIONS, s] += 1
            fall_back(w.jf, s)
    for i in range(n):
        if ops[i, P_OP] == DO_MOVE:
            lay_down(w, so[ops[i, P_JOB]])
    for i in range(n):
        op, s = ops[i, P_OP], so[ops[i, P_JOB]]
        if op in (DO_MOVE, DO_START):
            load_parts(w, parts, ops[i, P_FIRST], ops[i, P_PARTS])
            if not parts_fit(w, s, ops[i, P_PARTS]):
                return i
            if op == DO_START:
                q = ji[QUEUE, s]
                if w.qu[Q_HELD, q] + granted(w, s, ops[i, P_PARTS]) > w.qu[Q_LIMIT, q] + GPU_SLACK:
                    return i
                start(w, s, ops[i, P_PARTS])
            else:
                hold_chosen(w, s, ops[i, P_PARTS])
                save_if_asked(w.jf, s, w.sf[NOW])
                finish_move(w, s, ops[i, P_VALUE])
        elif op == DO_PACK:
            if not pack(w, s, so[ops[i, P_VALUE]]):
                return i
        elif op == DO_SLICE:
            enter_group(w, s, ops[i, P_VALUE], parts, ops[i, P_FIRST], ops[i, P_PARTS])
    for group in range(si[GROUPS]):
        if w.gq[group, G_GEN] == 0:
            w.gq[group, G_GEN] = 1
            rotate(w, group)
    return -1


@kernel
def enter_group(w: World, s: int, group: int, parts: I1, first: int, n: int) -> None:
    gp, ji, si = w.gp, w.ji, w.si
    if ji[STATE, s] == RUNNING:
        pause(w, s)
    elif ji[STATE, s] == WAITING and ji[RUNS, s] > 0:  # it was suspended, and must be brought back first
        w.jf[OWED, s] = w.ov[ji[CLASS, s], O_RESUME] + w.ov[ji[CLASS, s], O_SUSPEND]
    ji[STATE, s], ji[GROUP, s] = PAUSED, group
    for i in range(n):
        row = si[GROUP_ROWS]
        p = parts[first + i]
        gp[row, G_GROUP], gp[row, G_JOB], gp[row, G_NODE] = group, ji[ID, s], p[PART_NODE]
        gp[row, G_WORD], gp[row, G_MASK], gp[row, G_PS], gp[row, G_TURN] = p[PART_WORD], p[PART_MASK], p[PART_PS], 0
        si[GROUP_ROWS] = row + 1
