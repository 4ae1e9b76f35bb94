"""Find out before a run which jobs could run on the empty cluster, and on which GPU types."""

from __future__ import annotations

import math

import numpy as np

from argosy.mechanism.kernels import layout as L
from argosy.mechanism.world import Floats, Ints
from argosy.slack import GPU_SLACK, RESOURCE_SLACK


def drop_narrow_types(world: L.World) -> None:
    """Remove from each job's accepted GPU types those whose empty nodes could not hold it at its smallest size.

    A job that no type could hold keeps its types; it is refused later for that reason.
    """
    tr, ni, types_n = world.tr, world.ni, int(world.si[L.TYPES_N])
    if types_n == 1:
        return
    mask = tr[L.STATIC_F + L.TYPES]
    demands = np.stack([tr[L.GPUS], np.minimum(tr[L.MIN_GPUS], tr[L.GPUS]), tr[L.CPU_UNIT], tr[L.MEM_UNIT], mask])
    inverse, first = classify(demands)
    strict, of = bool(world.si[L.STRICT]), [ni[L.N_TYPE] == t for t in range(types_n)]
    wide = np.zeros(len(first))
    for i, (gpus, least, cpu, mem, types) in enumerate(demands[:, first].T):
        rooms = empty_rooms(world, gpus, cpu, mem)
        fitting = sum(
            1 << t
            for t in range(types_n)
            if int(types) >> t & 1 and holds_gang(rooms[of[t]], ni[L.N_GPUS, of[t]], least, strict)
        )
        wide[i] = fitting if fitting and gpus > 0 else types
    tr[L.STATIC_F + L.TYPES] = wide[inverse]


def empty_rooms(world: L.World, gpus: float, cpu: float, mem: float) -> Floats:
    """Return how many GPUs of a job each node could host if it were empty; 1 for a share of a device."""
    cpus, memory = world.nf[L.CPU_TOTAL] + RESOURCE_SLACK, world.nf[L.MEM_TOTAL] + RESOURCE_SLACK
    rooms = np.where((cpus >= cpu) & (memory >= mem), world.ni[L.N_GPUS], 0).astype(float)
    for free, unit in ((cpus, cpu), (memory, mem)):
        if gpus >= 1 and unit > 0:
            rooms = np.minimum(rooms, np.floor(free / unit))
    return rooms


def classify(rows: Floats) -> tuple[Ints, Ints]:
    """Return the class of each column of a matrix (equal columns share one), and the first column of each class."""
    code = np.zeros(rows.shape[1], np.int64)
    for row in rows:
        if row.size and row.min() != row.max():
            _, number = np.unique(row, return_inverse=True)
            _, code = np.unique(code * (int(number.max()) + 1) + number, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    return code, first


def impossible(world: L.World, strict: bool) -> Ints:
    """Return the indices of jobs that could not run even on the empty cluster."""
    tr, ni, nf = world.tr, world.ni, world.nf
    limit = world.qu[L.Q_LIMIT, tr[L.STATIC_F + L.QUEUE].astype(np.int64)]
    demands = np.stack(
        [tr[L.GPUS], tr[L.CPU_UNIT], tr[L.MEM_UNIT], tr[L.STATIC_F + L.TYPES], tr[L.STATIC_F + L.WANT_PS_ASKED], limit]
    )
    inverse, first = classify(demands)
    cpus, memory = nf[L.CPU_TOTAL] + RESOURCE_SLACK, nf[L.MEM_TOTAL] + RESOURCE_SLACK
    bad = np.zeros(len(first), bool)
    for i, (gpus, cpu, mem, types, servers, most) in enumerate(demands[:, first].T):
        fits = (cpus >= cpu) & (memory >= mem)
        if gpus == 0:
            bad[i] = not fits.any()
            continue
        rooms = empty_rooms(world, gpus, cpu, mem)
        if gpus > most + GPU_SLACK or not holds_units(cpus, memory, cpu, mem, gpus + servers):
            bad[i] = True
            continue
        bad[i] = not any(
            int(types) >> t & 1 and holds_gang(rooms[ni[L.N_TYPE] == t], ni[L.N_GPUS, ni[L.N_TYPE] == t], gpus, strict)
            for t in range(int(world.si[L.TYPES_N]))
        )
    return np.flatnonzero(bad[inverse])


def holds_units(cpus: Floats, memory: Floats, cpu: float, mem: float, units: float) -> bool:
    """Return whether there are CPUs and memory for this number of workers and parameter servers together."""
    if units < 1:
        return True
    rooms = np.full(len(cpus), np.inf)
    for free, unit in ((cpus, cpu), (memory, mem)):
        if unit > 0:
            rooms = np.minimum(rooms, np.floor(free / unit))
    return bool(rooms.sum() >= units)


def holds_gang(rooms: Floats, gpus: Ints, wanted: float, strict: bool) -> bool:
    if rooms.sum() < wanted:
        return False
    if not strict:
        return True
    nodes_needed = int(np.searchsorted(np.cumsum(np.sort(rooms)[::-1]), wanted) + 1)
    return nodes_needed <= math.ceil(wanted / max(int(gpus.max()), 1))
