"""Make views of the engine's matrices, for the active jobs and for jobs as they will be when they arrive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import (
    JOB_COLUMNS,
    NODE_COLUMNS,
    BatchMode,
    Columns,
    Footprint,
    Losses,
    Part,
    Profile,
    StepReport,
    View,
)
from argosy.mechanism.kernels import layout as L
from argosy.perf import footprint

if TYPE_CHECKING:
    from argosy.sim.engine import Engine

NODE_ROWS_F = {
    "free_cpus": L.CPU_FREE,
    "free_memory_gib": L.MEM_FREE,
    "cpus": L.CPU_TOTAL,
    "memory_gib": L.MEM_TOTAL,
    "speed": L.SPEED_SEEN,
    "speed_measured_at": L.SPEED_SEEN_AT,
    "true_speed": L.SPEED,
}
NODE_ROWS_I = {
    "gpus": L.N_GPUS,
    "free": L.N_FREE,
    "type": L.N_TYPE,
    "rack": L.N_RACK,
    "state": L.N_STATE,
    "owner": L.N_OWNER,
}


def view_of_active(engine: Engine) -> View:
    """Make the view that is passed to the policy; `refresh` updates it before each decision."""
    w, policy = engine.world, engine.policy
    node_rows = {n: w.nf[r] for n, r in NODE_ROWS_F.items()} | {n: w.ni[r] for n, r in NODE_ROWS_I.items()}
    nodes = Columns(node_rows, NODE_COLUMNS, policy.uses, policy.name)
    nodes.refresh(len(engine.cluster.nodes))
    jobs = Columns(job_rows(w), JOB_COLUMNS, policy.uses, policy.name)
    return View(jobs, nodes, policy.uses, _profile(engine), *_readers(engine))


def job_rows(w: L.World) -> dict[str, NDArray[Any]]:
    """Return the full-length rows of the job matrices by the names of their columns."""
    return {n: w.jf[r] for n, r in L.COLUMNS_F.items()} | {n: w.ji[r] for n, r in L.COLUMNS_I.items()}


def refresh(view: View, w: L.World) -> None:
    """Update the view to the present instant."""
    active = int(w.si[L.ACTIVE])
    view.jobs.refresh(active)  # the columns of the nodes stay: neither their number nor their arrays change
    view.now = float(w.sf[L.NOW])
    view.running = int(w.si[L.RUNNING_N])
    view.waiting = active - view.running
    view.free_gpus = int(w.si[L.FREE_GPUS])


def view_on_arrival(engine: Engine, tr: NDArray[np.float64], index: NDArray[np.int64]) -> View:
    """Return a view of the jobs in the columns of `tr`, with these indices, each as it will be when it arrives."""
    policy, n = engine.policy, tr.shape[1]
    zeros, izeros = np.zeros(n), np.zeros(n, np.int64)
    rows: dict[str, NDArray[Any]] = {}
    for name, r in L.COLUMNS_F.items():
        rows[name] = tr[r] if r < L.STATIC_F else zeros
    rows["noise_scale"] = np.full(n, np.nan)
    rows["batch"] = engine.world.cb[tr[L.STATIC_F + L.CLASS].astype(np.int64)]
    rows["remaining_s"], rows["expected_left_s"] = tr[L.WORK], tr[L.EXPECTED]
    for name, r in L.COLUMNS_I.items():
        rows[name] = tr[L.STATIC_F + r].astype(np.int64) if r < L.STATIC_I else izeros
    rows["index"] = index
    jobs = Columns(rows, JOB_COLUMNS, policy.uses, policy.name)
    jobs.refresh(n)
    profile = engine.view.profile if "profile" in policy.uses else None
    return View(jobs, engine.view.nodes, policy.uses, profile, *_readers(engine))


def _readers(
    engine: Engine,
) -> tuple[
    Callable[[int], list[Part]],
    Callable[[int], Losses],
    Callable[[int], StepReport | None],
    Callable[[int], tuple[BatchMode, ...]],
]:
    """Return functions that read placements, losses, step times and batch sizes.

    They have no reference cycles, which would keep the engine alive.
    """
    itself = weakref.proxy(engine)
    return (
        lambda row: itself.parts_of(row),
        lambda row: itself.losses_of(row),
        lambda row: itself.steps_of(row),
        lambda row: itself.modes_of(row),
    )


def _profile(engine: Engine) -> Profile | None:
    if "profile" not in engine.policy.uses:
        return None
    w = engine.world
    utilisation, memory_gib = footprint.of([c.model for c in engine.tables.classes])
    return Profile(w.rt, w.ps, w.pr, Footprint(utilisation, memory_gib), engine.tables.families, engine.tables.plan_of)
