"""Try the growth agent where it was not taught: arms that branch from one state, early, in the middle and late.

    none          the network does not grow
    none_reset    the same, but the learning rate is reset at each decision
    random        a growth at random, or none, at each decision
    agent         what the agent decides
    best_growth   the growth for which the agent forecasts the most at the first decision, whether it takes it or not

Each arm decides at some successive epochs, except `best_growth`, which grows once, so that forecasts can be compared
with what became true. Growth is free, and figures are test accuracies.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any

from argosy.grow.agents.base import Agent, Answer, Situation
from argosy.grow.agents.baselines import RandomGrowth
from argosy.grow.agents.forecasting_agent import Forecast, ForecastingAgent
from argosy.grow.data import Data
from argosy.grow.study.family import Member
from argosy.grow.study.history import History
from argosy.grow.study.make_branches import begin
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.choices import options_of
from argosy.seeding import stream

SCENARIOS = {"early": 0.2, "middle": 0.45, "late": 0.85}
WIDEN_BY = (1.5, 2.0)


@dataclass(frozen=True)
class Pair:
    """Holds a network with its data, and the agent that was taught without this family of networks."""

    name: str
    member: Member
    agent: ForecastingAgent
    decisions: int = 3


class OnlyReset:
    """This agent resets the learning rate, and grows nothing."""

    def decide(self, situation: Situation) -> Answer:
        """Return no surgery, and a reset of the learning rate."""
        return Answer((), True)


def try_seed(pair: Pair, seed: int) -> dict[str, Any]:
    """Return the test accuracies of all arms of one run, by scenario, and what the agent said and did."""
    data = pair.member.load()
    trunk = begin(pair.member, data, int(stream(seed, f"elsewhere {pair.name}").integers(2**31)))
    found: dict[str, Any] = {}
    for scenario, share in SCENARIOS.items():
        trunk.train_until(share)
        found[scenario] = _scenario(pair, trunk, data, seed)
    none = _finish(trunk.fork(), data)
    for part in found.values():
        part["test"]["none"] = none
    return found


def _scenario(pair: Pair, trunk: History, data: Data, seed: int) -> dict[str, Any]:
    agent = copy.deepcopy(pair.agent)
    agent.decide(trunk.situation(_options(trunk), pair.decisions))
    first, why = agent.forecasts, agent.why
    growth = max((f for f in first if f.kind == "grow"), key=lambda f: f.gain, default=None)
    arms: dict[str, Agent] = {"none_reset": OnlyReset(), "random": RandomGrowth(seed), "agent": agent}
    test, taken = {}, []
    for name, decider in arms.items():
        arm, done = _follow(decider, trunk, pair.decisions)
        test[name] = _finish(arm, data)
        if name == "agent":
            taken = done
    if growth is not None:
        arm = trunk.fork()
        arm.grow(growth.step, growth.reset)
        test["best_growth"] = _finish(arm, data)
    return {
        "test": test,
        "taken": taken,
        "why": why,
        "forecast": _plain(next((f for f in first if f.chosen), None)),
        "best_growth": _plain(growth),
        "reset": _plain(next((f for f in first if f.kind == "reset"), None)),
    }


def _follow(agent: Agent, trunk: History, decisions: int) -> tuple[History, list[list[str]]]:
    """Return a branch that does at successive epochs what an agent decides."""
    arm, taken = trunk.fork(), []
    for decision in range(decisions):
        if arm.run.time_left <= 0:
            break
        answer = arm.ask(agent, _options(arm), decisions - decision)
        taken.append([*map(str, answer), *(["reset"] if answer.reset else [])])
        arm.train_epoch()
    return arm, taken


def _options(history: History) -> tuple[Surgery, ...]:
    return options_of(history.run.model, history.run.example, widen_by=WIDEN_BY)


def _finish(history: History, data: Data) -> float:
    """Train to the end, and return the test accuracy."""
    history.finish()
    history.run.data = data
    return history.run.evaluate("test")


def _plain(forecast: Forecast | None) -> dict[str, Any] | None:
    if forecast is None:
        return None
    return asdict(forecast) | {"step": [str(s) for s in forecast.step]}
