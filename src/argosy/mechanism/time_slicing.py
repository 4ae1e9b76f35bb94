"""Read time-sliced groups from Python: which jobs take turns, where, and when the turn ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from argosy.cluster.view import WHOLE, Part
from argosy.mechanism.devices import joined
from argosy.mechanism.kernels import layout as L


class Member(NamedTuple):
    """What a member of a group has on one node during its turn."""

    node: int
    devices: int  # bit set
    servers: int
    last_turn: int  # the number of the turn that it had last


@dataclass(slots=True)
class Group:
    """Jobs with overlapping placements that take turns."""

    quantum_s: float
    due: float  # when the present turn ends; inf if it does not end
    members: dict[int, list[Member]] = field(default_factory=dict)  # by the index of the job


def groups(w: L.World) -> list[Group]:
    """Return the groups that have members now."""
    found: dict[int, Group] = {}
    rows: dict[tuple[int, int], list[list[int]]] = {}
    heap = w.hp[: w.si[L.HEAP_N]]
    for row in w.gp[: w.si[L.GROUP_ROWS]].tolist():
        group, slot = row[L.G_GROUP], int(w.so[row[L.G_JOB]])
        if slot < 0 or w.ji[L.GROUP, slot] != group:
            continue
        if group not in found:
            mine = (heap[:, L.H_KIND] == L.DUE_SLICE) & (heap[:, L.H_JOB] == group)
            mine &= heap[:, L.H_GEN] == w.gq[group, L.G_GEN]
            due = float(heap[mine, L.H_TIME].min(initial=np.inf))
            found[group] = Group(float(w.gq[group, L.G_QUANTUM]), due)
        rows.setdefault((group, row[L.G_JOB]), []).append(row)
    for (group, job), own in rows.items():
        found[group].members[job] = _members(own)
    return list(found.values())


def planned_parts(w: L.World, index: int) -> list[Part]:
    """Return where a paused job will be when its turn comes."""
    rows = w.gp[: w.si[L.GROUP_ROWS]]
    mine = rows[(rows[:, L.G_JOB] == index) & (rows[:, L.G_GROUP] == w.ji[L.GROUP, w.so[index]])]
    return [Part(m.node, m.devices, WHOLE, m.servers) for m in _members(mine.tolist())]


def _members(rows: Iterable[list[int]]) -> list[Member]:
    """Join the rows of one job, which has one for every word of devices, to one for each node."""
    found: dict[int, list[int]] = {}
    for row in rows:
        place = found.setdefault(row[L.G_NODE], [row[L.G_NODE], 0, 0, row[L.G_TURN]])
        place[1] |= joined(row[L.G_WORD], row[L.G_MASK])
        place[2] += row[L.G_PS]
    return [Member(*place) for place in found.values()]


def set_turns(w: L.World, last_turns: Mapping[int, int], due: float | None) -> None:
    """Set the last turns of the jobs of one group (by row), and when the present turn ends."""
    group = int(w.ji[L.GROUP, next(iter(last_turns))])
    for i in range(int(w.si[L.GROUP_ROWS])):
        if w.gp[i, L.G_GROUP] == group:
            w.gp[i, L.G_TURN] = last_turns[int(w.so[w.gp[i, L.G_JOB]])]
    heap = w.hp[: w.si[L.HEAP_N]]
    mine = (heap[:, L.H_KIND] == L.DUE_SLICE) & (heap[:, L.H_JOB] == group)
    if due is not None and mine.any():
        heap[mine, L.H_TIME] = max(due, float(w.sf[L.NOW]))
        heap[:] = heap[np.lexsort((heap[:, L.H_SEQ], heap[:, L.H_KIND], heap[:, L.H_TIME]))]  # sorted, so a heap


def next_turn_at(w: L.World) -> float:
    """Return when the next turn of any group ends; inf if there are no groups."""
    heap = w.hp[: w.si[L.HEAP_N]]
    turns = heap[heap[:, L.H_KIND] == L.DUE_SLICE]
    current = w.gq[turns[:, L.H_JOB].astype(np.int64), L.G_GEN] == turns[:, L.H_GEN]
    return float(turns[current, L.H_TIME].min(initial=np.inf))
