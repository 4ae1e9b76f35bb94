"""The exact rules of the simulator that Tiresias' authors published.

They make sense only under its assumptions: whole seconds, no overheads, GPUs that are counted but not placed, rigid
jobs. Both schedules go through a list that is kept from one event to the next, run every job for which enough GPUs are
left, and stop the others. Their differences from the paper are reproduced:

- *dlas-gpu*: a job is moved down at most one queue at a time, to the end of it, and only when something happens;
  the next look is due in ⌊(limit − seconds run) / GPUs⌋ seconds, which for gangs is late. After each event every
  queue puts its running jobs first.
- *gittins*: no queues, decisions at arrivals and ends only; the age of a running job is in GPU-seconds, that of a
  waiting one in seconds. The index has a fixed quantum, sums whole samples instead of what is left of them, and
  divides by whole numbers. (As published, the list is sorted with the worst job first; here the best is first.)

References: github.com/SymbioticLab/Tiresias, simulator/run_sim.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import View
from argosy.slack import RESOURCE_SLACK, TIMER_SLACK_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GITTINS_QUANTUM = 3250


class KeptList:
    """Jobs in an order that is kept from one event to the next, with the queue of each."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # job → queue, place
        self.wake_at: float | None = None

    def rank(self, view: View) -> Floats:
        index, n = view.jobs.index, len(view.jobs)
        newcomer = (0, -1)
        known = np.array([self._known.get(job, newcomer) for job in index.tolist()], np.int64).reshape(n, 2)
        queue, order = self.arrange(view, known[:, 0], known[:, 1])
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        self._known = dict(zip(index.tolist(), zip(queue.tolist(), place.tolist())))
        runs = who_runs(view, order)
        self.wake_at = self.next_look(view, queue, runs)
        return np.where(runs, place, place + n).astype(np.float64)

    def arrange(self, view: View, queue: Ints, place: Ints) -> tuple[Ints, Ints]:
        """Return the queue of each job and the order of all; new jobs have the place -1."""
        raise NotImplementedError

    def next_look(self, view: View, queue: Ints, runs: NDArray[np.bool_]) -> float | None:
        """Return when to decide again if nothing happens until then."""
        return None

    def state(self) -> dict[str, Any]:
        return {str(job): list(known) for job, known in self._known.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self._known = {int(job): (queue, place) for job, (queue, place) in state.items()}


class AuthorsQueues(KeptList):
    """The authors' schedule dlas-gpu."""

    def __init__(self, limits: Floats) -> None:
        super().__init__()
        self._limits = np.append(limits, np.inf)

    def arrange(self, view: View, queue: Ints, place: Ints) -> tuple[Ints, Ints]:
        jobs = view.jobs
        running = jobs.state == 1
        down = running & (seconds(jobs.executed_s) * jobs.gpus >= self._limits[queue])
        queue = queue + down
        appended = down | (place < 0)
        part = np.where(appended, 2, ~running)
        return queue, np.lexsort((np.where(appended, jobs.index, place), part, queue))

    def next_look(self, view: View, queue: Ints, runs: NDArray[np.bool_]) -> float | None:
        jobs = view.jobs
        counts = runs & (queue < len(self._limits) - 1) & (jobs.gpus > 0)
        if not counts.any():
            return None
        left = self._limits[queue[counts]] - seconds(jobs.executed_s[counts])
        return float(view.now + np.maximum(left // jobs.gpus[counts], 1.0).min())


class AuthorsGittins(KeptList):
    """The authors' schedule gittins, with the best job first."""

    def __init__(self, samples: Floats) -> None:
        super().__init__()
        self.table = self._samples, self._index = authors_index(samples)

    def arrange(self, view: View, queue: Ints, place: Ints) -> tuple[Ints, Ints]:
        jobs = view.jobs
        age = seconds(jobs.executed_s) * np.where(jobs.state == 1, jobs.gpus, 1.0)
        index = self._index[self._samples.searchsorted(age, "right")]
        return queue, np.lexsort((np.where(place < 0, jobs.index + len(jobs), place), -index))


def authors_index(samples: Floats) -> tuple[Floats, Floats]:
    """Return sorted samples, and the index for ages below each of them and, as the last entry, beyond all of them."""
    data = np.sort(np.floor(samples))
    n = len(data)
    sums = np.concatenate([[0.0], np.cumsum(data)])
    first = data.searchsorted(data, "left")  # an age just below a sample
    until = data - 1 + GITTINS_QUANTUM
    upto = np.where(until > data[-1] - 1, n - 1, data.searchsorted(until, "right"))
    chance = np.round((upto - first) / (n - first), 5)
    expected = (sums[upto] - sums[first] + GITTINS_QUANTUM * (n - upto)) // (n - first)
    index = np.round(np.divide(chance * 1e6, expected, out=np.zeros(n), where=expected > 0), 4)
    return data, np.append(index, 0.0)


def seconds(executed_s: Floats) -> Floats:
    """Return whole seconds, as the authors' simulator counts them."""
    return np.asarray(np.floor(executed_s + TIMER_SLACK_S))


def who_runs(view: View, order: Ints) -> NDArray[np.bool_]:
    """Return which jobs run: in this order, every job for which enough GPUs are left."""
    gpus = view.jobs.gpus[order].tolist()
    left = view.free_gpus + float(view.jobs.held.sum()) + RESOURCE_SLACK
    runs = np.zeros(len(order), np.bool_)
    for row, wanted in zip(order.tolist(), gpus):
        if wanted <= left:
            left -= wanted
            runs[row] = True
    return runs
