"""The result of a run: one row for each job, one row for each event, and what the run was."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster


class EventKind(IntEnum):
    """The kinds of rows in the event log.

    The first group opens a placement (and ends the job's earlier one), the second closes it, the rest change no
    placement. A gang on several nodes has several rows with the same `seq`, and so has one on a large node, with a row
    for every 48 devices.
    """

    START = 0
    RESUME = 1  # after a preemption, a pause or a fault
    MIGRATE = 2
    RESIZE = 3
    GROW = 4  # a resize with spare GPUs, on which the network grows
    # closing
    PREEMPT = 10
    PAUSE = 11  # its turn in a time-sliced group is over
    EVICT = 12  # its node failed, was drained or reserved
    CRASH = 13  # the job itself failed and will be retried
    FINISH = 14
    FAIL = 15  # ended as failed
    KILL = 16  # ended as killed by its owner
    CANCEL = 17
    # neither
    SUBMIT = 20
    REFUSE = 21  # can never run on this cluster
    NODE_DOWN = 30
    NODE_UP = 31
    NODE_DRAIN = 32
    NODE_RESERVE = 33
    NODE_RELEASE = 34


OPENING = (EventKind.START, EventKind.RESUME, EventKind.MIGRATE, EventKind.RESIZE, EventKind.GROW)
CLOSING = tuple(k for k in EventKind if 10 <= k < 20)

JOB_COLUMNS: dict[str, pl.DataType] = {
    "job_id": pl.String(),
    "user": pl.String(),
    "queue": pl.String(),
    "model": pl.String(),
    "gpus": pl.Float64(),  # requested
    "weight": pl.Float64(),
    "deadline_s": pl.Float64(),
    "submit_s": pl.Float64(),
    "alone_s": pl.Float64(),  # run time on its own demand, undisturbed, consolidated
    "first_start_s": pl.Float64(),  # null: never started
    "finish_s": pl.Float64(),  # null: unfinished
    "status": pl.String(),  # completed | failed | killed | cancelled | refused | unfinished
    "held_gpu_s": pl.Float64(),  # = useful + overhead + interference + lost
    "useful_gpu_s": pl.Float64(),
    "overhead_gpu_s": pl.Float64(),  # starting, restoring, moving, resizing
    "interference_gpu_s": pl.Float64(),  # slower than the placement alone would have been
    "lost_gpu_s": pl.Float64(),  # work done again after a fault
    "preemptions": pl.Int64(),
    "migrations": pl.Int64(),
    "resizes": pl.Int64(),
    "faults": pl.Int64(),  # crashes and evictions
    "quality": pl.Float64(),  # accuracy at its end; null without a quality curve
    "quality_gain": pl.Float64(),  # of that, what spare GPUs brought
    "takes_spare": pl.Boolean(),  # whether it takes spare GPUs
    "spare_gpu_s": pl.Float64(),  # spare GPUs held
    "spare_wasted_gpu_s": pl.Float64(),  # those of spare_gpu_s that did not improve the final network
}

EVENT_COLUMNS: dict[str, pl.DataType] = {
    "seq": pl.Int64(),
    "t": pl.Float64(),
    "kind": pl.Int16(),  # EventKind
    "job": pl.Int32(),  # row in `jobs`, -1 for node events
    "node": pl.Int32(),  # index in the cluster, -1 where no node is concerned
    "first": pl.Int32(),  # a multiple of 48
    "devices": pl.Int64(),  # bit d set = device first + d of the node
    "milli": pl.Int32(),  # thousandths of each of those devices
    "info": pl.Float64(),  # s of overhead (opening), GPU-seconds held in all (end)
}


@dataclass(frozen=True, slots=True)
class Result:
    """One simulated run."""

    policy: str
    seed: int
    trace: str
    cluster: Cluster
    uses: tuple[str, ...]  # what the policy was allowed to see
    jobs: pl.DataFrame  # JOB_COLUMNS, in submit order
    events: pl.DataFrame  # EVENT_COLUMNS, in order
    end_s: float  # when the simulation stopped
    decision_ns: NDArray[np.int64]  # time of every call of the policy, in order
    settings: dict[str, Any] = field(default_factory=dict)
    cpu_s: float = 0.0
    work_declared: bool = False  # whether users declared the work of all jobs, as a number of steps or epochs
    notes: tuple[str, ...] = ()  # warnings for whoever reads the figures
