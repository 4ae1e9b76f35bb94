"""The simulator for two agents that work together, as PettingZoo environments: an ordering and a placement agent.

`PairEnv` is parallel: both agents act at every step, and the action of the agent whose turn it is not is ignored; its
mask allows only its last action. `PairAecEnv` lets one agent act after the other (AEC). `argosy.learn.envs.placing`
explains the actions. Both agents get the same reward, with the action after which time passes; its kinds are those of
`argosy.learn.envs.cluster`, and seeds those of `argosy.learn.envs.episodes`. Masks are in
`infos[agent]["action_mask"]`; after `reset`, and when time has passed, `infos[agent]["now"]` is the time. A masked
action of the ordering agent ends the decision; one of the placement agent means the first possible node. Unknown
options are ignored, as PettingZoo's own test demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv

from argosy.errors import InputError
from argosy.learn.envs.episodes import TRAINING_SEEDS, Episodes, check_positive
from argosy.learn.envs.placing import PlacingTable
from argosy.learn.envs.source import Source
from argosy.policies.learned.features import MOST
from argosy.sim.result import Result

ORDER, PLACE = AGENTS = ("order", "place")
Observation = NDArray[np.float32]


class Pair:
    """The common part of both environments: the run, the agent that acts next, and rewards."""

    def __init__(
        self,
        scenario: str | Source = "philly-rigid",
        *,
        jobs: int = 40,
        reward: str = "jct",
        types: Sequence[str] | None = None,
        seeds: tuple[int, int] = TRAINING_SEEDS,
        max_decisions: int | None = None,
        metrics: bool = True,
    ) -> None:
        """Make the run of an environment; `metrics`: the last infos of an episode have all metrics of the run."""
        check_positive(jobs=jobs)
        self._metrics = metrics
        self.episodes = Episodes(scenario, reward=reward, types=types, seeds=seeds, max_decisions=max_decisions)
        nodes = self.episodes.source.cluster.nodes
        gpu_types = len(dict.fromkeys(node.gpu_type for node in nodes))
        self.action_table = table = PlacingTable(jobs, len(self.episodes.types), len(nodes), gpu_types)
        self.tables = {ORDER: table.observation, PLACE: table.node_observation}
        self.masks = {ORDER: table.mask, PLACE: table.node_mask}
        self.seen = {a: spaces.Box(0.0, MOST, self.tables[a].shape, np.float32) for a in AGENTS}
        self.acts = {a: spaces.Discrete(len(self.masks[a])) for a in AGENTS}
        self._draws = np.random.default_rng()

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        if seed is not None:
            self._draws = np.random.default_rng(seed)
        self.trace_seed = self.episodes.begin(self.action_table, seed, options, self._draws)
        self.terminated = self.truncated = False
        self._news: dict[str, Any] = {"trace_seed": self.trace_seed, "now": self.episodes.host.engine.now}

    @property
    def acting(self) -> str:
        """Return the agent that is to act next."""
        return ORDER if self.action_table.chosen is None else PLACE

    def act(self, action: int) -> float:
        """Take the action of the agent that is to act; return the reward of the time that passes, if any does."""
        table, acting = self.action_table, self.acting
        mask = self.masks[acting]
        if not 0 <= action < len(mask):
            raise InputError(f"the agent {acting!r} has no action {action}; its actions are 0..{len(mask) - 1}")
        if acting == PLACE:
            over = table.place(action if mask[action] else int(mask.argmax()))
        else:
            over = table.act(action if mask[action] else table.end)
        self._news = {}
        if not over:
            return 0.0
        self.terminated, self.truncated = self.episodes.proceed()
        host = self.episodes.host
        self._news["now"] = host.engine.now
        if self.terminated:
            table.clear()
            table.clear_nodes()
        if self._metrics and (self.terminated or self.truncated):
            self._news["metrics"] = host.metrics()
        return host.reward()

    def infos(self) -> dict[str, dict[str, Any]]:
        news = self._news
        return {agent: {"action_mask": mask.astype(np.int8), **news} for agent, mask in self.masks.items()}

    def result(self) -> Result:
        """Return the result of the run so far."""
        return self.episodes.host.result()


class _TwoAgents:
    """Names the agents and their spaces, for both of PettingZoo's interfaces."""

    def __init__(self, scenario: str | Source = "philly-rigid", **more: Any) -> None:
        """Make the environment; `more` are further arguments of `Pair`."""
        super().__init__()
        self.pair = Pair(scenario, **more)
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.render_mode = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.pair.seen[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.pair.acts[agent]


class PairEnv(_TwoAgents, ParallelEnv[str, Observation, int]):  # type: ignore[misc]
    """Both agents act at every step (PettingZoo's parallel interface)."""

    metadata = {"name": "argosy_pair_v0", "render_modes": []}  # noqa: RUF012 - as pettingzoo declares it

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        self.pair.reset(seed, options)
        self.agents = list(AGENTS)
        return self._observe(), self.pair.infos()

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        if not self.agents:
            raise InputError("the episode is over, or has not begun", hint="call reset()")
        pair, acting = self.pair, self.pair.acting
        if acting not in actions:
            raise InputError(f"the agent {acting!r} must act now, but no action is given for it")
        reward = pair.act(int(actions[acting]))
        infos = pair.infos()
        if pair.terminated or pair.truncated:
            self.agents = []
        over, cut = dict.fromkeys(AGENTS, pair.terminated), dict.fromkeys(AGENTS, pair.truncated)
        return self._observe(), dict.fromkeys(AGENTS, reward), over, cut, infos

    def _observe(self) -> dict[str, Observation]:
        return {agent: table.copy() for agent, table in self.pair.tables.items()}


class PairAecEnv(_TwoAgents, AECEnv[str, Observation, int]):  # type: ignore[misc]
    """One agent acts after the other (PettingZoo's AEC interface)."""

    metadata = {"name": "argosy_turns_v0", "render_modes": [], "is_parallelizable": False}  # noqa: RUF012

    def observe(self, agent: str) -> Observation:
        return self.pair.tables[agent].copy()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.pair.reset(seed, options)
        self.agents = list(AGENTS)
        self.rewards, self._cumulative_rewards = dict.fromkeys(AGENTS, 0.0), dict.fromkeys(AGENTS, 0.0)
        self._publish()
        self.agent_selection = self.pair.acting

    def _publish(self) -> None:
        pair = self.pair
        self.terminations = dict.fromkeys(AGENTS, pair.terminated)
        self.truncations = dict.fromkeys(AGENTS, pair.truncated)
        self.infos = pair.infos()

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if action is None:
            raise InputError(f"the agent {agent!r} must act", hint="None is for agents whose episode is over")
        self._cumulative_rewards[agent] = 0.0
        self.rewards = dict.fromkeys(AGENTS, self.pair.act(int(action)))
        self._publish()
        self.agent_selection = self.pair.acting
        self._accumulate_rewards()
