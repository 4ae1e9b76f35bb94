"""Quasi-shortest service first: the smallest predicted GPU-time first, learned from past jobs.

Decision: of the jobs that wait, the one with the smallest product of GPUs and predicted duration starts first; what
runs is left alone. A prediction is made when a job arrives, and again for all jobs when the trees are refreshed.
State used: demands (user, queue, kind, GPUs, submit time), and how long the jobs that ended have run, over all
their runs if faults interrupted them.
Parameters: `blend`, the weight of the rolling mean against the trees; `decay`, the weight of a run relative to the
next newer one of its kind; `refresh_s`, how often the trees are fitted.
Differences from the paper: names are not seen, so "similar name" is the same kind (model and batch); the decay, the
blend and the trees' settings are ours. Withdrawn jobs teach nothing; failed and killed ones count like others.
References: Hu et al., Characterization and prediction of deep learning workloads in large-scale GPU datacenters,
SC'21 (Helios). The prediction is in _durations.py.

    key(j) = gpus(j) · (blend · rolling(j) + (1 − blend) · trees(j))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies._durations import Durations
from argosy.policies.base import Event, Floats, Policy, register

BEGINS = frozenset({"start", "resume", "migrate", "resize"})
STOPS = frozenset({"preempt", "pause", "evict", "crash"})
ENDS = frozenset({"finish", "fail", "kill"})


@register("qssf", "smallest predicted GPU-time first; learns durations from jobs that ended", "Hu et al., SC'21")
class Qssf(Policy):
    uses = frozenset({"demand", "history"})

    def __init__(self, blend: float = 0.5, decay: float = 0.8, refresh_s: float = 86400.0) -> None:
        if not 0 <= blend <= 1:
            raise InputError(f"qssf: blend must be from 0 to 1, is {blend}")
        if not 0 < decay <= 1:
            raise InputError(f"qssf: decay must be above 0 and at most 1, is {decay}")
        if not refresh_s > 0:
            raise InputError(f"qssf: refresh_s must be > 0, is {refresh_s}")
        self.blend, self.decay, self.refresh_s = blend, decay, refresh_s

    def reset(self, context: Context) -> None:
        self._durations = Durations(self.blend, self.decay, self.refresh_s)
        self._expected_s = np.full(1024, np.nan)  # by job; NaN: not met yet

    def on_event(self, event: Event) -> None:
        if event.kind in BEGINS:
            self._durations.begins(event.job, event.time)
        elif event.kind in STOPS:
            self._durations.stops(event.job, event.time)
        elif event.kind in ENDS:
            self._durations.ends(event.job, event.time)
        elif event.kind == "cancel":
            self._durations.forget(event.job)

    def rank(self, view: View) -> Floats:
        jobs = view.jobs
        self._make_room(int(jobs.index.max(initial=0)))
        new = np.flatnonzero(np.isnan(self._expected_s[jobs.index]))
        traits = (jobs.index, jobs.user, jobs.queue, jobs.kind, jobs.gpus, jobs.submitted)
        for job in zip(*(column[new].tolist() for column in traits)):
            self._durations.meet(*job)
        rows = np.arange(len(jobs)) if self._durations.refresh(view.now) else new
        if len(rows):
            self._expected_s[jobs.index[rows]] = self._durations.expect(jobs.index[rows].tolist())
        return np.asarray(jobs.gpus * self._expected_s[jobs.index])

    def _make_room(self, job: int) -> None:
        while job >= len(self._expected_s):
            self._expected_s = np.concatenate([self._expected_s, np.full(len(self._expected_s), np.nan)])

    def state(self) -> dict[str, Any]:
        met = self._durations.met()
        return {"durations": self._durations.state(), "expected_s": [met, self._expected_s[met].tolist()]}

    def restore(self, state: dict[str, Any]) -> None:
        self._durations.restore(state["durations"])
        jobs, expected_s = state["expected_s"]
        self._make_room(max(jobs, default=0))
        self._expected_s[jobs] = expected_s
