"""Step PettingZoo environments in which several agents act at once; each agent gets a rollout of the same length.

Masks are taken from the observations (`{"observation": …, "action_mask": …}`), from `infos[agent]["action_mask"]`, or
from `action_masks()` by agent. All agents must be present from the first step to the last. The time is read from the
first agent's info, as in `argosy.learn.algorithms.env_stepper`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.algorithms.acting import Act, Masks
from argosy.learn.algorithms.record import Record, Step
from argosy.learn.algorithms.rollout import Rollout, join

Rollouts = dict[str, Rollout]


class TeamStepper:
    """Steps one environment with several agents, and records the steps of each."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.agents: list[str] = list(env.possible_agents)
        self.records = {agent: Record() for agent in self.agents}
        self.over = True

    @property
    def record(self) -> Record:
        """Return one agent's record; the records of all agents have the same length."""
        return self.records[self.agents[0]]

    def reset(self, seed: int | None = None) -> None:
        """Begin a new episode."""
        seen, infos = self.env.reset(seed=seed)
        first = infos.get(self.agents[0], {})
        self.timed, self.time = "now" in first, float(first.get("now", 0.0))
        self.arrivals = int(first.get("trace_seed", -1 if seed is None else seed))
        self.over = False
        self._see(seen, infos)

    def _see(self, seen: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        if set(seen) != set(self.agents):
            raise InputError(
                f"the agents {sorted(set(self.agents) ^ set(seen))} join or leave within an episode",
                hint="all agents must be present from the first step to the last",
            )
        by_agent = self.env.action_masks() if hasattr(self.env, "action_masks") else {}
        self.observation: dict[str, NDArray[np.float32]] = {}
        self.mask: dict[str, Masks] = {}
        for agent in self.agents:
            shown, mask = seen[agent], infos.get(agent, {}).get("action_mask", by_agent.get(agent))
            if isinstance(shown, Mapping):
                shown, mask = shown["observation"], shown.get("action_mask", mask)
            self.observation[agent] = np.array(shown, np.float32)
            every = np.ones(int(self.env.action_space(agent).n), np.bool_)
            self.mask[agent] = every if mask is None else np.array(mask, np.bool_)

    def step(self, actions: Mapping[str, tuple[int, float]]) -> None:
        """Take one action of every agent; each comes with its log-probability."""
        seen, rewards, ends, cuts, infos = self.env.step({agent: action for agent, (action, _) in actions.items()})
        terminated = all(ends.values())
        truncated = not terminated and (any(cuts.values()) or any(ends.values()))
        self.over = terminated or truncated
        told = infos[self.agents[0]]
        passes = "now" in told or not self.timed or self.over
        dt = 0.0 if not passes else float(told.get("now", self.time)) - self.time if self.timed else 1.0
        for agent, (action, log_prob) in actions.items():
            seen_now, reward = self.observation[agent], float(rewards[agent])
            self.records[agent].add(
                Step(seen_now, self.mask[agent], action, log_prob, reward, terminated, truncated, passes, self.time, dt)
            )
        self.time += dt
        self._see(seen, infos)
        if self.over:
            self.end()

    def end(self) -> None:
        """End the recorded part of an episode."""
        for agent, record in self.records.items():
            record.end(self.observation[agent], self.mask[agent], self.arrivals)


class TeamCollector:
    """Steps environments that continue from one rollout to the next, and are reset when an episode ends."""

    def __init__(self, envs: Sequence[Any], *, seeds: Sequence[int]) -> None:
        self._steppers = _steppers(envs, seeds)

    def collect(self, acts: Mapping[str, Act], *, steps: int) -> Rollouts:
        """Return this many steps of each environment."""

        def unfinished(stepper: TeamStepper) -> bool:
            more = len(stepper.record.steps) < steps
            if more and stepper.over:
                stepper.reset()
            return more

        return _run(self._steppers, acts, unfinished)


def team_episodes(envs: Sequence[Any], acts: Mapping[str, Act], seeds: Sequence[int]) -> Rollouts:
    """Return one whole episode of each environment."""
    return _run(_steppers(envs, seeds), acts, lambda stepper: not stepper.over)


def _steppers(envs: Sequence[Any], seeds: Sequence[int]) -> list[TeamStepper]:
    if not envs or len(seeds) != len(envs):
        raise InputError(f"there are {len(envs)} environments and {len(seeds)} seeds", hint="give one seed to each")
    steppers = [TeamStepper(env) for env in envs]
    for stepper, seed in zip(steppers, seeds):
        stepper.reset(seed)
    return steppers


def _run(steppers: list[TeamStepper], acts: Mapping[str, Act], unfinished: Callable[[TeamStepper], bool]) -> Rollouts:
    agents = steppers[0].agents
    if set(acts) != set(agents):
        raise InputError(f"the agents are {', '.join(agents)}, but networks are given for {', '.join(acts)}")
    while active := [stepper for stepper in steppers if unfinished(stepper)]:
        chosen: list[dict[str, tuple[int, float]]] = [{} for _ in active]
        for agent in agents:
            actions, logs = acts[agent](
                np.stack([stepper.observation[agent] for stepper in active]),
                np.stack([stepper.mask[agent] for stepper in active]),
            )
            for choice, action, log_prob in zip(chosen, actions.tolist(), logs.tolist()):
                choice[agent] = action, log_prob
        for stepper, choice in zip(active, chosen):
            stepper.step(choice)
    for stepper in steppers:
        stepper.end()
    taken = {agent: [stepper.records[agent].take() for stepper in steppers] for agent in agents}
    return {agent: join([rollout for rollout in taken[agent] if rollout is not None]) for agent in agents}
