"""The mode "bid" for two agents that work together, as a PettingZoo environment: one values jobs, the other their bids.

    jobs    an action has a number for each job: the logarithm of how much the job counts against others
    sizes   an action has a number for each bid: the logarithm of what this size on this GPU type is worth to its job

The value of a bid is the product of both, times the job's weight (`argosy.learn.envs.bidding`). Both agents act at
every step, which is a whole decision, and both get its reward. The agent `jobs` sees a row for each job that is shown:
the features of the job and of the cluster. The agent `sizes` sees the table of the mode "bid"; the first number of a
row times the number of rows is the row of its job in the other table. Masks are in `infos[agent]["action_mask"]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from argosy.errors import InputError
from argosy.learn.envs.bidding import LARGEST_LOG, BidTable
from argosy.learn.envs.episodes import TRAINING_SEEDS, Episodes, check_positive
from argosy.learn.envs.source import Source
from argosy.policies.learned.bid_features import BID, CLUSTER, JOB
from argosy.policies.learned.features import MOST
from argosy.sim.result import Result

JOBS, SIZES = AGENTS = ("jobs", "sizes")
Values = NDArray[np.float32]


class BidPairEnv(ParallelEnv[str, Values, Values]):  # type: ignore[misc]
    """Both agents act at every step (PettingZoo's parallel interface)."""

    metadata = {"name": "argosy_bids_v0", "render_modes": []}  # noqa: RUF012 - as pettingzoo declares it

    def __init__(
        self,
        scenario: str | Source = "mixed",
        *,
        jobs: int = 40,
        bids: int = 256,
        reward: str = "jct",
        seeds: tuple[int, int] = TRAINING_SEEDS,
        max_decisions: int | None = None,
        metrics: bool = True,
    ) -> None:
        """Make an environment with `jobs` rows for the first agent and `bids` rows for the second.

        Of jobs that find no row for themselves or for all their bids none is shown. `metrics`: the last infos of an
        episode have all metrics of the run.
        """
        check_positive(jobs=jobs, bids=bids)
        self.episodes = Episodes(scenario, reward=reward, types=("any",), seeds=seeds, max_decisions=max_decisions)
        self.action_table = BidTable(bids, jobs)
        self._of_jobs = np.zeros((jobs, len(JOB) + len(CLUSTER)), np.float32)
        self._job_mask = np.zeros(jobs, np.bool_)
        self.possible_agents, self.agents, self.render_mode = list(AGENTS), list[str](), None
        self._seen = {JOBS: spaces.Box(-MOST, MOST, self._of_jobs.shape, np.float32)}
        self._seen[SIZES] = self.action_table.observation_space(flat=False)
        rows = {JOBS: jobs, SIZES: bids}
        self._acts = {a: spaces.Box(-LARGEST_LOG, LARGEST_LOG, (rows[a],), np.float32) for a in AGENTS}
        self._draws, self._metrics = np.random.default_rng(), metrics

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._seen[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._acts[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Values], dict[str, dict[str, Any]]]:
        if seed is not None:
            self._draws = np.random.default_rng(seed)
        self.trace_seed = self.episodes.begin(self.action_table, seed, options, self._draws)
        self.agents = list(AGENTS)
        return self._observe(), self._infos({"trace_seed": self.trace_seed, "now": self.episodes.host.engine.now})

    def step(
        self, actions: dict[str, Values]
    ) -> tuple[dict[str, Values], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        if not self.agents:
            raise InputError("the episode is over, or has not begun", hint="call reset()")
        for agent in AGENTS:
            if agent not in actions:
                raise InputError(f"the agent {agent!r} must act now, but no action is given for it")
        of_jobs = np.asarray(actions[JOBS], np.float32)
        if of_jobs.shape != self._job_mask.shape:
            wanted = len(self._job_mask)
            raise InputError(f"the agent {JOBS!r} needs a number for each of the {wanted} rows, not {of_jobs.shape}")
        table = self.action_table
        logs = np.asarray(actions[SIZES], np.float32)
        if logs.shape == (table.rows,):
            logs = np.where(table.mask & (logs > -LARGEST_LOG), logs + of_jobs[table.numbers], -LARGEST_LOG)
        table.accept(logs, strict=True)
        terminated, truncated = self.episodes.proceed()
        host = self.episodes.host
        reward = host.reward()
        news: dict[str, Any] = {"now": host.engine.now}
        if terminated:
            table.clear()
        if terminated or truncated:
            self.agents = []
            if self._metrics:
                news["metrics"] = host.metrics()
        over, cut = dict.fromkeys(AGENTS, terminated), dict.fromkeys(AGENTS, truncated)
        return self._observe(), dict.fromkeys(AGENTS, reward), over, cut, self._infos(news)

    def _observe(self) -> dict[str, Values]:
        """Take the rows of jobs from the first bid of each."""
        from argosy.learn.envs.kernels.bid_rows import show_jobs  # imports Numba

        table = self.action_table
        show_jobs(table.shown, table.numbers, 1 + len(BID), table.observation, self._of_jobs, self._job_mask)
        return {JOBS: self._of_jobs.copy(), SIZES: table.observation.copy()}

    def _infos(self, news: dict[str, Any]) -> dict[str, dict[str, Any]]:
        masks = {JOBS: self._job_mask, SIZES: self.action_table.mask}
        return {a: {"action_mask": masks[a].astype(np.int8), **news} for a in AGENTS}

    def result(self) -> Result:
        """Return the result of the run so far."""
        return self.episodes.host.result()
