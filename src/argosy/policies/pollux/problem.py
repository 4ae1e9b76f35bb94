"""The search for an allocation as numbers: who may have what where, how fast it would be, and the last population."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import WHOLE, Context, NodeState, View
from argosy.policies.base import Floats, Ints
from argosy.policies.pollux.small_jobs import Reserved
from argosy.policies.pollux.speedups import Speedups

MOST_NODES = 16  # of one job, as in the authors' code
LEAST_AGE_S = 1.0  # so that a job that has just arrived is worth starting
Row = dict[int, int]  # GPUs by node


@dataclass(slots=True)
class Problem:
    """Jobs that ask for whole GPUs, in the order in which they are served: by attained service."""

    rows: Ints  # of the view
    index: Ints
    present: list[Row]  # what each job holds
    capacity: Ints  # GPUs by node
    room: Floats  # [CPUs, memory; node]
    of_type: Ints  # by node
    allowed: NDArray[np.bool_]  # [group, node] where jobs of a group may start
    group: Ints
    low: Ints
    high: Ints
    unit: Floats  # [CPUs, memory of a GPU, parameter servers; job]
    queue: Ints
    limit: Floats  # GPUs that a queue may hold beyond what shares of GPUs hold
    speedup: Floats  # [job, one node / several, K], relative to a fair share
    batches: Floats  # the best batches, NaN where the batch is fixed
    restart: Floats  # factor of a job whose allocation changes
    weight: float

    @classmethod
    def of(
        cls,
        view: View,
        context: Context,
        speedups: Speedups,
        reserved: Reserved,
        restarts: Ints,
        restart_s: float,
        *,
        authors: bool,
    ) -> Problem:
        jobs, nodes = view.jobs, view.nodes
        whole = np.flatnonzero(jobs.gpus >= 1)
        rows = whole[np.lexsort((jobs.index[whole], jobs.submitted[whole], jobs.attained[whole]))]
        present: list[Row] = [{} for _ in rows]
        free, cpus, memory = nodes.free.copy(), nodes.free_cpus.copy(), nodes.free_memory_gib.copy()
        units = np.maximum(jobs.gpus, 1.0)
        unit = np.stack([jobs.cpus[rows] / units[rows], jobs.memory_gib[rows] / units[rows], jobs.ps[rows]])
        for at, row in enumerate(rows.tolist()):
            if jobs.state[row] == 1:
                for part in view.placement(row):
                    gpus = part.devices.bit_count() if part.milli == WHOLE else 0
                    present[at][part.node] = present[at].get(part.node, 0) + gpus
                    free[part.node] += gpus
                    cpus[part.node] += unit[0, at] * (gpus + part.servers)
                    memory[part.node] += unit[1, at] * (gpus + part.servers)
        open_ = nodes.state == NodeState.UP
        keys = np.stack([jobs.types[rows], jobs.queue[rows]], axis=1)
        different, group = np.unique(keys, axis=0, return_inverse=True)
        accepted = (different[:, :1] >> nodes.type[None, :] & 1) == 1
        mine = (nodes.owner[None, :] < 0) | (nodes.owner[None, :] == different[:, 1:])
        allowed = open_[None, :] & accepted & mine & (nodes.gpus > 0)[None, :]
        kept = np.zeros(len(free), np.int64)  # nodes that are not up keep what runs there
        for row_of in present:
            for node, gpus in row_of.items():
                kept[node] += gpus
        capacity = np.maximum(np.where(open_, free - reserved.gpus, kept), 0).astype(np.int64)
        low = np.maximum(np.ceil(jobs.min_gpus[rows]), 1).astype(np.int64)
        high = np.maximum(speedups.largest(view)[rows], low)
        batches_fixed = np.zeros(len(rows), bool)
        if authors:
            alone = [context.kinds[kind].startswith("ncf@") for kind in jobs.kind[rows].tolist()]
            batches_fixed = np.array(alone, bool)
            low, high = np.where(batches_fixed, 1, low), np.where(batches_fixed, 1, high)
        total = max(int(capacity.sum()), 1)
        fair = int(np.ceil(total / max(len(rows), 1)))
        size = max(int(high.max(initial=1)), 1)
        speedup, batches = np.zeros((len(rows), 2, size + 1)), np.full((len(rows), 2, size + 1), np.nan)
        for at, row in enumerate(rows.tolist()):
            usual = next(iter(np.flatnonzero(allowed[group[at]])), 0)
            gpu_type = int(jobs.held_type[row]) if jobs.held_type[row] >= 0 else int(nodes.type[usual])
            top = int(high[at])
            table, best = speedups.tables(view, row, max(top, fair), gpu_type)
            reference = float(table[0, max(fair, int(low[at]))])
            speedup[at, :, : top + 1] = table[:, : top + 1] / max(reference, 1e-12)
            batches[at, :, : top + 1] = best[:, : top + 1]
            if batches_fixed[at]:
                batches[at] = jobs.max_batch[row]
        age = np.maximum(view.now - jobs.submitted[rows], LEAST_AGE_S)
        factor = np.maximum(age - restarts[rows] * restart_s, 0.0) / (age + restart_s)
        return cls(
            rows=rows,
            index=jobs.index[rows],
            present=present,
            capacity=capacity,
            room=np.stack([cpus, memory]) - reserved.room,
            of_type=np.asarray(nodes.type, np.int64),
            allowed=allowed,
            group=np.asarray(group, np.int64).reshape(-1),
            low=low,
            high=high.astype(np.int64),
            unit=unit.astype(np.float64),
            queue=np.asarray(jobs.queue[rows], np.int64),
            limit=context.queue_limits - reserved.held,
            speedup=speedup,
            batches=batches,
            restart=factor,
            weight=float((nodes.gpus > 0).sum()) / total,
        )


class Population:
    """The allocations of the last search, with which the next one begins."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._index = np.zeros(0, np.int64)
        self._last: tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.int16]] | None = None  # node, GPUs, count
        self.fitness = self.utility = 0.0  # of the last answer

    def search(
        self, problem: Problem, p: float, *, avoid: bool, greedy: bool, generations: int, patience: int, seed: int
    ) -> list[Row]:
        """Return the fittest allocation that was found: GPUs by node for each job of the problem."""
        from argosy.policies.pollux.kernels.search import search  # imports Numba

        jobs, half = len(problem.rows), self._size
        if not jobs:
            self._last = None
            return []
        entries = max(MOST_NODES, max((len(row) for row in problem.present), default=1))
        node = np.zeros((2 * half + 1, jobs, entries), np.int16)
        gpus, count = np.zeros_like(node), np.zeros((2 * half + 1, jobs), np.int16)
        for j, row in enumerate(problem.present):
            for e, n in enumerate(sorted(row)):
                node[-1, j, e], gpus[-1, j, e] = n, row[n]
            count[-1, j] = len(row)
        first = 1
        node[0], gpus[0], count[0] = node[-1], gpus[-1], count[-1]
        if self._last is not None:
            where = {index: at for at, index in enumerate(self._index.tolist())}
            kept = [(at, where[index]) for at, index in enumerate(problem.index.tolist()) if index in where]
            first = len(self._last[2])
            if kept:
                to, of = np.array(kept).T
                width = min(entries, self._last[0].shape[2])
                node[1:first, to, :width] = self._last[0][1:, of, :width]
                gpus[1:first, to, :width] = self._last[1][1:, of, :width]
                count[1:first, to] = np.minimum(self._last[2][1:, of], width)
        slots, score = np.arange(2 * half), np.zeros((2 * half + 1, 2))
        best = search(
            node,
            gpus,
            count,
            first,
            problem.capacity,
            problem.room,
            problem.of_type,
            problem.allowed,
            problem.group,
            problem.low,
            problem.high,
            problem.unit,
            problem.queue,
            problem.limit,
            problem.speedup,
            problem.restart,
            problem.weight,
            p,
            avoid,
            greedy,
            generations,
            patience,
            seed,
            slots,
            score,
        )
        self.fitness, self.utility = float(score[best, 0]), float(score[best, 1])
        kept_slots = slots[:half]
        self._last = node[kept_slots], gpus[kept_slots], count[kept_slots]
        self._index = problem.index.copy()
        return [{int(node[best, j, e]): int(gpus[best, j, e]) for e in range(int(count[best, j]))} for j in range(jobs)]

    def state(self) -> dict[str, Any]:
        """Return the last population as JSON."""
        if self._last is None:
            return {"index": []}
        packed = [b64encode(zlib.compress(column.tobytes())).decode() for column in self._last]
        return {"index": self._index.tolist(), "shape": list(self._last[0].shape), "packed": packed}

    def restore(self, state: dict[str, Any]) -> None:
        self._index, self._last = np.array(state["index"], np.int64), None
        if "packed" in state:
            shape = tuple(state["shape"])
            columns = [np.frombuffer(zlib.decompress(b64decode(text)), np.int16) for text in state["packed"]]
            self._last = columns[0].reshape(shape), columns[1].reshape(shape), columns[2].reshape(shape[:2])
