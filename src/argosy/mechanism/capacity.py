"""Enlarge the state matrices: they have fixed sizes, and the kernels ask their host for larger ones."""

from __future__ import annotations

import numpy as np

from argosy.mechanism.kernels import layout as L
from argosy.mechanism.world import spread_out


def with_more_slots(w: L.World) -> L.World:
    """Return the world with room for twice as many active jobs, and with entries for what they will hold."""
    slots = spread_out(2 * w.jf.shape[1])
    jf, ji = np.zeros((L.JF_ROWS, slots)), np.zeros((L.JI_ROWS, slots), np.int64)
    jf[:, : w.jf.shape[1]], ji[:, : w.ji.shape[1]] = w.jf, w.ji
    wk, sk = w.wk, np.zeros((L.SK_ROWS, max(w.sk.shape[1], slots + 2)))
    if wk.shape[1] < slots + 2:
        wk = np.zeros((L.WK_ROWS, slots + 2), np.int64)
        wk[:, : w.wk.shape[1]] = w.wk
    extra = 2 * (2 + int(w.tr[L.STATIC_F + L.WANT_PS_ASKED].max(initial=0))) * (slots - w.jf.shape[1])
    en = np.vstack([w.en, np.zeros((extra, L.EN_FIELDS), np.int64)])
    en[len(w.en) :, L.E_NEXT] = np.arange(len(w.en) + 1, len(en) + 1)
    en[-1, L.E_NEXT] = w.si[L.ENTRY_FREE]
    w.si[L.ENTRY_FREE] = len(w.en)
    return w._replace(jf=jf, ji=ji, wk=wk, sk=sk, en=en)


def with_longer_log(w: L.World) -> L.World:
    """Return the world with room for four times as many rows in the event log."""
    used = int(w.si[L.LOG_N])
    lg = np.empty((4 * len(w.lg), L.LG_FIELDS))
    lg[:used] = w.lg[:used]
    return w._replace(lg=lg)


def with_larger_heap(w: L.World, least: int = 0) -> L.World:
    """Drop stale heap rows; return the world with room in the heap for `least` rows, or for one instant's rows."""
    heap = w.hp[: w.si[L.HEAP_N]].copy()
    of_group = heap[:, L.H_KIND] == L.DUE_SLICE
    target = heap[:, L.H_JOB].astype(np.int64)
    slot = np.where(of_group, -1, w.so[np.where(of_group, 0, target)])
    due = (slot >= 0) & (w.ji[L.GEN, slot] == heap[:, L.H_GEN])
    if of_group.any():
        due |= of_group & (w.gq[np.where(of_group, target, 0), L.G_GEN] == heap[:, L.H_GEN])
    kept = heap[due]
    kept = kept[np.lexsort((kept[:, L.H_SEQ], kept[:, L.H_KIND], kept[:, L.H_TIME]))]  # sorted, so a heap
    w.hp[: len(kept)] = kept
    w.si[L.HEAP_N] = len(kept)
    need = len(kept) + busiest_instant(w)
    if 2 * need > len(w.hp):
        w = w._replace(hp=np.vstack([w.hp, np.zeros((2 * need, L.HP_FIELDS))]))
    if len(kept) + least > len(w.hp):
        w = w._replace(hp=np.vstack([w.hp, np.zeros((2 * least, L.HP_FIELDS))]))
    return w


def busiest_instant(w: L.World, newcomers: int = 0) -> int:
    """Return how many rows of the log or the heap one instant or one decision can add at most."""
    return 4 * (int(w.si[L.ACTIVE]) + newcomers) + 3 * int(w.si[L.TOTAL_GPUS]) + 64


def with_room_for_jobs(w: L.World, jobs: int) -> L.World:
    """Return the world, enlarged to twice as many jobs in trace and results if it has no room for `jobs` jobs."""
    room = w.tr.shape[1]
    if jobs <= room:
        return w
    more = ((0, 0), (0, 2 * jobs - room))
    return w._replace(
        tr=np.pad(w.tr, more),
        so=np.pad(w.so, more[1:], constant_values=-1),
        rs=np.concatenate([w.rs, empty_results(2 * jobs - room)], axis=1),
    )


def without_jobs(w: L.World, room: int) -> L.World:
    """Return the world with an empty trace that has room for this number of jobs."""
    so = np.full(room, -1, np.int64)
    return w._replace(tr=np.zeros((L.TR_ROWS, room)), so=so, rs=empty_results(room))


def empty_results(jobs: int) -> L.F1:
    """Return the results of jobs that have not ended."""
    rs = np.zeros((L.RS_ROWS, jobs))
    rs[L.R_FIRST_START] = rs[L.R_FINISH] = np.nan
    rs[L.R_STATUS] = L.UNFINISHED
    return rs
