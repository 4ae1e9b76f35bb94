"""What a planner knows that the daemon's database does not: written down as JSON, and taken up again.

The accounts of jobs as the mechanism keeps them, groups of jobs that take turns, the policy's own memory, and which
index each job has in it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy.live.planner.engine import LiveEngine
from argosy.mechanism.devices import joined
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.world import Floats, Ints

VERSION = 3
OWN_F = [L.PRIORITY, L.WORK, L.EXPECTED, *(r for r in range(L.STATIC_F, L.JF_ROWS) if r != L.HELD)]
# follow from where a job is, or matter only while a decision is made
PLACED = {L.ID, L.STATE, L.HEAD, L.GEN, L.PS_HELD, L.PEER, L.GROUP, L.SEEN, L.FORMER, L.FORMER_LOG}
OWN_I = [L.WANT_PLACE, *(r for r in range(L.STATIC_I, L.JI_ROWS) if r not in PLACED)]
Json = dict[str, Any]


def remember(engine: LiveEngine, policy: str, ids: Mapping[int, int], extra: Json) -> str:
    """`ids`: index → number of each job that is there."""
    w = engine.world
    n = int(w.si[L.ACTIVE])
    index = w.ji[L.ID, :n].tolist()
    told = w.lg[engine._told : w.si[L.LOG_N]] if engine._listens else w.lg[:0]
    ran = np.flatnonzero((w.ji[L.RUNS, :n] > 0) | (w.ji[L.STATE, :n] != L.WAITING)).tolist()
    memory = {
        "version": VERSION, "policy": policy, "state": engine.policy.state(), "at": engine.now,
        "next": len(engine.roll), "slots": [ids[i] for i in index], "index": {str(ids[i]): i for i in index},
        "wake": _finite(float(w.sf[L.WAKE])), "turn": int(w.si[L.TURN]), "rng": int(w.si[L.RNG]),
        "ran": [ids[index[s]] for s in ran], "f": pack(w.jf[np.ix_(OWN_F, ran)]), "i": pack(w.ji[np.ix_(OWN_I, ran)]),
        "parts": [[list(part) for part in engine.parts_of(s)] for s in ran],
        "groups": _groups(engine, ids), "told": told.tolist(),
    }  # fmt: skip
    return json.dumps(memory | extra)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


class Kept(NamedTuple):
    """A job that ran: its accounts, and where it was."""

    f: Floats  # OWN_F
    i: Ints  # OWN_I
    parts: list[list[int]]  # node, devices as bits, thousandths, servers


def kept(memory: Json | None) -> dict[int, Kept]:
    """By number, the jobs in a memory that had run by then."""
    if memory is None:
        return {}
    f = unpack(memory["f"], "<f8").reshape(len(OWN_F), -1)
    i = unpack(memory["i"], "<i8").reshape(len(OWN_I), -1)
    return {id: Kept(f[:, k], i[:, k], memory["parts"][k]) for k, id in enumerate(memory["ran"])}


def pack(matrix: NDArray[Any]) -> str:
    """Exact to the bit, and many times quicker than numbers in words."""
    return base64.b85encode(zlib.compress(matrix.astype(matrix.dtype.newbyteorder("<")).tobytes(), 1)).decode()


def unpack(text: str, kind: str) -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), kind)


def recall_job(engine: LiveEngine, slot: int, job: Kept) -> None:
    """Put a job's accounts back, without where it is."""
    engine.world.jf[OWN_F, slot], engine.world.ji[OWN_I, slot] = job.f, job.i


def _groups(engine: LiveEngine, ids: Mapping[int, int]) -> list[Json]:
    """Groups of jobs that take turns: who, where, and when the turn ends."""
    w = engine.world
    groups: dict[int, Json] = {}
    members: dict[tuple[int, int], list[list[int]]] = {}
    heap = w.hp[: w.si[L.HEAP_N]]
    for row in w.gp[: w.si[L.GROUP_ROWS]].tolist():
        slot = int(w.so[row[L.G_JOB]])
        if slot < 0 or w.ji[L.GROUP, slot] != row[L.G_GROUP]:
            continue
        group = row[L.G_GROUP]
        if group not in groups:
            mine = (heap[:, L.H_KIND] == L.DUE_SLICE) & (heap[:, L.H_JOB] == group)
            mine &= heap[:, L.H_GEN] == w.gq[group, L.G_GEN]
            due = float(heap[mine, L.H_TIME].min(initial=np.inf))
            groups[group] = {"quantum": float(w.gq[group, L.G_QUANTUM]), "due": _finite(due), "rows": []}
        members.setdefault((group, row[L.G_JOB]), []).append(row)
    for (group, job), rows in members.items():
        groups[group]["rows"] += [[ids[job], *place] for place in places(rows)]
    return list(groups.values())


def places(rows: Iterable[list[int]]) -> list[list[int]]:
    """A member's rows of `gp` as (node, devices as bits, servers, turn last taken), one a node."""
    found: dict[int, list[int]] = {}
    for row in rows:
        place = found.setdefault(row[L.G_NODE], [row[L.G_NODE], 0, 0, row[L.G_TURN]])
        place[1] |= joined(row[L.G_WORD], row[L.G_MASK])
        place[2] += row[L.G_PS]
    return list(found.values())


def read(text: str | None, policy: str) -> Json | None:
    """A former planner's memory, if it is of use to this one."""
    if text is None:
        return None
    memory: Json = json.loads(text)
    return memory if memory.get("version") == VERSION and memory.get("policy") == policy else None
