"""Derive the timeline of a run: placements as intervals, and quantities as step functions of time.

Everything is derived from `Result.events` and `Result.jobs` with whole-column operations, so a million jobs
take about a second. Amounts of GPU are summed in whole thousandths: no rounding error builds up along a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from argosy.sim.result import CLOSING, OPENING, EventKind, Result

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 1 << 16  # times that are looked up together, so that nothing as long as all of them is needed in between
FINISHED = ("completed", "failed", "killed")  # a failed or killed job held GPUs, so it counts as finished


@dataclass(frozen=True, slots=True)
class Steps:
    """A right-continuous step function of time.

    `value[i]` holds from `t[i]` until `t[i + 1]`, the last one for ever; before `t[0]` it is zero. Times strictly
    increase.
    """

    t: Floats
    value: Floats

    @classmethod
    def of_changes(cls, t: ArrayLike, change: ArrayLike, *, unit: float = 1.0) -> Steps:
        """Return the running sum of changes at times, in any order; changes at the same time become one step.
        Integer changes are summed exactly and divided by `unit` at the end."""
        times, changes = np.asarray(t, dtype=np.float64), np.asarray(change)
        if not times.size:
            return cls(np.zeros(1), np.zeros(1))
        exact = changes.dtype.kind == "i" or bool((changes == np.rint(changes)).all())
        order = np.argsort(times, kind=None if exact else "stable")  # sums of whole numbers are the same in any order
        times, changes = times[order], changes[order]
        del order  # as long as jobs are many, these arrays are most of the memory
        last = np.append(times[1:] != times[:-1], True)
        total = np.cumsum(changes)[last]
        return cls(times[last], total / unit)

    def at(self, t: ArrayLike) -> Floats:
        """Return the value at each time."""
        asked = np.asarray(t, dtype=np.float64)
        found = np.empty(asked.size)
        for begin in range(0, asked.size, CHUNK):
            place = np.searchsorted(self.t, asked.ravel()[begin : begin + CHUNK], side="right")
            found[begin : begin + CHUNK] = np.where(place > 0, self.value[place - 1], 0.0)
        return found.reshape(asked.shape)

    def integral(self, t: ArrayLike) -> Floats:
        """Return the area under the function from its first step until each time."""
        return self._until(t, self._areas())

    def _areas(self) -> Floats:
        """Return the area under the function until each of its steps."""
        return np.append(0.0, np.cumsum(self.value[:-1] * np.diff(self.t)))

    def _until(self, t: ArrayLike, areas: Floats) -> Floats:
        x = np.asarray(t, dtype=np.float64)
        beyond = np.maximum(x - self.t[-1], 0.0) * self.value[-1]
        return np.asarray(np.interp(x, self.t, areas) + beyond, dtype=np.float64)

    def average(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the time average over each [start, end]; over an empty stretch, the value there."""
        start, end = np.broadcast_arrays(np.asarray(start_s, np.float64), np.asarray(end_s, np.float64))
        length, areas = end - start, self._areas()
        found = np.asarray(self._until(end, areas) - self._until(start, areas))
        some = np.asarray(length > 0)
        np.divide(found, length, out=found, where=some)
        found[~some] = self.at(start[~some])
        return found

    def resample(self, points: int, start_s: float, end_s: float) -> tuple[Floats, Floats]:
        """Return the middles of `points` equal bins and the average in each; samples would miss peaks."""
        edges = np.linspace(start_s, end_s, points + 1)
        return (edges[:-1] + edges[1:]) / 2, self.average(edges[:-1], edges[1:])


def placements(result: Result) -> pl.DataFrame:
    """Return the placements of a run, with one row for each node of each placement, sorted by job and time.

    The columns are `seq` (of the opening event, the same for a whole gang), `job`, `node`, `first`, `devices`, `milli`,
    `gpus`, `start_s`, `end_s`. On a large node there is a row for every 48 devices, as in the event log.

    A placement lasts until the job's next event that opens or closes one; one still open ends with the run.
    """
    events = result.events
    changes = np.isin(np.arange(max(EventKind) + 1), [int(kind) for kind in OPENING + CLOSING])
    rows = np.flatnonzero(changes[events["kind"].to_numpy()] & (events["job"].to_numpy() >= 0))
    job, order = _by_number(events["job"].to_numpy()[rows])  # the log is in order of time already
    rows = rows[order]
    del order
    seq, kind, t = (events[name].to_numpy()[rows] for name in ("seq", "kind", "t"))

    # A gang's rows form one group. A group lasts until the next group of the same job.
    begins = np.ones(job.size, dtype=bool)
    begins[1:] = (job[1:] != job[:-1]) | (seq[1:] != seq[:-1]) | (kind[1:] != kind[:-1])
    first = np.flatnonzero(begins)
    group_end = np.full(first.size, result.end_s)
    same_job = job[first[1:]] == job[first[:-1]]
    group_end[:-1][same_job] = t[first[1:]][same_job]
    opens = np.isin(kind, [int(k) for k in OPENING])
    end_s = group_end[np.cumsum(begins)[opens] - 1]
    del begins, first, group_end, same_job, kind

    rows = rows[opens]
    devices, milli = events["devices"].to_numpy()[rows], events["milli"].to_numpy()[rows]
    return pl.DataFrame(
        {
            "seq": seq[opens],
            "job": job[opens],
            "node": events["node"].to_numpy()[rows],
            "first": events["first"].to_numpy()[rows],
            "devices": devices,
            "milli": milli,
            "gpus": np.bitwise_count(devices) * milli / 1000.0,
            "start_s": t[opens],
            "end_s": end_s,
        }
    )


def _by_number(numbers: NDArray[np.int32]) -> tuple[NDArray[np.int32], Ints]:
    """Return small numbers in order, and which came from where, equal ones as they were: a sort of both as one."""
    both = numbers.astype(np.int64) << 32
    both |= np.arange(both.size)
    both.sort()
    return (both >> 32).astype(np.int32), both & 0xFFFFFFFF


@dataclass(frozen=True)
class Timeline:
    """The step functions of one run, each computed on first use."""

    result: Result

    @cached_property
    def placements(self) -> pl.DataFrame:
        return placements(self.result)

    @cached_property
    def gangs(self) -> pl.DataFrame:
        """The placements without their nodes: a row (`job`, `start_s`, `end_s`) for each time a job held resources."""
        seq, job = self.placements["seq"].to_numpy(), self.placements["job"].to_numpy()
        first = np.ones(seq.size, dtype=bool)
        first[1:] = (seq[1:] != seq[:-1]) | (job[1:] != job[:-1])
        return self.placements.select("job", "start_s", "end_s").filter(pl.Series(first, dtype=pl.Boolean))

    @cached_property
    def life(self) -> tuple[Floats, Floats]:
        """The submit and end times of the jobs; a job that has not ended ends with the run, a refused one at once."""
        jobs = self.result.jobs
        submit = jobs["submit_s"].to_numpy()
        end = jobs["finish_s"].fill_null(self.result.end_s).to_numpy()
        return submit, np.where((jobs["status"] == "refused").to_numpy(), submit, np.maximum(end, submit))

    @cached_property
    def held_s(self) -> Floats:
        """For each job, the time for which it held resources."""
        gangs = self.gangs
        length = gangs["end_s"].to_numpy() - gangs["start_s"].to_numpy()
        count = self.result.jobs.height
        return np.bincount(gangs["job"].to_numpy(), weights=length, minlength=count).astype(np.float64)

    @cached_property
    def gpus_held(self) -> Steps:
        """GPUs held by jobs, whatever use they make of them."""
        return _held(self.placements)

    @cached_property
    def active(self) -> Steps:
        """Jobs submitted and not yet ended."""
        submit, end = self.life
        return _between(submit, end, np.ones(submit.size, dtype=np.int64))

    @cached_property
    def active_weight(self) -> Steps:
        """The summed weights of the active jobs."""
        submit, end = self.life
        return _between(submit, end, weights(self.result))

    @cached_property
    def waiting(self) -> Steps:
        """Active jobs that hold nothing; a preempted or paused job waits again."""
        submit, end = self.life
        start_s, end_s = self.gangs["start_s"].to_numpy(), self.gangs["end_s"].to_numpy()
        ones, holds = np.ones(submit.size, dtype=np.int8), np.ones(start_s.size, dtype=np.int8)
        return Steps.of_changes(
            np.concatenate([submit, end, start_s, end_s]), np.concatenate([ones, -ones, -holds, holds])
        )

    @cached_property
    def free(self) -> tuple[Steps, Steps]:
        """Free GPUs: (on all usable nodes, on those of them where something is held), with the same times.

        A node is not usable while it is down or drained. One pass over the changes of all nodes, sorted by
        node and time: after each of them the node's free GPUs are known; their differences are summed up.
        """
        capacity = np.array([n.gpus for n in self.result.cluster.nodes], dtype=np.int32) * np.int32(1000)
        count = capacity.size
        node, milli, start, end = (self._held_for_a_while(name) for name in ("node", "milli", "start_s", "end_s"))
        switches = (EventKind.NODE_DOWN, EventKind.NODE_UP, EventKind.NODE_DRAIN)
        turns = self.result.events.filter(pl.col("kind").is_in([int(kind) for kind in switches]))
        begin = min(0.0, float(self.life[0].min(initial=0.0)))
        # Every node is there at the beginning; then come starts and ends of placements, and turns up or down.
        t = np.concatenate([np.full(count, begin), start, end, turns["t"].to_numpy()])
        node = np.concatenate([np.arange(count), node, node, turns["node"].to_numpy()])
        change = np.concatenate([np.zeros(count, np.int32), milli, -milli, np.zeros(turns.height, np.int32)])
        turned_up = (turns["kind"] == int(EventKind.NODE_UP)).cast(pl.Int8).to_numpy()
        up = np.concatenate([np.ones(count, np.int8), np.full(2 * milli.size, -1, np.int8), turned_up])
        del start, end, milli

        # With turns, a node's own beginning must stay first; other changes of an instant may come in any order.
        by_time = np.argsort(t, kind="stable" if turns.height else None).astype(np.int32)
        t = t[by_time]
        last = np.append(t[1:] != t[:-1], True)
        t = t[last]
        node = node.astype(np.int16 if count < 2**15 else np.int64)[by_time]  # short ones sort faster
        by_node = np.argsort(node, kind="stable").astype(np.int32)
        order = by_time[by_node]
        node, change, up = node[by_node], change[order], up[order]
        del by_time, order
        busy = np.cumsum(change, dtype=np.int32)  # a node's changes add up to zero, so the sum restarts by itself
        free = capacity[node] - busy
        if turns.height:
            free[up[np.maximum.accumulate(np.where(up >= 0, np.arange(up.size), 0))] != 1] = 0
        begins = np.flatnonzero(np.append(True, node[1:] != node[:-1]))
        del node, change, up

        def total(level: NDArray[np.int32]) -> Steps:
            rise = np.diff(level, prepend=np.int32(0))
            rise[begins] = level[begins]
            in_time = np.empty_like(rise)
            in_time[by_node] = rise
            return Steps(t, np.cumsum(in_time, dtype=np.int64)[last] / 1000.0)

        partly = np.where(busy > 0, free, np.int32(0))
        del busy
        return total(free), total(partly)

    def _held_for_a_while(self, name: str) -> NDArray[Any]:
        """Return a column of `placements`, without those that ended as they began."""
        rows = self.placements
        column = _milli(rows).astype(np.int32) if name == "milli" else rows[name].to_numpy()
        lasting = rows["end_s"].to_numpy() > rows["start_s"].to_numpy()
        return column if lasting.all() else column[lasting]

    def forget(self, *names: str) -> None:
        """Free the memory of step functions that are not needed any more; who asks again has to wait again."""
        for name in names:
            self.__dict__.pop(name, None)

    def node_gpus(self, nodes: ArrayLike) -> Steps:
        """GPUs held on some of the nodes (their indices)."""
        return _held(self.placements.filter(pl.col("node").is_in(np.asarray(nodes).tolist())))


def weights(result: Result) -> Floats:
    """Return the jobs' weights; 1 where none is given."""
    return result.jobs["weight"].fill_null(1.0).to_numpy()


def _milli(rows: pl.DataFrame) -> Ints:
    """Return the thousandths of GPUs held by each row of `placements`."""
    milli: Ints = np.bitwise_count(rows["devices"].to_numpy()) * rows["milli"].to_numpy().astype(np.int64)
    return milli


def _held(rows: pl.DataFrame) -> Steps:
    return _between(rows["start_s"].to_numpy(), rows["end_s"].to_numpy(), _milli(rows), unit=1000.0)


def _between(start_s: Floats, end_s: Floats, amount: Floats | Ints, *, unit: float = 1.0) -> Steps:
    """Add up amounts, each of which counts from its start until its end."""
    return Steps.of_changes(np.concatenate([start_s, end_s]), np.concatenate([amount, -amount]), unit=unit)
