"""Who should be where, read from the engine in the daemon's terms; only what has changed is looked at again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from argosy.live.backends.base import Part
from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.memory import places
from argosy.live.planner.messages import Share
from argosy.mechanism.kernels import layout as L


class Shares:
    """`now` holds the jobs that should have a process: running ones, and paused ones that have run before."""

    def __init__(self, nodes: list[str], launched: Iterable[int] = ()) -> None:
        self._nodes = nodes
        self._seen = np.full(0, -1, np.int64)  # by index: version of the placement that was read
        self.now: dict[int, Share] = {id: Share(()) for id in launched}

    def read(self, engine: LiveEngine, ids: Mapping[int, int]) -> None:
        w = engine.world
        n = int(w.si[L.ACTIVE])
        if len(self._seen) < w.tr.shape[1]:
            self._seen = np.pad(self._seen, (0, w.tr.shape[1] - len(self._seen)), constant_values=-1)
        index, state = w.ji[L.ID, :n], w.ji[L.STATE, :n]
        version = 4 * w.ji[L.GEN, :n] + state
        changed = (version != self._seen[index]) | (state == L.PAUSED)
        self._seen[index] = version
        for slot in np.flatnonzero(changed).tolist():
            id = ids[int(index[slot])]
            if state[slot] == L.RUNNING:
                self._note(id, Share(self._parts(engine.parts_of(slot))))
            elif state[slot] == L.PAUSED and id in self.now:  # one that has never run is not to be started yet
                self._note(id, Share(self._parts(_noted(engine, int(index[slot]))), paused=True))
            else:
                self.now.pop(id, None)

    def _note(self, id: int, share: Share) -> None:
        if self.now.get(id) != share:  # the same object stays where nothing has changed
            self.now[id] = share

    def _parts(self, parts: Iterable[tuple[int, int, int, int]]) -> tuple[Part, ...]:
        return tuple(
            Part(self._nodes[node], tuple(d for d in range(bits.bit_length()) if bits >> d & 1),
                 milli if bits else L.WHOLE, servers)
            for node, bits, milli, servers in parts
        )  # fmt: skip


def _noted(engine: LiveEngine, index: int) -> list[tuple[int, int, int, int]]:
    """Where a job that waits for its turn will be."""
    w = engine.world
    rows = w.gp[: w.si[L.GROUP_ROWS]]
    mine = rows[(rows[:, L.G_JOB] == index) & (rows[:, L.G_GROUP] == w.ji[L.GROUP, w.so[index]])]
    return [(node, bits, L.WHOLE, servers) for node, bits, servers, _ in places(mine.tolist())]
