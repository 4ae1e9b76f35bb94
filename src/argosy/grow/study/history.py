"""A run with its learning curve, which can be forked, and described to an agent at any moment."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from torch import nn

from argosy.grow.agents.base import Agent, Answer, Curve, DataSize, Price, RecipeFacts, Situation
from argosy.grow.data import Data
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.run import Run
from argosy.grow.training.situations import situation_of
from argosy.slack import RELATIVE_SLACK


@dataclass
class History:
    """Holds a run and what was noted after each of its epochs. The run must not have been trained before."""

    run: Run
    times: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    done: list[tuple[float, Surgery]] = field(default_factory=list)
    original: nn.Module = field(default_factory=nn.Module)

    def __post_init__(self) -> None:
        if not self.times:
            self.original = copy.deepcopy(self.run.model)

    def fork(self) -> History:
        """Return an independent copy that would train exactly alike."""
        return History(self.run.fork(), [*self.times], [*self.loss], [*self.score], [*self.done], self.original)

    def train_epoch(self) -> None:
        """Train an epoch, and note its figures."""
        epoch = self.run.train_epoch()
        self.times.append(epoch.time)
        self.loss.append(epoch.loss if epoch.loss is not None else float("nan"))
        self.score.append(self.run.evaluate("validation"))

    def train_until(self, share: float) -> None:
        """Train whole epochs until this share of the budget is used."""
        while self.run.time_left > 0 and self.run.clock.now() < share * self.run.budget * (1 - RELATIVE_SLACK):
            self.train_epoch()

    def finish(self) -> None:
        """Train to the end of the budget, without noting anything."""
        while self.run.time_left > 0:
            self.run.train_epoch()

    def grow(self, surgeries: tuple[Surgery, ...], reset: bool | None = None) -> None:
        """Do these surgeries."""
        left = self.run.time_left
        self.run.grow(surgeries, reset=reset)
        self.done += [(left, surgery) for surgery in surgeries]

    @property
    def curve(self) -> Curve:
        """Return the learning curve so far."""
        return Curve(tuple(self.times), tuple(self.loss), tuple(self.score))

    def situation(self, options: tuple[Surgery, ...], decisions_left: int = 1) -> Situation:
        """Describe this moment to an agent; growth is free."""
        run, recipe, data = self.run, self.run.recipe, self.run.data
        size = None
        if isinstance(data, Data):
            size = DataSize(len(data.train_y), data.classes, data.train_x[0].numel())
        return situation_of(
            self.original,
            run.example,
            options,
            run.time_left,
            run.budget,
            tuple(self.done),
            decisions_left=decisions_left,
            epoch_s=run.clock.epoch_time(),
            curve=self.curve,
            parameters=run.parameters,
            flops=run.flops(),
            data=size,
            recipe=RecipeFacts(recipe.optimizer, recipe.lr, run.lr, recipe.schedule, recipe.batch),
            price=Price("free"),
        )

    def ask(self, agent: Agent, options: tuple[Surgery, ...], decisions_left: int = 1) -> Answer:
        """Do what an agent decides, and return its answer."""
        answer = agent.decide(self.situation(options, decisions_left))
        reset = getattr(answer, "reset", None)
        self.grow(tuple(answer), reset)
        return Answer(answer, reset)
