"""Small environments whose best policy is known, for tests, for the documentation, and for trying algorithms.

    Bandit     one step, three arms, one of them masked
    Queue      jobs on one machine, slot by slot; shortest first is best
    Ledge      a walk in wind: a student that has only seen a calm teacher cannot return to the path
    Twins      two agents that must agree (PettingZoo)

Taking a masked action is an error.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

Seen = NDArray[np.float32]
Told = dict[str, Any]


class Bandit(gymnasium.Env[Seen, np.int64]):
    """A bandit whose arms pay 1 with different chances; the last would always pay, but is masked."""

    def __init__(self, chances: tuple[float, ...] = (0.2, 0.8)) -> None:
        self.chances = (*chances, 1.0)
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(len(self.chances))

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask: all arms but the last."""
        return np.arange(len(self.chances)) < len(self.chances) - 1

    def reset(self, *, seed: int | None = None, options: Told | None = None) -> tuple[Seen, Told]:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: np.int64 | int) -> tuple[Seen, float, bool, bool, Told]:
        assert self.action_masks()[action], "a masked arm was pulled"
        paid = float(self.np_random.random() < self.chances[int(action)])
        return np.ones(1, np.float32), paid, True, False, {}


class Queue(gymnasium.Env[Seen, np.int64]):
    """A queue of jobs that all arrive at the start, and one machine that does one unit of work in a slot.

    Action i gives the unit to job i, and the last action ends the slot; a slot takes `slot_s` seconds. A row shows the
    work that is left (unless `hidden`) and whether the job has the unit. The teacher always sees the work.

    Rewards: "jobs", minus the number of jobs in a slot, which sums to minus the sum of completion times in slots; or
    "progress", the share of a job's work that was done in the slot, which sums to the number of jobs.
    """

    slot_s = 60.0

    def __init__(
        self, works: tuple[int, ...] = (1, 2, 3), *, reward: str = "jobs", hidden: bool = False, limit: int = 50
    ) -> None:
        self.works, self.reward, self.hidden, self.limit = works, reward, hidden, limit
        self.observation_space = spaces.Box(0.0, 1.0, (len(works), 3), np.float32)
        self.action_space = spaces.Discrete(len(works) + 1)

    @property
    def best(self) -> float:
        """Return the largest possible sum of the rewards "jobs"."""
        return -float(np.cumsum(sorted(self.works)).sum())

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask: unfinished jobs, until the unit is given; ending the slot is always possible."""
        return np.append((self.left > 0) & (self.given < 0), True)

    def advice(self) -> int:
        """Return the job with the least work left, and then the action that ends the slot."""
        return len(self.left) if self.given >= 0 else int(np.where(self.left > 0, self.left, 99).argmin())

    def reset(self, *, seed: int | None = None, options: Told | None = None) -> tuple[Seen, Told]:
        super().reset(seed=seed)
        self.size = self.np_random.permutation(self.works)
        self.left = self.size.copy()
        self.given, self.slot = -1, 0
        return self._seen(), {"now": 0.0}

    def step(self, action: np.int64 | int) -> tuple[Seen, float, bool, bool, Told]:
        assert self.action_masks()[action], "a masked action was taken"
        if action < len(self.left):
            self.given = int(action)
            return self._seen(), 0.0, False, False, {}
        jobs, progress = -float(np.count_nonzero(self.left)), 0.0
        if self.given >= 0:
            self.left[self.given] -= 1
            progress = 1.0 / float(self.size[self.given])
        self.given, self.slot = -1, self.slot + 1
        reward, over = jobs if self.reward == "jobs" else progress, not self.left.any()
        return self._seen(), reward, over, not over and self.slot >= self.limit, {"now": self.slot * self.slot_s}

    def _seen(self) -> Seen:
        shown = np.minimum(self.left, 1) if self.hidden else self.left / max(self.works)
        return np.stack((shown, self.left > 0, np.arange(len(self.left)) == self.given), axis=1).astype(np.float32)


class Ledge(gymnasium.Env[Seen, np.int64]):
    """A path of `length` places. Wind may push the walker off the path, and it must then step back onto it.

    Actions: 0 goes ahead, 1 steps back to the path. With `calm` there is no wind: such demonstrations never show how to
    return to the path, which a student needs in the wind. Each place gained pays 1.
    """

    def __init__(self, length: int = 8, *, calm: bool = False, wind: float = 0.5) -> None:
        self.length, self.wind = length, 0.0 if calm else wind
        self.observation_space = spaces.Box(0.0, 1.0, (2 * length,), np.float32)
        self.action_space = spaces.Discrete(2)

    def advice(self) -> int:
        """Return the step back to the path when off it, and the step ahead otherwise."""
        return int(self.off)

    def reset(self, *, seed: int | None = None, options: Told | None = None) -> tuple[Seen, Told]:
        super().reset(seed=seed)
        self.place, self.off, self.steps = 0, False, 0
        return self._seen(), {}

    def step(self, action: np.int64 | int) -> tuple[Seen, float, bool, bool, Told]:
        before, self.steps = self.place, self.steps + 1
        if action == 1:
            self.off = False
        elif not self.off:
            self.place += 1
            self.off = bool(self.np_random.random() < self.wind)
        over = self.place >= self.length
        return self._seen(), float(self.place - before), over, not over and self.steps >= 3 * self.length, {}

    def _seen(self) -> Seen:
        seen = np.zeros(2 * self.length, np.float32)
        seen[min(self.place, self.length - 1) + self.length * self.off] = 1.0
        return seen


class Twins(ParallelEnv[str, Told, int]):  # type: ignore[misc]
    """Two agents see the same bit; both get 1 if both name it, 0.4 if both name the other bit, and 0 if they differ.

    A third action is masked. Masks are in the observations.
    """

    metadata = {"name": "argosy_twins_v0", "render_modes": []}  # noqa: RUF012 - as pettingzoo declares it

    def __init__(self, rounds: int = 4) -> None:
        self.rounds, self.render_mode = rounds, None
        self.possible_agents = ["castor", "pollux"]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Dict({"observation": spaces.Box(0, 1, (2,), np.float32), "action_mask": spaces.MultiBinary(3)})

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Told | None = None) -> tuple[dict[str, Told], dict[str, Told]]:
        if seed is not None or not hasattr(self, "_draws"):
            self._draws = np.random.default_rng(seed)
        self.agents, self.round = list(self.possible_agents), 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Told], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Told]]:
        one, other = (actions[agent] for agent in self.possible_agents)
        assert max(one, other) < 2, "a masked action was taken"
        reward = 0.0 if one != other else 1.0 if one == self.bit else 0.4
        self.round += 1
        over = self.round >= self.rounds
        agents = self.agents
        self.agents = [] if over else agents
        ends = dict.fromkeys(agents, over)
        return self._seen(), dict.fromkeys(agents, reward), ends, dict.fromkeys(agents, False), {a: {} for a in agents}

    def _seen(self) -> dict[str, Told]:
        self.bit = int(self._draws.integers(2))
        mask = np.array([1, 1, 0], np.int8)
        bits = np.eye(2, dtype=np.float32)[self.bit]
        return {agent: {"observation": bits, "action_mask": mask} for agent in self.possible_agents}
