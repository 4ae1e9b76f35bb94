"""Shockwave: rounds for jobs that change their batch size, by Nash welfare over a window of the future.

Decision: time passes in rounds. A plan says in which of the next rounds each job runs: it maximises the sum of the
logarithms of the jobs' progress at the end of the window (efficient and fair) less the longest time that then remains,
and keeps each job's finish time to what an equal share would give it, if that is possible. How long a job takes is
forecast from the batch sizes that it has had so far. What a round leaves over goes to the jobs with most work left.
State used: demands, nodes that are up, progress, declared work and what became of ended jobs; batch sizes and profiles.
Parameters: `round_s`; `window`, rounds that are planned; `k`, the weight of the longest remaining time; `power`, of the
lateness of jobs that cannot end in time; `rho`, how late a job may be, relative to its fair finish time; `epochs`, into
how many epochs a training is divided; `limit_s`, seconds for the solver; `prior`, see joint.
Differences from the paper: the program counts the rounds of each job, and rounds are filled afterwards, priority first,
so its size does not grow with the window. Epochs are equal shares of the work; profiles of epochs are not calibrated by
measurements. Where a user declares no work, it is estimated. Jobs without whole GPUs run first. New jobs wait for the
next plan, unless GPUs are free.
References: Zheng et al., Shockwave, NSDI'23; uw-mad-dash/shockwave.

    posterior of mode b = E / modes + epochs seen in b;   remaining_b = E · posterior_b / Σ posterior − epochs seen in b
    fair finish = submit + (time run + remaining) / min(1, GPUs / J), averaged over the job's life
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Event, Floats, Ints, Policy, register
from argosy.policies.common.remaining_work import ENDS, RemainingWork
from argosy.policies.shockwave.forecast import FairFinish, remaining_s
from argosy.policies.shockwave.window import Window, arrange, plan
from argosy.slack import COUNT_SLACK, TIME_SLACK_S

FIRST, FILLS, LATER = -1e12, 0.0, 1e12  # ranks: what runs in this round, what fills it, jobs since the last plan


@register("shockwave", "rounds by Nash welfare, foreseeing changes of batch sizes", "Zheng et al., NSDI'23")
class Shockwave(Policy):
    uses = frozenset({"demand", "nodes", "progress", "declared", "profile", "efficiency", "history"})
    hears = ENDS
    preemptive = True

    def __init__(
        self,
        round_s: float = 120.0,
        window: int = 20,
        k: float = 1e-3,
        power: float = 12.0,
        rho: float = 1.0,
        epochs: int = 30,
        limit_s: float = 15.0,
        prior: int = 20,
    ) -> None:
        least = {"round_s": (round_s, 1.0), "window": (window, 1), "k": (k, 0.0), "power": (power, 0.0)}
        least |= {"rho": (rho, 1.0), "epochs": (epochs, 2), "limit_s": (limit_s, 0.1), "prior": (prior, 2)}
        for name, (value, at_least) in least.items():
            if not at_least <= value < np.inf:
                raise InputError(f"shockwave: {name} must be a number ≥ {at_least:g}, is {value}")
        self.round_s, self.window, self.k, self.power, self.rho = round_s, window, k, power, rho
        self.epochs, self.limit_s, self.prior = epochs, limit_s, prior

    def reset(self, context: Context) -> None:
        self._remaining = RemainingWork(self.prior)
        self._schedule: list[list[int]] = []  # jobs (by index) of the next rounds
        self._planned: list[int] = []  # jobs that the plan is for
        self._round = -1
        self._seen: dict[int, list[float]] = {}  # the batch of each epoch that a job has begun
        self._fair: dict[int, FairFinish] = {}
        self._keys: dict[int, float] = {}

    def on_event(self, event: Event) -> None:
        self._remaining.on_event(event)

    def rank(self, view: View) -> Floats:
        jobs = view.jobs
        number = int(np.floor(view.now / self.round_s + TIME_SLACK_S))
        here = jobs.index.tolist()
        if number != self._round:
            rows = np.flatnonzero((jobs.gpus >= 1) & (jobs.index >= 0))
            self._begin_round(view, rows, number)
        small = jobs.gpus < 1
        keys = [self._keys.get(i, LATER + i) for i in here]
        return np.where(small, 2 * FIRST + jobs.submitted, keys)

    def _begin_round(self, view: View, rows: Ints, number: int) -> None:
        """Set who runs in this round, after a new plan where jobs have come or gone or the old one is used up."""
        index = view.jobs.index[rows].tolist()
        passed = max(number - self._round, 1) if self._round >= 0 else 1
        self._round = number
        self._schedule = self._schedule[passed - 1 :] if passed > 1 else self._schedule
        observed, modes_s, left_s, done = self._forecast(view, rows)
        if not self._schedule or index != self._planned:
            total = int(view.nodes.gpus[view.nodes.state == 0].sum())
            share = min(1.0, total / max(len(rows), 1))
            self._fair = {i: self._fair.get(i, FairFinish()) for i in index}
            for at, (row, i) in enumerate(zip(rows.tolist(), index)):
                ran_s = float(np.dot(observed[at], modes_s[at]))
                self._fair[i].add(view.now, float(view.jobs.submitted[row]) + (ran_s + left_s[at]) / share)
            window = Window(
                gpus=np.maximum(view.jobs.gpus[rows], 1).astype(np.int64),
                progress=np.minimum(done / self.epochs, 1.0),
                epoch_s=np.array([np.dot(o, s) / max(o.sum(), 1) for o, s in zip(observed, modes_s)]),
                epochs=np.full(len(rows), self.epochs),
                remaining_s=left_s,
                fair_finish=np.array([self._fair[i].value(view.now) for i in index]),
                now=view.now,
                round_s=self.round_s,
                rounds=self.window,
                total_gpus=max(total, 1),
                k=self.k,
                power=self.power,
                rho=self.rho,
            )
            counts, priority = plan(window, self.limit_s) if len(rows) else (np.zeros(0, np.int64), np.zeros(0))
            arranged = arrange(counts, window.gpus, priority, window.total_gpus, self.window)
            self._schedule = [[index[j] for j in jobs] for jobs in arranged]
            self._planned = index
        now = self._schedule.pop(0) if self._schedule else []
        place = {i: FIRST + at for at, i in enumerate(now)}
        self._keys = {i: place.get(i, FILLS - float(left)) for i, left in zip(index, left_s)}

    def _forecast(self, view: View, rows: Ints) -> tuple[list[Ints], list[Floats], Floats, Floats]:
        """Return epochs seen and seconds of an epoch by mode, the seconds left, and the epochs done of each job."""
        jobs = view.jobs
        left = self._remaining.of(view)
        here = set(jobs.index.tolist())
        self._seen = {i: seen for i, seen in self._seen.items() if i in here}
        counts, seconds, left_s, done = [], [], np.zeros(len(rows)), np.zeros(len(rows))
        for at, row in enumerate(rows.tolist()):
            work = max(float(jobs.done_s[row]) + float(left[row]), 1e-6)
            epoch = min(int(self.epochs * float(jobs.done_s[row]) / work + COUNT_SLACK), self.epochs - 1)
            seen = self._seen.setdefault(int(jobs.index[row]), [])
            batch = float(jobs.batch[row])
            seen += [batch if batch == batch else 0.0] * (epoch + 1 - len(seen))
            modes = view.modes(row)
            count = np.array([sum(b == mode.batch for b in seen) for mode in modes], np.int64)
            if not count.any():
                count[0] = len(seen)
            epoch_s = self._epoch_s(view, row, [mode.kind for mode in modes], work)
            counts.append(count)
            seconds.append(epoch_s)
            left_s[at] = max(remaining_s(self.epochs, epoch, count, epoch_s), 1e-3)
            done[at] = epoch
        return counts, seconds, left_s, done

    def _epoch_s(self, view: View, row: int, kinds: list[int], work: float) -> Floats:
        """Return the seconds of an epoch in each mode, at the requested size."""
        jobs, profile = view.jobs, view.profile
        size = max(int(jobs.gpus[row]), 1)
        if jobs.ps_kind[row] >= 0 or len(kinds) == 1:
            return np.full(len(kinds), work / self.epochs)
        fastest = max((t for t in range(profile.table().shape[1]) if int(jobs.types[row]) >> t & 1), default=0)
        level = 1 if size <= int(view.nodes.gpus.max(initial=1)) else 2
        speed = np.array([float(profile.rate(kind, fastest, size, level)) for kind in kinds])
        return np.asarray(work / self.epochs * float(jobs.reference_rate[row]) / np.maximum(speed, 1e-9))

    def wake_at(self, view: View) -> float | None:
        return (self._round + 1) * self.round_s if len(view.jobs) else None

    def state(self) -> dict[str, Any]:
        return {
            "remaining": self._remaining.state(),
            "schedule": self._schedule,
            "planned": self._planned,
            "round": self._round,
            "seen": [[i, seen] for i, seen in self._seen.items()],
            "fair": [[i, [list(point) for point in fair.series]] for i, fair in self._fair.items()],
            "keys": [[i, key] for i, key in self._keys.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._remaining.restore(state["remaining"])
        self._schedule, self._planned = [list(jobs) for jobs in state["schedule"]], list(state["planned"])
        self._round = int(state["round"])
        self._seen = {int(i): list(seen) for i, seen in state["seen"]}
        self._fair = {int(i): FairFinish([(at, value) for at, value in series]) for i, series in state["fair"]}
        self._keys = {int(i): float(key) for i, key in state["keys"]}
