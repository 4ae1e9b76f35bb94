"""Reads from the engine where jobs should be, with the daemon's names; only what has changed is read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from argosy.cluster.view import WHOLE, JobState
from argosy.live.backends.base import Part, Placement
from argosy.live.planner.engine import LiveEngine


class Placements:
    """`now` holds the jobs that should have a process: running ones, and paused ones that have run before."""

    def __init__(self, nodes: list[str], launched: Iterable[int] = ()) -> None:
        self._nodes = nodes
        self._seen = np.full(0, -1, np.int64)  # by index: version of the placement that was read
        self._batch = np.zeros(0)  # by index: the batch that was read, of jobs whose batch the policy chooses
        self.now: dict[int, Placement] = {id: Placement(()) for id in launched}

    def read(self, engine: LiveEngine, ids: Mapping[int, int]) -> None:
        more = len(engine.job_names) - len(self._seen)
        if more > 0:
            self._seen = np.pad(self._seen, (0, more + len(self._seen)), constant_values=-1)
            self._batch = np.pad(self._batch, (0, len(self._seen) - len(self._batch)))
        index, state = engine.jobs.index, engine.jobs.state
        version = 4 * engine.jobs.placement_version + state
        batch = np.where(engine.jobs.family >= 0, engine.jobs.batch, 0.0)
        changed = (version != self._seen[index]) | (state == JobState.PAUSED) | (batch != self._batch[index])
        self._seen[index], self._batch[index] = version, batch
        for row in np.flatnonzero(changed).tolist():
            id = ids[int(index[row])]
            if state[row] == JobState.RUNNING:
                self._note(id, Placement(self._parts(engine.parts_of(row)), batch=_whole(batch[row])))
            elif state[row] == JobState.PAUSED and id in self.now:  # one that has never run must not be started yet
                self._note(
                    id,
                    Placement(
                        self._parts(engine.planned_parts(int(index[row]))), paused=True, batch=_whole(batch[row])
                    ),
                )
            else:
                self.now.pop(id, None)

    def _note(self, id: int, placement: Placement) -> None:
        if self.now.get(id) != placement:  # otherwise the old object stays: `worker` compares by identity
            self.now[id] = placement

    def _parts(self, parts: Iterable[tuple[int, int, int, int]]) -> tuple[Part, ...]:
        return tuple(
            Part(
                self._nodes[node],
                tuple(d for d in range(bits.bit_length()) if bits >> d & 1),
                milli if bits else WHOLE,
                servers,
            )
            for node, bits, milli, servers in parts
        )


def _whole(batch: float) -> int | None:
    return round(float(batch)) or None
