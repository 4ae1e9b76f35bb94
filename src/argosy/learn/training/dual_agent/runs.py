"""Runs of the dual-agent scheduler in scenarios, and what they cost: completion times, fees and energy.

    cost of a run = minutes + fee · dollars + energy · kilowatt-hours        all three for each job

A fee is the price of the GPUs that a job holds for the time that it holds them. Clusters whose file gives no prices and
no watts get those of `priced`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from argosy.cluster.cluster import Cluster
from argosy.learn.training.dual_agent.recipe import DualAgentRecipe
from argosy.policies.base import Floats, Policy
from argosy.policies.dual_agent.agents import Agents
from argosy.policies.dual_agent.policy import DualAgent
from argosy.scenario import Scenario, read_scenario
from argosy.sim.metrics import metrics
from argosy.sim.result import Result
from argosy.sim.run import simulate
from argosy.sim.timeline import Steps, Timeline

PRICE_PER_GPU_H = 2.48  # dollars; what Gavel's experiments pay for a V100
IDLE_W, BUSY_W = 50.0, 300.0  # of one GPU; the data sheet of a V100 allows 300 W
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run cost for each job."""

    minutes: float  # mean completion time of the jobs that the scenario measures
    fee: float  # dollars
    energy_kwh: float

    def total(self, recipe: DualAgentRecipe) -> float:
        """Return the weighted sum that training makes small."""
        return self.minutes + recipe.fee * self.fee + recipe.energy * self.energy_kwh


def priced(cluster: Cluster) -> Cluster:
    """Return the cluster with a price and watts on every node."""
    nodes = tuple(
        replace(
            node,
            price_per_hour=node.gpus * PRICE_PER_GPU_H if node.price_per_hour is None else node.price_per_hour,
            watts_idle=node.gpus * IDLE_W if node.watts_busy is None else node.watts_idle,
            watts_busy=node.gpus * BUSY_W if node.watts_busy is None else node.watts_busy,
        )
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)


@lru_cache(maxsize=16)
def scenario_of(name: str, jobs: int) -> Scenario:
    """Return a scenario with so many jobs and with prices; 0 jobs: as many as it has."""
    scenario = read_scenario(name)
    scenario = scenario.with_count(jobs) if jobs else scenario
    return replace(scenario, cluster=priced(scenario.cluster))


@lru_cache(maxsize=64)
def trace_of(name: str, jobs: int, seed: int) -> Any:
    """Return the jobs of a scenario."""
    return scenario_of(name, jobs).trace(seed)


def run(name: str, jobs: int, seed: int, policy: Policy | str, placer: str = "policy") -> Result:
    """Run a policy in a scenario."""
    scenario = scenario_of(name, jobs)
    settings = replace(scenario.settings.with_seed(seed), placer=placer)
    return simulate(trace_of(name, jobs, seed), scenario.cluster, policy, settings)


def outcome(name: str, jobs: int, seed: int, result: Result) -> Outcome:
    """Return what a run cost: times of the jobs that the scenario measures, fee and energy of the whole run."""
    window = scenario_of(name, jobs).window(trace_of(name, jobs, seed))
    whole, count = metrics(result), len(result.jobs)
    minutes = metrics(result, window=window)["jct_mean_s"] / 60.0
    return Outcome(minutes, whole["cost_held"] / count, whole["energy_kwh"] / count)


def totals(recipe: DualAgentRecipe, agents: Agents, seeds: list[int]) -> Floats:
    """Return the costs of runs by scenario and seed."""
    policy = DualAgent(agents)
    found = [
        outcome(name, recipe.jobs, seed, run(name, recipe.jobs, seed, policy)).total(recipe)
        for name in recipe.scenarios
        for seed in seeds
    ]
    return np.array(found)


def cost_until(result: Result, recipe: DualAgentRecipe, times: Floats) -> Floats:
    """Return what a run has cost until each time, for each of its jobs."""
    line = Timeline(result)
    cost = line.active.integral(times) / 60.0
    if recipe.fee or recipe.energy:
        nodes, rows = result.cluster.nodes, line.placements
        each = [
            recipe.fee * (node.price_per_hour or 0.0)
            + recipe.energy * ((node.watts_busy or 0) - (node.watts_idle or 0)) / 1e3
            for node in nodes
        ]
        share = np.array([x / max(node.gpus, 1) for x, node in zip(each, nodes, strict=True)])
        rate = share[rows["node"].to_numpy()] * rows["gpus"].to_numpy() / HOUR_S
        idle = recipe.energy * sum(node.watts_idle or 0.0 for node in nodes) / 1e3 / HOUR_S
        at = np.concatenate([rows["start_s"].to_numpy(), rows["end_s"].to_numpy(), [0.0, result.end_s]])
        cost = cost + Steps.of_changes(at, np.concatenate([rate, -rate, [idle, -idle]])).integral(times)
    return cost / len(result.jobs)
