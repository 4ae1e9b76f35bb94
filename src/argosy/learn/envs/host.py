"""The engine inside an environment: it runs to the learner's next decision, and measures rewards and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.learn.envs.bid_policy import BidEnvPolicy
from argosy.learn.envs.env_policy import EnvPolicy, as_driver
from argosy.learn.envs.source import Source
from argosy.mechanism.bids import Bids
from argosy.policies.base import Floats, Policy, Sizes
from argosy.policies.common.spare_gpus import SEES as SPARE_SEES
from argosy.policies.common.spare_gpus import SpareGpus
from argosy.policies.common.time_slots import slot_at
from argosy.policies.grow_when_spare import GrowWhenSpare
from argosy.sim.engine import Engine
from argosy.sim.gang_start import start_gang
from argosy.sim.metrics import metrics
from argosy.sim.result import Result
from argosy.workload.trace import Trace

REWARDS = ("progress", "jobs", "jct")


class Host:
    """Runs the engine to the learner's decisions: the first one in each time slot, or (`slot_s` 0) all of them."""

    def __init__(
        self,
        source: Source,
        trace: Trace,
        seed: int,
        *,
        slot_s: float,
        sizing: bool,
        reward: str,
        under: Policy | None,
        autopilot: bool,
        newcomers: str = "wait",
        cap: int = 1,
        bidding: bool = False,
    ) -> None:
        """Set up a run. `bidding`: the learner's answers are bids; otherwise they are an order and sizes."""
        from argosy.learn.envs.kernels.times import times_in_system  # imports Numba

        if autopilot and under is None:
            raise InputError("autopilot needs a policy that decides", hint="name one: under='drf'")
        self._times_in_system, (self._times, self._ages) = times_in_system, np.zeros((2, len(trace)))  # scratch
        self.source, self.trace = source, trace
        self.spare: SpareGpus | None = None
        if isinstance(under, GrowWhenSpare) and not autopilot:  # the learner stands in place of the policy inside it
            if not sizing or bidding:
                hint = "use mode='size', or autopilot=True"
                raise InputError("grow-when-spare adds GPUs to sizes, which this learner does not decide", hint=hint)
            self.spare, under = under.spare, under.inner
        self.slot_s, self.reward_kind = slot_s, reward
        self.driver = as_driver(under) if autopilot and under is not None else None
        self.env_policy: EnvPolicy | None = None
        self.bid_policy = BidEnvPolicy(under) if bidding and not autopilot else None
        if not autopilot and not bidding:
            self.env_policy = EnvPolicy(under, slot_s=slot_s, sizing=sizing, newcomers=newcomers, cap=cap)
        policy = self.driver or self.env_policy or self.bid_policy
        assert policy is not None
        if self.spare is not None:
            policy.uses = policy.uses | SPARE_SEES
        self.engine = Engine(trace, source.cluster, policy, source.settings.with_seed(seed))
        self._slot = -1
        self._before = self._total()
        self._progress = np.zeros(len(trace))

    @property
    def view(self) -> View:
        return self.engine.view

    def next(self) -> bool:
        """Let time pass until the learner is to decide; return False when the run is over."""
        engine = self.engine
        while self._advance():
            engine.ask()  # the environment policy answers, and the learner's answer replaces it
            if not self.slot_s:
                return True
            slot = slot_at(engine.now, self.slot_s)
            if slot != self._slot and len(engine.view.jobs):
                self._slot = slot
                return True
        return False

    def _advance(self) -> bool:
        """Let time pass until the next decision; spare GPUs are added to the last one."""
        engine = self.engine
        if self.spare is not None and engine.is_decided:
            engine.refresh_view()
            self.spare.without(engine.view)
            key, sizes = engine.decided
            more = self.spare.extend(engine.view, key, sizes, preemptive=engine.policy.preemptive)
            engine.enlarge(more, self.spare.wake_at(engine.now))
        return engine.advance()

    def answer(self, key: Floats, sizes: Sizes, wake_at: float | None = None) -> None:
        """Give the learner's answer instead of the environment policy's, whose timers stay."""
        times = [t for t in (wake_at, self.env_policy.wake if self.env_policy else None) if t is not None]
        self.engine.decide(key, sizes, min(times, default=None))

    def amend(self, rows: int | slice, key: Any, workers: Any, servers: Any, wake_at: float | None = None) -> None:
        """Change the last answer for some jobs, whose sizes are known to be right; the environment's timers stay."""
        timer = self.env_policy.wake if self.env_policy is not None else None
        if timer is not None:
            wake_at = timer if wake_at is None else min(timer, wake_at)
        self.engine.amend(rows, key, workers, servers, wake_at)

    def bid(self, bids: Bids) -> None:
        """Give the learner's bids; the timers of the environment policy stay."""
        assert self.bid_policy is not None
        self.engine.decide(bids, None, self.bid_policy.wake)

    def apply(self) -> None:
        """Carry out the last answer now, and let no time pass."""
        self.engine.apply()

    def start(self, row: int, named: Sequence[tuple[int, int]]) -> None:
        """Start a waiting job with so many GPUs on each node named, unless its queue is at its limit."""
        start_gang(self.engine, row, named)

    # -- rewards and results --------------------------------------------------------------------------------------

    def reward(self) -> float:
        """Return the reward since the last call."""
        if self.reward_kind == "jobs":
            return -float(len(self.engine.jobs))
        total = self._total()
        gained, self._before = total - self._before, total
        return gained

    def _total(self) -> float:
        """Return the normalised progress of all jobs, or minus the hours that all have spent in the system so far."""
        engine, jobs = self.engine, self.engine.full_columns
        finish, here = engine.finish_times, len(engine.jobs)  # rows without gaps: environments are not static
        if self.reward_kind == "progress":
            return float(np.count_nonzero(finish == finish) + np.add.reduce(jobs.progress[:here]))
        times, ages, jobs_here = self._times, self._ages, jobs.submitted[:here]
        ended = self._times_in_system(finish, engine.submit_times, times, engine.now, jobs_here, ages)
        return -float(np.add.reduce(times[:ended]) + np.add.reduce(ages[:here])) / 3600.0

    def gained(self) -> Floats:
        """Return the progress of each job of the trace since the last call."""
        jobs, finish = self.engine.jobs, self.engine.finish_times
        now = np.zeros(len(self._progress))
        now[: len(finish)] = ~np.isnan(finish)
        now[jobs.index] = jobs.progress
        gained, self._progress = now - self._progress, now
        return gained

    def result(self) -> Result:
        return self.engine.result()

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the run as if it ended now, over the jobs that its scenario measures."""
        return metrics(self.result(), window=self.source.window(self.trace))
