"""Saves as JSON what a planner knows beyond the daemon's database, and reads it again.

This is: the accounts of jobs as the mechanism keeps them, groups of jobs that take turns, the policy's own memory, and
the index of each job in it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import JobState
from argosy.live.planner.engine import LiveEngine
from argosy.mechanism.saved_accounts import SavedAccounts, split

VERSION = 5
Json = dict[str, Any]


def remember(engine: LiveEngine, policy: str, ids: Mapping[int, int], extra: Json) -> str:
    """Return what the next planner needs, as JSON; `ids` maps the index of each job to its number."""
    jobs = engine.jobs
    index = jobs.index.tolist()
    ran = np.flatnonzero((jobs.runs > 0) | (jobs.state != JobState.WAITING)).tolist()
    measured, counted = engine.saved_accounts(ran)
    memory = {
        "version": VERSION,
        "policy": policy,
        "state": engine.policy.state(),
        "at": engine.now,
        "next": len(engine.job_names),
        "slots": [ids[i] for i in index],
        "index": {str(ids[i]): i for i in index},
        "wake": _finite(engine.wake_at),
        **engine.counters(),
        "ran": [ids[index[row]] for row in ran],
        "f": pack(measured),
        "i": pack(counted),
        "parts": [[list(part) for part in engine.parts_of(row)] for row in ran],
        "groups": _groups(engine, ids),
        "told": engine.untold_events(),
    }
    return json.dumps(memory | extra)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


class Kept(NamedTuple):
    """A job that ran: its accounts, and where it was."""

    accounts: SavedAccounts
    parts: list[list[int]]  # node, devices as bits, thousandths, servers


def kept(memory: Json | None) -> dict[int, Kept]:
    """Return the jobs in a memory that had run when it was saved, by number."""
    if memory is None:
        return {}
    accounts = split(unpack(memory["f"], "<f8"), unpack(memory["i"], "<i8"))
    return {id: Kept(accounts[k], memory["parts"][k]) for k, id in enumerate(memory["ran"])}


def pack(matrix: NDArray[Any]) -> str:
    """Return a matrix as text, exact to the bit; this is many times faster than decimal numbers."""
    return base64.b85encode(zlib.compress(matrix.astype(matrix.dtype.newbyteorder("<")).tobytes(), 1)).decode()


def unpack(text: str, kind: str) -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), kind)


def _groups(engine: LiveEngine, ids: Mapping[int, int]) -> list[Json]:
    """Describe the groups of jobs that take turns: the members, their places, and when the turn ends."""
    return [
        {
            "quantum": group.quantum_s,
            "due": _finite(group.due),
            "rows": [[ids[job], *place] for job, places in group.members.items() for place in places],
        }
        for group in engine.groups()
    ]


def read(text: str | None, policy: str) -> Json | None:
    """Read a former planner's memory; return None if it is of another version or policy."""
    if text is None:
        return None
    memory: Json = json.loads(text)
    return memory if memory.get("version") == VERSION and memory.get("policy") == policy else None
