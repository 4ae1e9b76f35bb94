"""Derive the timeline of a run: placements as intervals, and quantities as step functions of time.

Everything is derived from `Result.events` and `Result.jobs` with whole-column operations, so a million jobs
take about a second. Amounts of GPU are summed in whole thousandths: no rounding error builds up along a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from argosy.sim.result import CLOSING, OPENING, EventKind, Result

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
        order = np.argsort(times, kind="stable")
        times, total = times[order], np.cumsum(changes[order])
        last = np.append(times[1:] != times[:-1], True)
        return cls(times[last], total[last] / unit)

    def at(self, t: ArrayLike) -> Floats:
        """Return the value at each time."""
        place = np.searchsorted(self.t, np.asarray(t, dtype=np.float64), side="right")
        return np.append(0.0, self.value)[place]

    def integral(self, t: ArrayLike) -> Floats:
        """Return the area under the function from its first step until each time."""
        x = np.asarray(t, dtype=np.float64)
        area = np.append(0.0, np.cumsum(self.value[:-1] * np.diff(self.t)))
        beyond = np.maximum(x - self.t[-1], 0.0) * self.value[-1]
        return np.asarray(np.interp(x, self.t, area) + beyond, dtype=np.float64)

    def average(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the time average over each [start, end]; over an empty stretch, the value there."""
        start, end = np.asarray(start_s, dtype=np.float64), np.asarray(end_s, dtype=np.float64)
        length = end - start
        area = self.integral(end) - self.integral(start)
        return np.where(length > 0, area / np.where(length > 0, length, 1.0), self.at(start))

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
    changes = [int(kind) for kind in OPENING + CLOSING]
    events = result.events.filter(pl.col("kind").is_in(changes) & (pl.col("job") >= 0))
    job, seq = events["job"].to_numpy(), events["seq"].to_numpy()
    kind, t = events["kind"].to_numpy(), events["t"].to_numpy()
    order = np.argsort(job, kind="stable")  # the log is in order of time already
    job, seq, kind, t = job[order], seq[order], kind[order], t[order]

    # A gang's rows form one group. A group lasts until the next group of the same job.
    begins = np.ones(job.size, dtype=bool)
    begins[1:] = (job[1:] != job[:-1]) | (seq[1:] != seq[:-1]) | (kind[1:] != kind[:-1])
    first = np.flatnonzero(begins)
    group_end = np.full(first.size, result.end_s)
    same_job = job[first[1:]] == job[first[:-1]]
    group_end[:-1][same_job] = t[first[1:]][same_job]
    end_s = np.repeat(group_end, np.diff(first, append=job.size))

    opens = np.isin(kind, [int(k) for k in OPENING])
    chosen = order[opens]
    devices, milli = events["devices"].to_numpy()[chosen], events["milli"].to_numpy()[chosen]
    return pl.DataFrame(
        {
            "seq": seq[opens],
            "job": job[opens],
            "node": events["node"].to_numpy()[chosen],
            "first": events["first"].to_numpy()[chosen],
            "devices": devices,
            "milli": milli,
            "gpus": np.bitwise_count(devices) * milli / 1000.0,
            "start_s": t[opens],
            "end_s": end_s[opens],
        }
    )


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
        ones, holds = np.ones(submit.size, dtype=np.int64), np.ones(start_s.size, dtype=np.int64)
        return Steps.of_changes(
            np.concatenate([submit, end, start_s, end_s]), np.concatenate([ones, -ones, -holds, holds])
        )

    @cached_property
    def free(self) -> tuple[Steps, Steps]:
        """Free GPUs: (on all usable nodes, on those of them where something is held), with the same times.

        A node is not usable while it is down or drained. One pass over the changes of all nodes, sorted by
        node and time: after each of them the node's free GPUs are known; their differences are summed up.
        """
        capacity = np.array([n.gpus for n in self.result.cluster.nodes], dtype=np.int64) * 1000
        count = capacity.size
        rows = self.placements.filter(pl.col("end_s") > pl.col("start_s"))
        milli = _milli(rows)
        switches = (EventKind.NODE_DOWN, EventKind.NODE_UP, EventKind.NODE_DRAIN)
        turns = self.result.events.filter(pl.col("kind").is_in([int(kind) for kind in switches]))
        begin = min(0.0, float(self.life[0].min(initial=0.0)))
        held_node = rows["node"].to_numpy()
        # Every node is there at the beginning; then come starts and ends of placements, and turns up or down.
        node = np.concatenate([np.arange(count), held_node, held_node, turns["node"].to_numpy()])
        times = [rows["start_s"].to_numpy(), rows["end_s"].to_numpy(), turns["t"].to_numpy()]
        t = np.concatenate([np.full(count, begin), *times])
        change = np.concatenate([np.zeros(count, np.int64), milli, -milli, np.zeros(turns.height, np.int64)])
        turned_up = (turns["kind"] == int(EventKind.NODE_UP)).cast(pl.Int8).to_numpy()
        up = np.concatenate([np.ones(count, np.int8), np.full(2 * milli.size, -1, np.int8), turned_up])

        by_time = np.argsort(t, kind="stable")  # stable, so a node's own beginning stays first
        t, node = t[by_time], node[by_time].astype(np.int16 if count < 2**15 else np.int64)  # short ones sort faster
        by_node = np.argsort(node, kind="stable")
        order = by_time[by_node]
        node, change, up = node[by_node], change[order], up[order]
        busy = np.cumsum(change)  # a node's changes add up to zero, so the sum restarts by itself
        free = capacity[node] - busy
        if turns.height:
            free[up[np.maximum.accumulate(np.where(up >= 0, np.arange(up.size), 0))] != 1] = 0
        begins = np.flatnonzero(np.append(True, node[1:] != node[:-1]))
        last = np.append(t[1:] != t[:-1], True)

        def total(level: Ints) -> Steps:
            rise = np.diff(level, prepend=0)
            rise[begins] = level[begins]
            in_time = np.empty_like(rise)
            in_time[by_node] = rise
            return Steps(t[last], np.cumsum(in_time)[last] / 1000.0)

        partly = np.where(busy > 0, free, 0)

        return total(free), total(partly)

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
