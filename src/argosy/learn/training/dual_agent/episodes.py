"""Episodes for PPO and SAC: runs in which orders and places are drawn, with everything that learning needs.

The ordering agent draws the first jobs of the order one after another, each with a probability that falls with its key
(Plackett and Luce; noise of Gumbel on the keys does it at once); the rest follow by key. The placement agent draws
places from the softmax of their scores. A step is one decision of the policy: an order and any number of places.

The reward of a step is by how much less than the baseline the run costs until the next step. The baseline is a run of
the same weights on the same jobs without draws: what the jobs themselves cost cancels, and the best policy is the same,
because no drawn decision changes the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from argosy.cluster.view import View
from argosy.learn.training.dual_agent.recipe import TRAINING_SEED, DualAgentRecipe
from argosy.learn.training.dual_agent.runs import cost_until, run
from argosy.mechanism.plan import Plan
from argosy.policies.base import Floats
from argosy.policies.dual_agent.agents import Agents
from argosy.policies.dual_agent.placer import Placer
from argosy.policies.dual_agent.places import Machines
from argosy.policies.dual_agent.policy import DualAgent
from argosy.seeding import stream
from argosy.sim.result import Result
from argosy.sim.timeline import Timeline

REWARD = 100.0  # rewards are per cents of what the baseline costs


@dataclass(slots=True)
class Place:
    """One draw of the placement agent."""

    row: int  # of the job
    places: Floats  # features of the places
    taken: int


@dataclass(slots=True)
class Step:
    """One decision."""

    time: float
    jobs: Floats  # features
    machines: Floats
    picks: list[int]  # the first jobs, in the order in which they were drawn
    places: list[Place] = field(default_factory=list)
    ahead: float = 0.0  # how many jobs more than the baseline are in the cluster
    reward: float = 0.0
    keep: float = 0.0  # what a reward after the next step counts; 0 at the end


class Drawing(DualAgent):
    """The policy while it learns."""

    name = "dual-agent, learning"

    def __init__(self, agents: Agents, draws: np.random.Generator, picks: int, heat: float) -> None:
        super().__init__(agents)
        self.draws, self.heat, self._picks = draws, heat, picks
        self.steps: list[Step] = []

    def order_jobs(self, jobs: Floats, machines: Floats) -> tuple[Floats, Floats]:
        key, message = super().order_jobs(jobs, machines)
        drawn = np.argsort(key / self.heat - self.draws.gumbel(size=len(key)), kind="stable")[: self._picks]
        rank = np.argsort(np.argsort(key, kind="stable"), kind="stable").astype(np.float64)
        rank[drawn] = np.arange(len(drawn)) - float(len(drawn))  # before all others
        self.steps.append(Step(0.0, jobs, machines, drawn.tolist()))
        return rank, message

    def placement_agent(self, view: View, machines: Machines, message: Floats) -> Placer:
        return DrawingPlacer(view, machines, self.network, message, self)

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        self.steps[-1].time = view.now
        return plan


class DrawingPlacer(Placer):
    """The placement agent while it learns."""

    def __init__(self, view: View, machines: Machines, network: Agents, message: Floats, policy: Drawing) -> None:
        super().__init__(view, machines, network, message)
        self._policy = policy

    def choose(self, places: Floats, row: int) -> int:
        if len(places) == 1:
            return 0
        scores = self.scores(places, row) / self._policy.heat
        taken = int(np.argmax(scores + self._policy.draws.gumbel(size=len(scores))))
        self._policy.steps[-1].places.append(Place(row, places, taken))
        return taken


def collect(recipe: DualAgentRecipe, agents: Agents, update: int, picks: int) -> list[list[Step]]:
    """Return the episodes of one update, as many runs as the recipe has, baselines included."""
    episodes: list[list[Step]] = []
    seeds = stream(recipe.seed, "dual-agent traces", update)
    for number in range(max(recipe.runs // (recipe.drawn + 1), 1)):
        name = recipe.scenarios[number % len(recipe.scenarios)]
        seed = TRAINING_SEED + int(seeds.integers(TRAINING_SEED))
        base = run(name, recipe.jobs, seed, DualAgent(agents))
        for again in range(recipe.drawn):
            draws = stream(recipe.seed, "dual-agent draws", update, number, again)
            policy = Drawing(agents, draws, picks, recipe.heat)
            result = run(name, recipe.jobs, seed, policy)
            reward(recipe, policy.steps, result, base)
            episodes.append(policy.steps)
    return episodes


def reward(recipe: DualAgentRecipe, steps: list[Step], ours: Result, base: Result) -> None:
    """Write the rewards into the steps of a run."""
    end = max(ours.end_s, base.end_s)
    times = np.array([step.time for step in steps] + [end])
    cost = np.diff(cost_until(ours, recipe, times) - cost_until(base, recipe, times))
    unit = REWARD / float(cost_until(base, recipe, np.array([end]))[0])
    keep = np.exp(-np.diff(times) / (3600.0 * recipe.horizon_h))
    keep[-1] = 0.0
    ahead = Timeline(ours).active.at(times) - Timeline(base).active.at(times)
    for step, more, factor, jobs in zip(steps, (-unit * cost).tolist(), keep.tolist(), ahead.tolist(), strict=False):
        step.reward, step.keep, step.ahead = more, factor, jobs
