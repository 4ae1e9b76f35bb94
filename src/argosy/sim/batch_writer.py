"""Carry out the batch sizes that a policy chooses, and report the steps of jobs as their SDK would.

A batch may be chosen for jobs whose trace gives `max_batch` (their `family` in the view is not negative). It becomes
the nearest of the batch sizes that the tables know. A change costs no time: a job takes its new batch from its next
step on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from argosy.cluster.view import BatchMode, JobState, StepReport
from argosy.errors import InvalidPlan
from argosy.mechanism.kernels import layout as L
from argosy.slack import COUNT_SLACK, RELATIVE_SLACK

if TYPE_CHECKING:
    from argosy.mechanism.bids import Bids, Choice, Floats
    from argosy.sim.engine import Engine


def write(engine: Engine, batches: Mapping[int, float]) -> None:
    """Set total batch sizes by row of the view."""
    if batches:
        column = np.full(int(engine.world.si[L.ACTIVE]), np.nan)
        for row, batch in batches.items():
            if not 0 <= row < len(column):
                raise InvalidPlan(f"policy {engine.policy.name!r} chooses a batch for row {row} of {len(column)} jobs")
            column[row] = batch
        write_column(engine, column)


def write_column(engine: Engine, batch: Floats) -> None:
    """Set the total batch size of every job of the view; NaN leaves it as it is."""
    w = engine.world
    n = int(w.si[L.ACTIVE])
    if np.shape(batch) != (n,):
        raise InvalidPlan(f"policy {engine.policy.name!r}: batch must have {n} numbers, has {np.shape(batch)}")
    rows = np.flatnonzero(~np.isnan(batch))
    if not len(rows):
        return
    of_job, chosen = w.ji[L.FAMILY, rows], np.asarray(batch, np.float64)[rows]
    most = w.jf[L.MAX_BATCH, rows] * (1 + RELATIVE_SLACK)
    wrong = (of_job < 0) | (chosen > most) | (chosen < 1)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        job = engine.job_name(int(w.ji[L.ID, rows[at]]))
        takes = f"it takes 1..{w.jf[L.MAX_BATCH, rows[at]]:g}" if of_job[at] >= 0 else "its batch is fixed"
        raise InvalidPlan(
            f"policy {engine.policy.name!r} chooses a batch of {chosen[at]:g} samples for job {job!r}, but {takes}"
        )
    classes = np.empty(len(rows), np.int64)
    for number, family in enumerate(engine.tables.families):
        here = of_job == number
        classes[here] = family.first_class + family.nearest(chosen[here])
    changed = classes != w.ji[L.BATCH_CLASS, rows]
    if changed.any():
        engine.kernel(L.OP_BATCH, np.stack([w.ji[L.ID, rows[changed]], classes[changed]], axis=1).astype(np.int64))


def write_bids(engine: Engine, bids: Bids, choice: Choice) -> None:
    """Set the batches of the bids that are taken; a job that fills up what is left has that of the bid it fills."""
    if bids.batch is None:
        return
    w = engine.world
    bids = bids.by_job()
    batch = np.full(int(w.si[L.ACTIVE]), np.nan)
    assert bids.batch is not None
    won = np.flatnonzero(choice.taken >= 0)
    batch[won] = bids.batch[choice.taken[won]]
    of_type = np.where(bids.type >= 0, 1 << np.maximum(bids.type, 0), -1)
    filling = (choice.taken[bids.job] < 0) & (w.ji[L.STATE, bids.job] == L.WAITING)
    filling &= (w.ji[L.WANT, bids.job] == bids.workers) & (w.ji[L.WANT_TYPES, bids.job] == of_type)
    batch[bids.job[filling]] = bids.batch[filling]
    write_column(engine, batch)


def report(engine: Engine, row: int) -> StepReport | None:
    """Return what the job in this row reports of its steps; None if it does not run, or its batch is fixed."""
    w = engine.world
    number = int(w.ji[L.FAMILY, row])
    if number < 0 or w.ji[L.STATE, row] != JobState.RUNNING:
        return None
    family = engine.tables.families[number]
    gpu_type, level, k = int(w.ji[L.HELD_TYPE, row]), int(w.ji[L.LEVEL, row]), round(float(w.jf[L.HELD, row]))
    batch = float(w.jf[L.BATCH, row])
    local = float(np.ceil(batch / k - COUNT_SLACK))
    forced = 1 + int(k == 1 and batch > family.m0 * (1 + RELATIVE_SLACK))
    passes = max(int(np.ceil(local / family.largest_local[gpu_type] - COUNT_SLACK)), forced)
    atomic = float(np.ceil(local / passes - COUNT_SLACK))
    step_s, pass_s = family.model.step_times(engine.tables.gpu_types[gpu_type], k, level, atomic)
    return StepReport(len({part.node for part in engine.parts_of(row)}), k, atomic, passes - 1, step_s, pass_s)


def modes(engine: Engine, row: int) -> tuple[BatchMode, ...]:
    """Return the batch sizes that the job in this row takes by a rule of its own; its only one if it has no rule."""
    w = engine.world
    part, found = int(w.ji[L.FIRST_PART, row]), {int(w.ji[L.BATCH_CLASS, row])}
    if part >= 0 and w.pt[part, L.PT_CLASS] >= 0:
        found = {int(w.pt[part, L.PT_CLASS])}
        while w.pt[part, L.PT_UPTO] < 1.0:
            part += 1
            found.add(int(w.pt[part, L.PT_CLASS]))
    return tuple(BatchMode(float(w.cb[kind]), kind) for kind in sorted(found))
