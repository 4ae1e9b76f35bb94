"""Make agents by name: train them from tables, or read them from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from argosy.errors import UnknownName
from argosy.grow.agents.base import Agent
from argosy.grow.agents.baselines import Nothing, RandomGrowth
from argosy.grow.agents.forecasting_agent import ForecastingAgent, pretrained
from argosy.grow.agents.planning_agent import PlanningAgent
from argosy.grow.agents.q import QAgent, learn_q
from argosy.grow.agents.reference import ReferenceAgent
from argosy.grow.agents.reinforce import learn as reinforce
from argosy.grow.agents.surrogate import learn
from argosy.grow.agents.surrogate_data import observations
from argosy.grow.errors import GrowError
from argosy.grow.tables.growth_table import Table

KINDS = ("planning", "q", "reference")
Tick = Callable[[int, int], None]


class Trained(Agent, Protocol):
    """An agent that can be written to a file."""

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write it to a file."""
        ...


def train_agent(
    kind: str,
    tables: Sequence[Table],
    *,
    steps: int | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    progress: Tick | None = None,
) -> Trained:
    """Train an agent from tables: from all at once or, for the reference agent, one after the other."""
    if kind not in KINDS:
        raise UnknownName("agent", kind, KINDS)
    tell = progress or (lambda done, total: None)
    if kind == "planning":
        count = steps or 300
        seen = [observations(table) for table in tables]
        surrogate = learn(seen, steps=count, seed=seed, progress=lambda n, _: tell(n, count))
        return PlanningAgent(surrogate)
    if kind == "q":
        count = steps or 400
        return learn_q(tables, steps=count, seed=seed, progress=lambda n, _: tell(n, count))
    agent = ReferenceAgent(sites=len(tables[0].options) - 1, seed=seed)
    count = steps or 10_000
    reinforce(agent, tables, count, temperature, seed, progress=lambda done: tell(done, count * len(tables)))
    return agent


def load_agent(name: str) -> Agent:
    """Return an agent from a file, whatever its kind, or `pretrained`, `random`, `none`."""
    if name == "pretrained":
        return pretrained()
    if name in ("random", "none"):
        return RandomGrowth() if name == "random" else Nothing()
    if not Path(name).exists():
        if not Path(name).suffix:
            raise UnknownName("agent", name, ("pretrained", "random", "none"))
        hint = "give pretrained, random, none, or a file that `argosy grow train` wrote"
        raise GrowError("there is no such file", where=name, hint=hint)
    problems = []
    for kind in (ForecastingAgent, PlanningAgent, QAgent, ReferenceAgent):
        try:
            return kind.load(name)
        except GrowError as problem:
            problems.append(problem)
    raise problems[0]
