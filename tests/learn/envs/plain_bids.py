"""The table of bids in plain NumPy: the specification of the compiled one in `argosy.learn.envs.bidding`."""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import JobState
from argosy.learn.envs.bidding import GOES_ON, LARGEST_LOG, PRIOR, BidTable
from argosy.learn.envs.host import Host
from argosy.mechanism.bids import Bids
from argosy.mechanism.kernels import layout as L
from argosy.policies.common.candidates import CandidateTable
from argosy.policies.common.remaining_work import RemainingWork
from argosy.policies.learned.bid_features import BidFeatureReader
from argosy.policies.learned.features import JobTypes


class PlainBidTable(BidTable):
    """Computes the features of all bids, and shows those that find a row."""

    def reset(self, host: Host, types: JobTypes) -> None:
        self.host, self.faithful = host, True
        self.clear()
        self._candidates = CandidateTable(host.engine.context)
        self._features = BidFeatureReader(host.engine.context)
        self._remaining = RemainingWork(PRIOR)
        self._known: set[int] = set()

    def begin(self) -> bool:
        view = self.host.view
        self._learn()
        self.clear()
        if len(view.jobs):
            self._bids = self._candidates.of(view)
            self._find()
            self._show()
        if not self.shown:
            nobody = np.zeros(0, np.int64)
            self.host.bid(Bids(nobody, nobody, nobody, np.zeros(0)))
        return self.shown > 0

    def _learn(self) -> None:
        """Learn the lengths of the jobs that have ended by themselves since the last decision."""
        w = self.host.engine.world
        by_itself = np.isin(w.rs[L.R_STATUS], [L.ENDED_COMPLETED, L.ENDED_FAILED, L.ENDED_KILLED])
        for index in np.flatnonzero(by_itself & ~np.isnan(w.rs[L.R_FINISH])).tolist():
            if index not in self._known:
                self._known.add(index)
                self._remaining.learn([w.rs[L.R_DONE, index]], [w.tr[L.GPUS, index]])

    def _find(self) -> None:
        c, jobs = self._bids, self.host.view.jobs
        order = np.lexsort((jobs.index, jobs.state == JobState.WAITING))
        self._row_of = np.full(len(c.job), -1)
        number = 0
        for s in order.tolist():
            own = np.flatnonzero(c.job == s)
            if len(own) and self.shown + len(own) <= self.rows and number < self._most_jobs:
                rows = self.shown + np.arange(len(own))
                self._row_of[own], self.numbers[rows], self.mask[rows] = rows, number, True
                self.shown, number = self.shown + len(own), number + 1

    def _show(self) -> None:
        c, features = self._bids, self._features.read(self.host.view, self._bids, self._remaining.of(self.host.view))
        for b, row in enumerate(self._row_of.tolist()):
            if row >= 0:
                parts = ([self.numbers[row] / self.rows], features.bid[b], features.job[c.job[b]], features.cluster)
                self.observation[row] = np.concatenate(parts)

    def accept(self, action: Any, *, strict: bool) -> tuple[bool, bool]:
        c, logs = self._bids, np.clip(np.asarray(action, np.float32).astype(np.float64), -LARGEST_LOG, LARGEST_LOG)
        shown, log = self._row_of >= 0, logs[self._row_of]
        value = np.where(shown, np.exp(log) * self.host.view.jobs.weight[c.job], GOES_ON)
        bids = np.where(shown, log > -LARGEST_LOG, c.present)
        self.host.bid(Bids(c.job[bids], c.type[bids], c.workers[bids], value[bids], c.servers[bids]))
        return True, False
