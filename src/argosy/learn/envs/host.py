"""The engine inside an environment: it runs to the learner's next decision, and measures rewards and results."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import View
from argosy.errors import InputError
from argosy.learn.envs.bid_policy import BidEnvPolicy
from argosy.learn.envs.env_policy import EnvPolicy, as_driver
from argosy.learn.envs.source import Source
from argosy.mechanism.bids import Bids
from argosy.policies.base import Floats, Policy, Sizes
from argosy.policies.common.time_slots import slot_at
from argosy.sim.engine import Engine
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
        if autopilot and under is None:
            raise InputError("autopilot needs a policy that decides", hint="name one: under='drf'")
        self.source, self.trace = source, trace
        self.slot_s, self.reward_kind = slot_s, reward
        self.driver = as_driver(under) if autopilot and under is not None else None
        self.env_policy: EnvPolicy | None = None
        self.bid_policy = BidEnvPolicy(under) if bidding and not autopilot else None
        if not autopilot and not bidding:
            self.env_policy = EnvPolicy(under, slot_s=slot_s, sizing=sizing, newcomers=newcomers, cap=cap)
        policy = self.driver or self.env_policy or self.bid_policy
        assert policy is not None
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
        while engine.advance():
            engine.ask()  # the environment policy answers, and the learner's answer replaces it
            if not self.slot_s:
                return True
            slot = slot_at(engine.now, self.slot_s)
            if slot != self._slot and len(engine.view.jobs):
                self._slot = slot
                return True
        return False

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

    # -- rewards and results --------------------------------------------------------------------------------------

    def reward(self) -> float:
        """Return the reward since the last call."""
        if self.reward_kind == "jobs":
            return -float(np.count_nonzero(self._present()))
        total = self._total()
        gained, self._before = total - self._before, total
        return gained

    def _total(self) -> float:
        """Return the normalised progress of all jobs, or minus the hours that all have spent in the system so far."""
        engine, here = self.engine, self._present()
        finish = engine.finish_times
        ended = ~np.isnan(finish)
        if self.reward_kind == "progress":
            return float(np.count_nonzero(ended) + engine.jobs.progress[here].sum())
        spent = (finish - engine.submit_times)[ended].sum()
        return -float(spent + (engine.now - engine.jobs.submitted[here]).sum()) / 3600.0

    def gained(self) -> Floats:
        """Return the progress of each job of the trace since the last call."""
        jobs, finish, here = self.engine.jobs, self.engine.finish_times, self._present()
        now = np.zeros(len(self._progress))
        now[: len(finish)] = ~np.isnan(finish)
        now[jobs.index[here]] = jobs.progress[here]
        gained, self._progress = now - self._progress, now
        return gained

    def _present(self) -> NDArray[np.bool_]:
        """Return which rows of the engine's table hold a job; one that has just ended may still have its row."""
        return self.engine.jobs.present()

    def result(self) -> Result:
        return self.engine.result()

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the run as if it ended now, over the jobs that its scenario measures."""
        return metrics(self.result(), window=self.source.window(self.trace))
