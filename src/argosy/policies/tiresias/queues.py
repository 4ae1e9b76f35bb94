"""The queues of Tiresias: which job is in which, in what order, and when that changes next.

All of this is one compiled pass over the jobs, because a chain of small array operations would be too slow for a policy
that is asked at each arrival and end. Jobs are remembered by their index, in the rows of one matrix.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import View
from argosy.policies.tiresias.gittins import compiled
from argosy.slack import TIMER_SLACK_S

Floats = NDArray[np.float64]

ENTERED = 0  # when it entered the top queue: when it was submitted, or promoted
BEGAN = 1  # when its first run since then began; -1 if it has not run since
EXECUTED0, ATTAINED0 = 2, 3  # seconds and GPU-seconds that it had when it entered
REMEMBERED = 4
INDEX, SUBMITTED, GPUS, ATTAINED, EXECUTED_S, STARTED, STATE = range(7)  # columns that are read
KEY, GROUP, AGE = range(7, 10)  # columns that are filled in
COLUMNS = 10
SLACK_GPU_S = 1e-4  # a limit counts as reached this much early, against rounding
LEAST_LOOK_S = 1.0  # a running job is checked for promotion again after this time at the earliest


class Queues:
    """Queues of jobs by attained service since they entered the top queue."""

    def __init__(self, limits: Floats, promote: float) -> None:
        self._limits, self._promote = limits, promote
        self._memory = nothing_known(0)
        self._columns = np.zeros((COLUMNS, 0))
        self._room = np.zeros((2, len(limits) + 1))
        self._arrange = compiled(arrange)
        self._wake = np.inf
        self._guess = -1.0  # when a job would leave its queue if it started now, if that is the next thing to happen
        self._seen = (0, 0, 0)  # number of jobs, running jobs and free GPUs at the last decision

    def arrange(self, view: View) -> Floats:
        """Return three rows, the key, group and age of each job; they are valid until the next call.

        The groups are the running and the waiting jobs of the top queue, those of the next one, and so on. The key
        is the group, then the earlier start (or arrival, if it never ran).
        """
        jobs, n = view.jobs, len(view.jobs)
        columns = self._columns
        if n > columns.shape[1]:
            columns = self._columns = np.zeros((COLUMNS, 2 * n))
        # one writable block: passing read-only columns to Numba costs several times as much as copying them
        columns[INDEX, :n], columns[SUBMITTED, :n], columns[GPUS, :n] = jobs.index, jobs.submitted, jobs.gpus
        columns[ATTAINED, :n], columns[STARTED, :n], columns[STATE, :n] = jobs.attained, jobs.started, jobs.state
        if self._promote:
            columns[EXECUTED_S, :n] = jobs.executed_s
        seen = (n, view.running, view.free_gpus)
        # woken for a job that still waits: no job has started since, and if nothing has changed, none starts now
        quiet = view.now == self._guess and seen == self._seen
        wake, maybe = self._arrange(
            view.now, seen[2], quiet, self._promote, self._limits, n, columns, self._memory, self._room
        )
        if wake < 0:
            self._make_room(int(columns[INDEX, :n].max()) + 1)
            return self.arrange(view)
        self._wake, self._guess, self._seen = min(wake, maybe), maybe if maybe < wake else -1.0, seen
        return columns[KEY:, :n]

    def wake_at(self, view: View) -> float | None:
        """Return when the next job leaves its queue, if another job waits for that."""
        if not view.waiting or self._wake == inf:
            return None
        return max(self._wake, nextafter(view.now, inf))

    def _make_room(self, jobs: int) -> None:
        memory = nothing_known(2 * jobs)
        memory[: len(self._memory)] = self._memory
        self._memory = memory

    @property
    def remembered(self) -> tuple[Floats, float, tuple[int, int, int]]:
        """Return the memory of all jobs, by index, the guess, and what was seen at the last decision."""
        return self._memory, self._guess, self._seen

    def state(self) -> dict[str, Any]:
        index = self._columns[INDEX, : self._seen[0]].astype(np.int64)
        known = np.column_stack([index, self._memory[index]])
        return {"jobs": known.tolist(), "guess": self._guess, "seen": list(self._seen)}

    def restore(self, state: dict[str, Any]) -> None:
        known = np.array(state["jobs"]).reshape(-1, 1 + REMEMBERED).T
        self._columns = np.zeros((COLUMNS, known.shape[1]))
        self._columns[INDEX] = known[0]
        self._make_room(int(known[0].max(initial=-1)) + 1)
        self._memory[known[0].astype(np.int64)] = known[1:].T
        self._guess = state["guess"]
        jobs, running, free = state["seen"]
        self._seen = (jobs, running, free)


def nothing_known(jobs: int) -> Floats:
    """Return the memory of jobs that have not been seen yet, one in each row."""
    memory = np.zeros((jobs, REMEMBERED))
    memory[:, [ENTERED, BEGAN]] = -1.0
    return memory


def arrange(
    now: float,
    free: int,
    quiet: bool,
    promote: float,
    limits: Floats,
    n: int,
    columns: Floats,
    memory: Floats,
    scratch: Floats,
) -> tuple[float, float]:
    """Fill in key, group and age; return when the next job leaves its queue, and the same for jobs that may start.

    A job that leaves its queue matters only to the jobs that wait in that queue, because until then they are not served
    before it. So queues where no job waits, or may wait after this decision, need no wake-up. A waiting job may start
    if it fits in addition to all running jobs of its own and better queues; jobs of worse queues may then have to wait.
    The first time is negative if the memory is too small. `scratch` has two rows, with an entry for each queue.
    """
    last = len(limits)
    room = scratch[0]  # GPUs that the jobs of each queue hold, then those open to it
    waited_for = scratch[1]  # 1 where a job waits, or may wait after this decision
    room[:], waited_for[:] = 0.0, 0.0
    wake = maybe = np.inf
    for row in range(n):
        if columns[INDEX, row] >= len(memory):
            return -1.0, -1.0
    for row in range(n):
        job = int(columns[INDEX, row])
        running = columns[STATE, row] == 1.0
        if memory[job, ENTERED] < 0.0:
            memory[job, ENTERED] = columns[SUBMITTED, row]
        gpu_s = columns[ATTAINED, row] - memory[job, ATTAINED0]
        if memory[job, BEGAN] < 0.0 and (running or gpu_s > 0.0):
            memory[job, BEGAN] = columns[STARTED, row]
        q = 0
        while q < last and gpu_s + SLACK_GPU_S >= limits[q]:
            q += 1
        if promote > 0.0 and q > 0:
            run_s = columns[EXECUTED_S, row] - memory[job, EXECUTED0]
            waited_s = now - memory[job, BEGAN] - run_s
            left_s = promote * run_s - waited_s
            if running:
                wake = min(wake, now + max(left_s, LEAST_LOOK_S))
            elif left_s > TIMER_SLACK_S:
                wake = min(wake, now + left_s)
            else:
                memory[job, ENTERED], memory[job, BEGAN] = now, -1.0
                memory[job, EXECUTED0] = columns[EXECUTED_S, row]
                memory[job, ATTAINED0] = columns[ATTAINED, row]
                q, gpu_s = 0, 0.0
        since = memory[job, BEGAN] if memory[job, BEGAN] >= 0.0 else memory[job, ENTERED]
        group = 2 * q + (not running)
        columns[KEY, row] = group * (now + 1.0) + since
        columns[GROUP, row], columns[AGE, row] = group, gpu_s
        if running:
            room[q] += columns[GPUS, row]
        else:
            waited_for[q] = 1.0
    behind = float(free)
    for q in range(last, -1, -1):
        room[q], behind = behind, behind + room[q]
    for row in range(n):
        q, gpus = int(columns[GROUP, row]) // 2, columns[GPUS, row]
        if columns[STATE, row] != 1.0 and not quiet and (gpus < 1.0 or gpus <= room[q]):
            waited_for[q:] = 1.0
            if q < last and gpus > 0.0:
                maybe = min(maybe, now + (limits[q] - columns[AGE, row]) / gpus)
    for row in range(n):
        q, gpus = int(columns[GROUP, row]) // 2, columns[GPUS, row]
        if columns[STATE, row] == 1.0 and q < last and waited_for[q] > 0.0 and gpus > 0.0:
            wake = min(wake, now + (limits[q] - columns[AGE, row]) / gpus)
    return wake, maybe
