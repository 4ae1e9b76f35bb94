"""Realise shares of time in rounds.

A policy that decides shares says what fraction of time each job should run on each GPU type. Time is divided into
rounds; in each one the jobs furthest behind their share run, and over many rounds every job receives its share.

    priority(j, c) = X(j, c) / (time j received on c / time of all on c since shares last changed)

Every job starts with a credit of half a round on every column, so that no received time is zero. What a job should have
received but did not is its deficit, which is carried over when shares change and decides between equal priorities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from argosy.mechanism.kernels import layout as L

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NOBODY, IN_PLACE, AFTERWARDS = L.NOBODY, L.IN_PLACE, L.AFTERWARDS  # who gets what jobs with a share leave unused
BY_JOB = ("members", "size", "queue", "alive", "has_share", "running")  # one entry per row
BY_COLUMN = ("share", "received", "deficit", "works", "rate", "pace")  # one entry per row and column
NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Jobs that are new in the rounds: GPUs, queue, where they can run, how fast, and their steps per second."""

    index: Ints
    size: Floats
    queue: Ints
    rate: Floats  # [job, column]; 0 where it cannot run
    pace: Floats  # [job, column]


class Room(NamedTuple):
    """The GPUs: for all queues by type, reserved by queue and type, and how many each queue may hold in total."""

    common: Floats
    reserved: Floats
    allowed: Floats


class Chosen(NamedTuple):
    """What a round's selection chose."""

    settled: bool  # whether the next round would choose the same, if nothing happens
    rows: int
    whole_steps_s: float  # whole steps that fit into a round, for the row whose steps fill it best; 0 if unknown


class Rounds:
    """Remembers what each job received, by its index, and selects the jobs that run next."""

    def __init__(
        self, round_s: float, column_type: Sequence[int], *, leftovers: int = AFTERWARDS, idle_new: bool = False
    ) -> None:
        self.round_s, self._column_type = round_s, np.asarray(column_type, np.int64)
        self._leftovers, self._idle_new = leftovers, idle_new
        self.rows = 0
        self.total = np.zeros(len(self._column_type))
        self.where = np.full(64, -1, np.int64)  # job index → its row
        self.index = np.zeros(0, np.int64)  # of the row's first member
        self._t: dict[str, NDArray[Any]] = {}
        self._make_tables(64)
        self.set_room(Room(np.zeros(0), np.zeros((0, 0)), np.zeros(0)))

    @cached_property
    def _kernels(self) -> ModuleType:
        from argosy.mechanism.kernels import round_selection  # imported late, because it imports Numba

        return round_selection

    def _make_tables(self, capacity: int) -> None:
        columns = len(self._column_type)
        self.index = np.resize(self.index, capacity)
        fresh: dict[str, NDArray[Any]] = {
            "members": np.zeros((capacity, 2), np.int64),
            "size": np.zeros(capacity),
            "queue": np.zeros(capacity, np.int64),
            "alive": np.zeros(capacity, bool),
            "has_share": np.zeros(capacity, bool),
            "running": np.full(capacity, -1, np.int64),
            "works": np.zeros((capacity, columns), bool),
            "taken": np.zeros(capacity, bool),
            "priority": np.zeros(capacity),
            "order": np.zeros(capacity, np.int64),
            "spare": np.zeros(capacity, np.int64),
            "slot": np.full(2 * capacity, -1, np.int64),
        }
        for name in ("share", "received", "deficit", "rate", "pace"):
            fresh[name] = np.zeros((capacity, columns))
        for name in (*BY_JOB, *BY_COLUMN) if self.rows else ():
            fresh[name][: self.rows] = self._t[name][: self.rows]
        self._t = fresh
        self._bind()

    def _bind(self) -> None:
        """Collect the arguments of the compiled functions once, because that takes as long as calling them."""
        t = self._t
        self._of_observe = tuple(t[n] for n in ("slot", "alive", "members", "running", "received"))
        names = (
            "members",
            "size",
            "queue",
            "share",
            "received",
            "deficit",
            "works",
            "rate",
            "alive",
            "has_share",
            "running",
            "pace",
        )
        self._of_select = (*(t[n] for n in names), self.total)
        self._scratch = tuple(t[n] for n in ("taken", "priority", "order", "spare"))
        self._of_answer = (t["slot"], t["members"], t["running"], t["size"], self._column_type)

    def set_room(self, room: Room) -> None:
        """Set the GPUs that can be given to jobs, until they are set again."""
        self._room = (*room, *(amounts.copy() for amounts in room))

    # -- which jobs are there ------------------------------------------------------------------------------------------

    def observe(self, span: float, index: Ints) -> tuple[Ints, int, int]:
        """Count `span` seconds as run; return the newcomers' rows in `index`, how many left, how many rows go on."""
        if self.rows + len(index) > len(self._t["slot"]):
            self._t["slot"] = np.full(2 * (self.rows + len(index)), -1, np.int64)
            self._bind()
        new, left, going_on = self._kernels.observe(index, self.where, *self._of_observe, self.total, self.rows, span)
        return self._t["slot"][self.rows : self.rows + new].copy() if new else NONE, left, going_on

    def exempt(self, index: Ints) -> None:
        """Let these jobs always run, without a turn."""
        self._know(index)
        self.where[index] = L.NEEDS_NO_TURN

    def add(self, new: Newcomers, places: Ints) -> None:
        """Add newcomers, still without a share; `places` are their rows of the view."""
        self._know(new.index)
        first, n = self.rows, len(new.index)
        if first + n > len(self._t["alive"]):
            slot = self._t["slot"]
            self._make_tables(2 * (first + n))
            self._t["slot"][:first] = slot[:first]
        rows = slice(first, first + n)
        self._fill(rows, new.index, np.repeat(np.arange(first, first + n)[:, None], 2, axis=1), new.size, new.queue)
        self._t["rate"][rows], self._t["pace"][rows], self._t["works"][rows] = new.rate, new.pace, new.rate > 0
        self._t["slot"][rows] = places
        self.where[new.index] = np.arange(first, first + n)
        self.rows += n

    def _know(self, index: Ints) -> None:
        highest = int(index.max(initial=-1))
        if highest >= len(self.where):
            self.where = np.concatenate([self.where, np.full(2 * highest + 2 - len(self.where), -1, np.int64)])

    def _fill(self, rows: slice, index: Ints, members: Ints, size: Floats, queue: Ints) -> None:
        t = self._t
        self.index[rows], t["members"][rows], t["size"][rows], t["queue"][rows] = index, members, size, queue
        t["alive"][rows], t["has_share"][rows], t["running"][rows] = True, False, -1
        t["share"][rows], t["deficit"][rows], t["received"][rows] = 0.0, 0.0, self.round_s / 2

    # -- shares and turns --------------------------------------------------------------------------------------

    def places(self) -> Ints:
        """Return the rows of the view of all jobs; to be called after `forget`, which drops pairs and ended jobs."""
        return self._t["slot"][: self.rows].copy()

    def rates(self) -> Floats:
        return np.asarray(self._t["rate"][: self.rows].copy())

    def forget(self, elapsed_s: float) -> Ints:
        """Prepare for new shares: settle deficits, reset what was received; return the present jobs, by arrival."""
        t, half = self._t, self.round_s / 2
        due = np.where(t["has_share"][: self.rows, None], t["share"][: self.rows], 0.0) * elapsed_s
        t["deficit"][: self.rows] += due - (t["received"][: self.rows] - half)
        kept = np.flatnonzero(t["alive"][: self.rows] & (t["members"][: self.rows, 0] == np.arange(self.rows)))
        kept = kept[t["members"][kept, 1] == kept]
        gone = self.index[: self.rows][~t["alive"][: self.rows]]
        for name in (*BY_JOB, *BY_COLUMN, "slot"):
            t[name][: len(kept)] = t[name][kept]
        self.index[: len(kept)] = self.index[kept]
        self.where[gone] = -1
        self.rows = len(kept)
        self.where[self.index[: self.rows]] = np.arange(self.rows)
        t["members"][: self.rows] = np.arange(self.rows)[:, None]
        t["received"][: self.rows] = half
        t["running"][: self.rows] = -1
        self.total[:] = half * self.rows
        return self.index[: self.rows].copy()

    def assign(self, share: Floats) -> None:
        """Set the new shares of the jobs that `forget` returned."""
        self._t["share"][: self.rows], self._t["has_share"][: self.rows] = share, True

    def assign_pairs(self, first: Ints, second: Ints, share: Floats) -> None:
        """Set the shares of pairs: rows of their members (as in `assign`), and a row of shares for each pair."""
        n, at, t = len(first), self.rows, self._t
        if at + n > len(t["alive"]):
            slot = t["slot"]
            self._make_tables(2 * (at + n))
            t = self._t
            t["slot"][:at] = slot[:at]
        rows = slice(at, at + n)
        self._fill(rows, self.index[first], np.stack([first, second], axis=1), t["size"][first], t["queue"][first])
        t["share"][rows], t["has_share"][rows] = share, True
        t["works"][rows] = t["works"][first] & t["works"][second]
        t["rate"][rows], t["pace"][rows] = 0.0, 0.0
        self.total += n * self.round_s / 2
        self.rows += n

    def whole_steps_s(self) -> tuple[Ints, Ints, Floats]:
        """Return the rows that run, their columns, and how long the whole steps take that fit into a round."""
        t = self._t
        rows = np.flatnonzero((t["running"][: self.rows] >= 0) & t["alive"][: self.rows])
        columns = t["running"][rows]
        pace = t["pace"][rows, columns]
        whole = np.floor(pace * self.round_s) / np.where(pace > 0, pace, 1.0)
        return rows, columns, np.where(pace > 0, whole, self.round_s)

    def count_whole_steps(self, span_s: float, idle_s: float = 0.0, rounds: int = 1) -> None:
        """Correct the times received: whole steps and the `idle_s` before count, not the `span_s` of the rounds."""
        rows, columns, whole_s = self.whole_steps_s()
        more = rounds * whole_s + idle_s - span_s
        self._t["received"][rows, columns] += more
        np.add.at(self.total, columns, more)

    def select(self, columns: Ints, *, fresh: bool) -> Chosen:
        """Choose what runs, going through columns in this order; rows with a turn keep it, unless `fresh`."""
        chosen = self._kernels.select(
            *self._of_select,
            columns,
            self._column_type,
            *self._room,
            *self._scratch,
            self.rows,
            self._leftovers,
            self._idle_new,
            fresh,
            self.round_s,
        )
        return Chosen(*chosen)

    def answer(self, index: Ints) -> tuple[Floats, Ints, Ints]:
        """Return the selection as a rank, a size and a set of GPU types for each job of the view."""
        n = len(index)
        key, workers, types = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
        self._kernels.answer(index, self.where, *self._of_answer, key, workers, types, self.rows)
        return key, workers, types

    def columns_of(self) -> dict[tuple[int, int], int]:
        """Return (job, job) → column for the rows that have a turn; a single job is paired with itself."""
        t = self._t
        rows = np.flatnonzero(t["running"][: self.rows] >= 0)
        return {
            (int(self.index[a]), int(self.index[b])): int(t["running"][r]) for r in rows for a, b in [t["members"][r]]
        }

    # -- memory ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        exempt = np.flatnonzero(self.where == L.NEEDS_NO_TURN)
        tables = {name: self._t[name][: self.rows].tolist() for name in (*BY_JOB, *BY_COLUMN)}
        tables["index"] = self.index[: self.rows].tolist()
        return tables | {"total": self.total.tolist(), "exempt": exempt.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        self.rows, index = 0, np.array(state["index"], np.int64)
        self._make_tables(max(64, 2 * len(index)))
        self.rows = len(index)
        self.where[:] = -1
        if state["exempt"]:
            self.exempt(np.array(state["exempt"], np.int64))
        self._know(index)
        self.index[: self.rows], self.total[:] = index, state["total"]
        for name in (*BY_JOB, *BY_COLUMN) if self.rows else ():
            self._t[name][: self.rows] = state[name]
        single = np.flatnonzero(self._t["members"][: self.rows, 0] == self._t["members"][: self.rows, 1])
        alive = single[self._t["alive"][single]]
        self.where[index[alive]] = alive
