"""Grows a script's network as the growth agent decides, shrinks it again, and describes in words what was done.

Rank 0 does this. Every worker gets the record of the surgeries, and builds the same network from it. While a growth is
on probation, the record also holds the state from before it, so that any worker can roll it back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from argosy.grow import Agent, GrowError, Recipe, Surgery, sites
from argosy.grow.agents.base import Answer, Curve, DataSize, Outcome, RecipeFacts
from argosy.grow.describe import describe
from argosy.grow.training import situations
from argosy.grow.training.choices import Advice, agent_of, ask, one_line, options_of
from argosy.grow.training.clipping import Clipping
from argosy.grow.training.guard import Guard, Probation
from argosy.grow.training.kept import GIB, size_of
from argosy.grow.training.losses import Losses
from argosy.grow.training.recipe import damp_momentum
from argosy.sdk.checkpoints.packing import check_readable
from argosy.sdk.data.seeds import untouched
from argosy.sdk.growth.in_place_model import InPlaceModel
from argosy.sdk.growth.rate import Rate
from argosy.sdk.growth.recent_inputs import RecentInputs, agreement, difference, learned
from argosy.sdk.growth.scheduler import Done

DISTIL_SHARE = 0.005  # the share of the time left that is used for distillation
DISTIL_S = 1.0, 10.0  # the shortest and the longest time for it
EXAMPLE = 64  # samples with which options are found and new layers are calibrated
EPOCHS = 1000  # of which mean losses are kept
KEPT = 2  # how many of these samples the record keeps, enough to build the same network again
NOTHING_KNOWN = Done()
RECIPE = Recipe()  # what it says of momentum and clipping after growth holds for live jobs too


@dataclass(frozen=True, slots=True)
class Times:
    """The time left, the whole budget and the time of one epoch, in seconds; the last is None if unknown."""

    left: float
    budget: float
    epoch: float | None


class Grower:
    """Grows and shrinks one network with its optimizer. Raises GrowError if they cannot grow."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, guard: Guard | None = None) -> None:
        self._network, self._guard = InPlaceModel(model, optimizer), guard or Guard()
        self._recent = RecentInputs()
        self._recent.watch(model)
        self._agent: Agent | None = None
        self._learned: Any = None  # what the agent has learned in this job, on workers that do not ask it
        self.rate = Rate(optimizer)
        self._left: list[float] = []  # how many seconds were left at each surgery
        self._example: Tensor | None = None
        self.losses = Losses()  # those that the script has reported
        self._curve: list[list[float]] = []  # for each epoch a row, see `_row`
        self._scores: list[float] = []  # reported since the last judgement
        self.probation: Probation | None = None  # of the last growth
        self._before: dict[str, Any] | None = None  # the state from before it
        self._asked: dict[str, Any] | None = None  # the situation of the last decision
        self._clipping = Clipping()
        self._hook = optimizer.register_step_pre_hook(lambda *_: self._clip())

    def close(self) -> None:
        self._recent.look_away()
        self._hook.remove()

    @property
    def is_grown(self) -> bool:
        return bool(self._network.surgeries)

    def note(self, loss: float, epoch: int, time_s: float) -> None:
        """Note a loss that the script has reported; raises GrowError if growth has done harm."""
        self.losses.add(loss)
        row = self._row(epoch, time_s)
        row[1:3] = [row[1] + 1, row[2] + loss]
        if self.probation is not None:
            self.probation.step(loss)

    def note_score(self, score: float, epoch: int, time_s: float) -> None:
        """Note an accuracy that the script has reported."""
        row = self._row(epoch, time_s)
        row[4:] = [row[4] + 1, row[5] + score]
        self._scores.append(score)

    def take_score(self) -> float | None:
        """Return the mean accuracy that was reported since the last call; None if there was no report."""
        found, self._scores = self._scores, []
        return fmean(found) if found else None

    def _row(self, epoch: int, time_s: float) -> list[float]:
        """Return the row of this epoch: its number, count and sum of losses, the time, count and sum of scores."""
        if not self._curve or self._curve[-1][0] != epoch:
            self._curve = [*self._curve[1 - EPOCHS :], [epoch, 0, 0.0, time_s, 0, 0.0]]
        self._curve[-1][3] = time_s
        return self._curve[-1]

    @property
    def curve(self) -> Curve:
        """Return the learning curve: means of what the script has reported in each epoch."""
        rows = self._curve
        losses, scores = ([row[i + 1] / row[i] if row[i] else math.nan for row in rows] for i in (1, 4))
        return Curve(tuple(row[3] for row in rows), tuple(losses), tuple(scores))

    @property
    def is_finite(self) -> bool:
        """Return whether all weights are finite."""
        return all(bool(torch.isfinite(parameter).all()) for parameter in self._network.model.parameters())

    def state(self) -> dict[str, Any]:
        done = [[left, surgery.to_dict()] for left, surgery in zip(self._left, self._network.surgeries, strict=True)]
        trial = {
            "probation": self.probation.state() if self.probation else None,
            "before": self._before,
            "asked": self._asked,
            "clipping": self._clipping.state(),
            "rate": self.rate.state(),
        }
        return {
            "surgeries": done,
            "example": self._example,
            "curve": self._curve,
            "trial": trial,
            "agent": self._agent_state(),
        }

    def load(self, state: Mapping[str, Any]) -> bool:
        """Build the network that this record describes. Returns False if the network is already like that."""
        example = state["example"]
        if example is not None:
            example = example.to(next(self._network.model.parameters()).device)
        with self._in_private():
            changed = self._network.rebuild([Surgery.from_dict(surgery) for _, surgery in state["surgeries"]], example)
        self._left, self._example = [left for left, _ in state["surgeries"]], state["example"]
        self._curve, trial = [[*row, 0, 0.0][:6] for row in state["curve"]], state["trial"]
        self.probation = Probation.restored(trial["probation"]) if trial["probation"] else None
        self._before, self._asked = trial["before"], trial["asked"]
        self._clipping = Clipping(**trial["clipping"])
        if "rate" in trial:  # records of earlier versions have none
            self.rate.load(trial["rate"])
        self._learned = state.get("agent")
        self._restore_agent()
        return changed

    def grow(self, times: Times, gained: float, done: Done = NOTHING_KNOWN) -> tuple[bool, str]:
        """Ask the agent and carry out its decision; return whether anything was changed, and a report."""
        network, example, started = self._network, self._recent.inputs[-1][:EXAMPLE], time.monotonic()
        with self._in_private():
            advice = self._ask(example, times, gained, done)
            resets, unchanged = self._resets(advice, times)
            if not advice.surgeries and not resets:
                return False, f"the agent leaves the network as it is{unchanged}: {advice.why}"
            before = self._kept()
            if advice.surgeries:
                bigger = network.grown(advice.surgeries, example)
                off, more = difference(network.model, bigger.model, example), bigger.size - network.size
                network.become(bigger)
            self._begin_probation(before)
            damp_momentum(network.optimizer, RECIPE.keep_momentum)
            rate = self.rate.reset() if resets else ""
        if not advice.surgeries:
            return True, f"the agent only resets the {rate}: {advice.why}"
        self._left += [times.left] * len(advice.surgeries)
        self._example = example[:KEPT].cpu().clone()
        kept = (f"to {off:.0e}" if off else "exactly") + (f", {rate}" if rate else "")
        seconds = time.monotonic() - started
        what = f"the agent {_words(advice.surgeries)} in {seconds:.1f} s (+{_short(more)} parameters)"
        return True, f"{what}, outputs kept {kept}{unchanged}: {advice.why}"

    def _resets(self, advice: Advice, times: Times) -> tuple[bool, str]:
        """Return whether the learning rate is to be reset and, if the agent wants that in vain, why it is not.

        An agent that does not say leaves the rate to the script.
        """
        if not advice.reset:
            return False, ""
        if times.epoch is not None and times.left < RECIPE.reset_needs * times.epoch:
            return False, " (too little time is left to reset the learning rate)"
        if self.rate.is_first:
            return False, " (the learning rate is still the first one, so there is nothing to reset)"
        return True, ""

    def roll_back(self, reason: str, times: Times) -> tuple[bool, str]:
        """Go back to the network and optimizer state from before the last growth."""
        before, network = self._before, self._network
        if before is None:
            return False, f"the last growth cannot be rolled back any more: {reason}"
        with self._in_private():
            example = before["example"]
            if example is not None:
                example = example.to(next(network.model.parameters()).device)
            network.rebuild([Surgery.from_dict(surgery) for _, surgery in before["surgeries"]], example)
            network.load(before["model"], before["optimizer"])
            self.rate.undo()
        self._left, self._example = [left for left, _ in before["surgeries"]], before["example"]
        self.passed()
        return True, f"growth is rolled back: {reason}{self._teach(times)}"

    def passed(self) -> None:
        """Give up the state from before the last growth."""
        self.probation = self._before = None

    def _kept(self) -> dict[str, Any]:
        """Return a copy of the present state; during a probation, the one from before it, because both are judged."""
        network, most = self._network, self._guard.memory_gib
        if self.probation is not None and self._before is not None:
            return self._before
        size = size_of(network.model, network.optimizer) / GIB
        if size > most:
            raise GrowError(
                f"its state of {size:.3g} GiB is too large to be kept until growth has proved harmless; at most "
                f"{most:g} GiB are kept"
            )
        done = [[left, surgery.to_dict()] for left, surgery in zip(self._left, network.surgeries, strict=True)]
        model, optimizer = network.content()
        return {"surgeries": done, "example": self._example, "model": model, "optimizer": optimizer}

    def _begin_probation(self, before: dict[str, Any]) -> None:
        if self.probation is None:
            self.probation = Probation(self.losses, self.curve.score, self._guard.probation)
            self.rate.begin()
        self.probation.prolong()
        self._scores = []
        self._before = before

    def _clip(self) -> None:
        """Clip the gradients of a grown network, before each step of the optimizer."""
        if RECIPE.clip is not None:
            with suppress(Exception):  # gradients of a kind that torch cannot clip: the script's step goes on
                self._clipping.step(list(self._network.model.parameters()), RECIPE.clip, grown=self.is_grown)

    def _teach(self, times: Times) -> str:
        """Tell the agent that its last decision was rolled back, if it wants to know; return what went wrong."""
        asked, self._asked = self._asked, None
        try:
            learned = getattr(self._asked_agent(), "learned", None)
            if asked is not None and callable(learned):
                surgeries = tuple(Surgery.from_dict(surgery) for surgery in asked["surgeries"])
                graph = describe(self._network.original, asked["example"])
                share = times.left / times.budget if times.budget > 0 else 0.0
                answer = Answer(surgeries, asked.get("reset"))
                learned(situations.from_dict(asked["situation"], graph), answer, Outcome(None, share, True))
        except Exception as problem:
            return f"; the agent could not learn from it: {one_line(problem)}"
        return ""

    def shrink(self, times: Times, hurry: Callable[[], bool]) -> tuple[bool, str]:
        """Distil what was learned into the original network, unless `hurry` says that the slots are about to change."""
        network, inputs, started = self._network, self._recent.inputs, time.monotonic()
        least, most = DISTIL_S
        with self._in_private():
            seconds = min(max(DISTIL_SHARE * times.left, least), most)
            found = learned(network.model, network.original, inputs, seconds, hurry)
            if hurry():
                return False, "its slots are about to change, so the network stays as it is for now"
            same, small = agreement(network.model, found, inputs), network.small(found)
            fewer = network.size - small.size
            network.become(small)
        self._left, self._example, self._clipping = [], None, Clipping()
        self.passed()
        seconds = time.monotonic() - started
        return True, f"distilled back in {seconds:.1f} s (−{_short(fewer)} parameters), agreement {same:.0%}"

    def _asked_agent(self) -> Agent:
        """Return the agent, which goes on with what it has learned in this job."""
        if self._agent is None:
            self._agent = agent_of("pretrained")
            self._restore_agent()
        assert self._agent is not None
        return self._agent

    def _agent_state(self) -> Any:
        """Return what the agent has learned, if it can say so and it can be saved."""
        state = getattr(self._agent, "state", None)
        if callable(state):
            with suppress(Exception):  # no agent may keep a job from being saved
                found = state()
                check_readable("the growth agent", found)
                self._learned = found
        return self._learned

    def _restore_agent(self) -> None:
        restore = getattr(self._agent, "restore", None)
        if self._learned is not None and callable(restore):
            with suppress(Exception):  # it is the state of another agent: this one begins anew
                restore(self._learned)

    def _ask(self, example: Tensor, times: Times, gained: float, known: Done) -> Advice:
        if not times.left > 0:
            raise GrowError("no time is left in its budget")
        agent = self._asked_agent()
        network, done = self._network, zip(self._left, self._network.surgeries, strict=True)
        situation = situations.situation_of(
            network.original,
            example,
            options_of(network.model, example),
            times.left,
            times.budget,
            done,
            epoch_s=times.epoch,
            gpus_gained=gained,
            parameters=network.size,
            curve=self.curve,
            data=DataSize(known.examples, inputs=example[0].numel()),
            recipe=RecipeFacts(
                type(network.optimizer).__name__.lower(),
                lr=self.rate.first[0],
                lr_now=self.rate.now[0],
                batch=known.batch,
            ),
        )
        advice = ask(agent, situation)
        surgeries = [surgery.to_dict() for surgery in advice.surgeries]
        few = example[:KEPT].cpu().clone()
        asked = {"situation": situations.to_dict(situation), "surgeries": surgeries, "reset": advice.reset}
        self._asked = asked | {"example": few}
        return advice

    @contextmanager
    def _in_private(self) -> Iterator[None]:
        """Keep the script's random state unchanged, and do not record inputs, inside the block."""
        self._recent.look_away()
        try:
            with untouched():
                yield
        finally:
            self._recent.watch(self._network.model)


def warm_up() -> None:
    """Make torch import what surgery needs now, because later all workers would wait for it."""
    with untouched():
        sites(nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)), torch.zeros(2, 1))


def _words(chosen: tuple[Surgery, ...]) -> str:
    verbs = {"deepen": "deepens at", "widen": "widens", "unfreeze": "unfreezes"}
    return " and ".join(
        f"{verbs.get(one.op, one.op)} {one.site}" + (f" x{one.factor:g}" if one.op == "widen" else "") for one in chosen
    )


def _short(number: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)
