"""The mode "bid": what each size on each GPU type is worth to each job; the mechanism takes the best set of bids.

A row is a bid, which is one size of one job on one GPU type that the job accepts. An action has a number for each row:
the natural logarithm of the bid's value, which counts times the job's weight. The mechanism takes at most one bid of
each job, within capacity, with the largest sum of values. So one step decides together who starts, who is resized, who
is preempted and who runs on which GPU type. A number of -60 or less withdraws the bid; a job without bids does not run.

Rows of a job follow each other. Running jobs come first, then jobs in order of arrival. Of jobs whose bids do not all
find a row no bid is shown: they wait, or go on as they are if they run. A row is

    its job's number among those shown / rows | features of the bid | of its job | of the cluster

with the features of the learned policies that bid (`argosy.policies.learned.bid_features`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.learn.envs.action_table import ActionTable
from argosy.learn.envs.bid_policy import NOBODY
from argosy.learn.envs.host import Host
from argosy.mechanism.bids import Bids
from argosy.policies.base import Ints
from argosy.policies.common.candidates import Candidates, CandidateTable
from argosy.policies.common.remaining_work import RemainingWork
from argosy.policies.learned.bid_features import BID, CLUSTER, JOB, BidFeatureReader
from argosy.policies.learned.features import MOST, JobTypes

LARGEST_LOG = 60.0  # the bounds of actions; at the lower one a bid is withdrawn
GOES_ON = float(np.exp(LARGEST_LOG + 10))  # the value of what a running job has whose bids are not shown
PRIOR = 20  # ended jobs that the prior distribution of lengths counts as
BID_COLUMNS = 1 + len(BID) + len(JOB) + len(CLUSTER)


class BidTable(ActionTable):
    """Shows bids as rows, and takes a value for each of them."""

    bidding = True
    lowest = -MOST

    def __init__(self, rows: int, jobs: int | None = None) -> None:
        """Make a table with `rows` bids of at most `jobs` jobs."""
        super().__init__(rows, 0, BID_COLUMNS, 1, 1)
        self._most_jobs = rows if jobs is None else jobs
        self.mask = np.zeros(rows, np.bool_)
        self.numbers = np.zeros(rows, np.int64)  # of each row's job among those that are shown
        self.shown = 0  # rows that hold a bid
        # columns of the bids that are shown
        self._columns = np.zeros((4, rows), np.int64), np.zeros((3, rows)), np.zeros(rows, np.bool_)
        self._log, self._worth = np.zeros((2, rows))  # of the last action

    def action_space(self) -> spaces.Space[Any]:
        return spaces.Box(-LARGEST_LOG, LARGEST_LOG, (self.rows,), np.float32)

    def clear(self) -> None:
        self.observation.fill(0.0)
        self.mask.fill(False)
        self.numbers.fill(0)
        self.shown = 0

    def reset(self, host: Host, types: JobTypes) -> None:
        from argosy.learn.envs.kernels import bid_rows  # imports Numba

        self.host, self.faithful, self._kernels = host, True, bid_rows
        self.clear()
        if host.bid_policy is not None:
            self._candidates = CandidateTable(host.engine.context)
            self._features = BidFeatureReader(host.engine.context)
            self._remaining, self._finished, self._log_row = RemainingWork(PRIOR), 0, 0

    def begin(self) -> bool:
        view = self.host.engine.full_view
        self._learn_lengths()
        if not len(view.jobs):
            self.host.bid(NOBODY)
            return False
        self._bids = self._candidates.of(view)
        left = self._remaining.of(view)
        self._find_rows(view)
        n = self.shown
        if not n:
            self.host.bid(NOBODY)
            return False
        counted, measured, present = self._columns
        job, gpu_type, workers, servers = counted[:, :n]
        gpus, speed, cost_s = measured[:, :n]
        shown = Candidates(job, gpu_type, workers, servers, gpus, speed, cost_s, present[:n])
        features = self._features.read(view, shown, left)
        self._kernels.show_rows(n, job, self.numbers, features.bid, features.job, features.cluster, self.observation)
        self._advice: NDArray[np.float32] | None = None
        return True

    def _learn_lengths(self) -> None:
        """Learn from jobs that have ended how much work others may have left."""
        engine = self.host.engine
        if engine.finished != self._finished:
            done_s, gpus, self._log_row = engine.ended_since(self._log_row)
            self._remaining.learn(done_s.tolist(), gpus.tolist())
            self._finished = engine.finished

    def _find_rows(self, view: View) -> None:
        """Find rows for the bids of as many jobs as possible."""
        c, jobs, n = self._bids, view.jobs, len(view.jobs)
        self._row_of = np.empty(len(c.job), np.int64)
        self.shown = self._kernels.find_rows(
            n,
            jobs.state,
            jobs.index[:n].argsort(),
            self._most_jobs,
            c.job,
            c.type,
            c.workers,
            c.servers,
            c.gpus,
            c.speed,
            c.overhead_s,
            c.present,
            np.empty(n + 1, np.int64),
            self._row_of,
            self.numbers,
            self.mask,
            *self._columns,
        )

    @property
    def bids(self) -> Candidates:
        """Return all bids of this decision, those that are not shown included."""
        return self._bids

    @property
    def row_of(self) -> Ints:
        """Return the row that shows each of `bids`; -1: none does."""
        return self._row_of

    def idle(self) -> NDArray[np.float32]:
        return np.zeros(self.rows, np.float32)

    def accept(self, action: Any, *, strict: bool) -> tuple[bool, bool]:
        logs = np.asarray(action, np.float32)
        if logs.shape != (self.rows,):
            raise InputError(
                f"an action needs a number for each of the {self.rows} rows, but its shape is {logs.shape}"
            )
        nan = self._kernels.bounded(self.shown, logs, LARGEST_LOG, self._log)
        if nan >= 0:
            raise InputError(f"the value of the bid in row {nan} is NaN", hint="an action has the logarithms of values")
        self._answer(logs)
        return True, False

    def _answer(self, logs: NDArray[np.float32]) -> None:
        """Give the bids to the mechanism; the policy's own where the action is its advice, which is rounded."""
        policy = self.host.bid_policy
        assert policy is not None
        if policy.advised is not None and self._is_advice(logs):
            self.host.bid(policy.advised)
            return
        self.faithful &= policy.under is None
        c, n = self._bids, self.shown
        np.exp(self._log[:n], out=self._worth[:n])
        columns, value = np.empty((4, len(c.job)), np.int64), np.empty(len(c.job))
        made = self._kernels.make_bids(
            self._row_of,
            self._log,
            self._worth,
            LARGEST_LOG,
            GOES_ON,
            self.host.engine.full_columns.weight,
            c.job,
            c.type,
            c.workers,
            c.servers,
            c.present,
            columns,
            value,
        )
        job, gpu_type, workers, servers = columns[:, :made]
        self.host.bid(Bids(job, gpu_type, workers, value[:made], servers))

    def _is_advice(self, logs: NDArray[np.float32]) -> bool:
        """Return whether an action is what the policy under the learner would do, and that can be expressed."""
        advice, n = self.advice(), self.shown
        return self._expressible and bool((logs[:n] == advice[:n]).all())

    def advice(self) -> NDArray[np.float32]:
        """Return the logarithms of the values of the policy under the learner."""
        if self._advice is not None:
            return self._advice
        policy, c = self.host.bid_policy, self._bids
        advised = policy.advised if policy is not None else None
        if advised is None:
            raise InputError("there is no policy to follow", hint="name one that bids: under='joint'")
        servers = np.zeros(len(advised), np.int64) if advised.servers is None else advised.servers
        own = np.ones(len(advised), bool) if advised.partner is None else advised.partner < 0  # not to share GPUs
        columns = (advised.job, advised.type, advised.workers, servers)
        bids = zip(*(column[own].tolist() for column in columns))
        known = dict(zip(bids, advised.value[own].tolist()))
        rows = list(zip(*(column.tolist() for column in (c.job, c.type, c.workers, c.servers))))
        values = np.array([known.get(row, 0.0) for row in rows])
        shown = self._row_of >= 0
        self._expressible = bool(shown.all()) and known.keys() <= set(rows)
        with np.errstate(divide="ignore"):  # a bid that the policy does not make is withdrawn
            log = np.clip(np.log(values / self.host.view.jobs.weight[c.job]), -LARGEST_LOG, LARGEST_LOG)
        self._advice = np.zeros(self.rows, np.float32)
        self._advice[self._row_of[shown]] = log[shown]
        return self._advice
