"""Grow a network in training as its agent decides, watch it, and roll growth back if it does harm.

Nothing here may end the training: if the agent or a surgery fails, the decision is recorded as refused; if the grown
network becomes clearly worse or cannot be trained, the run goes back to its state from before the growth, once, and
then trains on without growth (`Guard.again` allows more). With several workers the first one decides and all do the
same.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from torch import nn

from argosy.grow.agents.base import Agent, Answer, Outcome, Situation
from argosy.grow.describe import describe
from argosy.grow.errors import Diverged
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.sites import sites
from argosy.grow.training import situations, workers
from argosy.grow.training.choices import Advice, ask, one_line
from argosy.grow.training.guard import Guard, Probation
from argosy.grow.training.journal import Decision, History
from argosy.grow.training.kept import Kept
from argosy.grow.training.run import Run
from argosy.grow.training.steps import Watch
from argosy.grow.training.trial import Trial

ALREADY = "growth was rolled back in this run; grow.Guard(again=True) allows more"

Describe = Callable[[float], Situation]  # makes a situation for the time that is left


class Growing:
    """Grows the network of a run, and knows how to undo it."""

    def __init__(self, run: Run, agent: Agent | None, history: History, guard: Guard | None) -> None:
        self.run, self.agent, self.history, self.guard = run, agent, history, guard
        self.original = copy.deepcopy(run.model)
        self.small: nn.Module | None = None  # the network to go back to when GPUs are taken away
        self.done: list[tuple[float, Surgery]] = []  # the surgeries since then, with the time left at each
        self.trial: Trial | None = None
        self.error = 0.0  # the standard error of the last validation score
        self._asked: dict[int, dict[str, Any]] = {}  # situations by number of the decision, for `learned`
        self._unneeded: list[Kept] = []  # kept until a checkpoint no longer names them

    def check(self) -> None:
        """Find out whether this network can be grown at all; if it cannot, the history says why."""
        if self.agent is None or self.history.decisions or self.history.refusal:
            return
        try:
            sites(self.run.model, self.run.example)
        except Exception as problem:
            self.history.refusal = one_line(problem)

    @property
    def watch(self) -> Watch | None:
        """Return what is to be told of each step, while a growth is on probation."""
        return self.trial.probation.step if self.trial is not None and not self.trial.probation.over else None

    def up(self, left: float, describe: Describe) -> Decision:
        """Ask the agent on the first worker, do on every worker what it says, and record it."""
        place, answer = len(self.history.decisions), {}
        if workers.rank() == 0:
            advice, refused = self._advice(left, describe, place)
            answer = {"advice": advice.to_dict(), "refused": refused}
        answer = workers.agree(answer)
        advice, refused = Advice.from_dict(answer["advice"]), answer["refused"]
        if not refused:
            refused = self._do(advice, left, place)
        if refused:
            self._asked.pop(place, None)
        decision = Decision(
            self.run.clock.now(),
            left,
            "up",
            advice.surgeries,
            advice.why,
            refused,
            advice.reset,
            forecasts=advice.forecasts,
        )
        self.history.decisions.append(decision)
        return decision

    def judge(self, score: float | None) -> None:
        """Judge the network after an epoch; raises `Harmful` if growth has made it worse."""
        trial = self.trial
        if trial is None or trial.probation.over:
            return
        trial.probation.epoch(score)
        if trial.probation.over:
            self._mark(trial, "kept")

    def back(self, problem: Exception, left: float) -> Decision:
        """Go back to the state before the growth, and record why."""
        trial = self.trial
        assert trial is not None
        lost = workers.any_problem(self._restore_kept(trial))
        if lost:
            self.run.replace(self.small if self.small is not None else self.original)
        self._unneeded.append(trial.kept)
        self.trial = None
        self._mark(trial, "rolled back")
        lines = self.history.lines
        lines[trial.lines :] = [replace(line, discarded=True) for line in lines[trial.lines :]]
        self.done = [] if lost else self.done[: trial.done]
        self.small = None if trial.first or lost else self.small
        taken = tuple(s for place in trial.decisions for s in self.history.decisions[place].surgeries)
        cause = problem.__cause__ if isinstance(problem, Diverged) else None  # an error of one of several workers
        why = workers.any_problem(one_line(cause) if cause is not None else "") or one_line(problem)
        why += f"; its state cannot be read, so the network from before all growth is used: {lost}" if lost else ""
        now = self.run.clock.now()
        decision = Decision(now, left, "back", taken, why, outcome="rolled back")
        self.history.decisions.append(decision)
        score = next((line.validation for line in reversed(lines) if line.discarded), None)
        for place in trial.decisions:
            self._teach(place, score, left, rolled_back=True)
        return decision

    def shrunk(self, score: float | None, left: float) -> None:
        """Note that the network is small again, so that there is nothing to roll back."""
        self.small, self.done = None, []
        self._finish(score, left)

    def end(self, score: float | None) -> None:
        """Judge the last growth at the end of training; raises `Harmful` if the network from before it was better."""
        if self.trial is not None:
            self.trial.probation.end(score)

    def ended(self, score: float | None) -> None:
        """Tell the agent how it ended, and forget the kept state."""
        self._finish(score, 0.0)

    def _finish(self, score: float | None, left: float) -> None:
        for place in sorted(self._asked):
            self._teach(place, score, left, rolled_back=False)
        if self.trial is not None:
            self._unneeded.append(self.trial.kept)
            self._mark(self.trial, "kept")
            self.trial = None

    def _advice(self, left: float, describe: Describe, place: int) -> tuple[Advice, str]:
        """Return what the agent says, or why it is not asked or cannot be followed."""
        if self.agent is None:
            return Advice(why="no agent"), ""
        if self.history.refusal:
            return Advice(why="this network cannot grow"), self.history.refusal
        if self.history.rolled_back and self.guard is not None and not self.guard.again:
            return Advice(why="the agent was not asked"), ALREADY
        try:
            situation = describe(left)
            advice = ask(self.agent, situation)
            if callable(getattr(self.agent, "learned", None)):
                self._asked[place] = {"situation": situations.to_dict(situation), "advice": advice.to_dict()}
            return advice, ""
        except Exception as problem:
            return Advice(why="no decision"), one_line(problem)

    def _do(self, advice: Advice, left: float, place: int) -> str:
        """Grow on every worker, or on none; return why it was refused."""
        run, before, trial, own = self.run, self.run.model, None, ""
        changes = bool(advice.surgeries) or advice.reset is True
        undo = run.fork() if changes and workers.size() > 1 else None
        try:
            if changes:
                trial = self._trial(place)
            run.grow(advice.surgeries, reset=advice.reset)
        except Exception as problem:
            own = one_line(problem)
        refused = workers.any_problem(own)
        if refused:
            if undo is not None and not own:
                run.go_back(undo)
            if trial is not None and trial is not self.trial:
                trial.kept.forget()
            return refused
        if trial is not None:
            self._begin(trial, place)
        if advice.surgeries and self.small is None:
            self.small = copy.deepcopy(before)
        self.done += [(left, surgery) for surgery in advice.surgeries]
        return ""

    def _trial(self, place: int) -> Trial | None:
        """Keep the present state for a new trial, unless one is going on."""
        if self.guard is None:
            return None
        if self.trial is not None and not self.trial.probation.over:
            return self.trial
        run, lines = self.run, self.history.lines
        scores = [line.validation for line in lines if line.validation is not None and not line.discarded]
        probation = Probation(run.losses, scores, self.guard.probation, self.error)
        kept = Kept.of(run, self.guard, place)
        return Trial(kept, probation, [], len(lines), len(self.done), self.small is None)

    def _begin(self, trial: Trial, place: int) -> None:
        if self.trial is not None and self.trial is not trial:
            self._unneeded.append(self.trial.kept)
        self.trial = trial
        trial.decisions.append(place)
        trial.probation.prolong()

    def _restore_kept(self, trial: Trial) -> str:
        """Go back to the kept state; return why that is not possible."""
        try:
            self.run.go_back(trial.kept.run(self.run, self.original))
        except Exception as problem:
            return one_line(problem)
        return ""

    def _mark(self, trial: Trial, outcome: Literal["kept", "rolled back"]) -> None:
        decisions = self.history.decisions
        for place in trial.decisions:
            decisions[place] = replace(decisions[place], outcome=outcome)

    def _teach(self, place: int, score: float | None, left: float, *, rolled_back: bool) -> None:
        """Tell the agent what became of a decision, if it wants to know."""
        asked, learned = self._asked.pop(place, None), getattr(self.agent, "learned", None)
        if asked is None or not callable(learned):
            return
        budget = self.history.budget
        outcome = Outcome(score, left / budget if budget > 0 else 0.0, rolled_back)
        try:
            situation = situations.from_dict(asked["situation"], describe(self.original, self.run.example))
            advice = Advice.from_dict(asked["advice"])
            learned(situation, Answer(advice.surgeries, advice.reset), outcome)
        except Exception as problem:
            warnings.warn(f"the agent could not learn from a decision: {one_line(problem)}", stacklevel=2)

    def fork(self, run: Run, history: History) -> Growing:
        """Return a copy for a fork of the run."""
        other = copy.copy(self)
        other.run, other.history, other.done, other._asked = run, history, list(self.done), dict(self._asked)
        other.agent, other.small = copy.deepcopy(self.agent), copy.deepcopy(self.small)
        other._unneeded = []
        if self.trial is not None:
            kept = Kept(self.trial.kept.run(self.run, self.original).fork())
            probation = Probation.restored(self.trial.probation.state())
            other.trial = replace(self.trial, kept=kept, probation=probation, decisions=list(self.trial.decisions))
        return other

    def saved(self) -> None:
        """Delete what the checkpoint that has just been saved does not need."""
        for kept in self._unneeded:
            kept.forget()
        self._unneeded = []

    def state(self) -> dict[str, Any]:
        """Return everything but networks as plain data."""
        return {
            "done": [[left, surgery.to_dict()] for left, surgery in self.done],
            "trial": self.trial.state() if self.trial is not None else None,
            "asked": {str(place): asked for place, asked in self._asked.items()},
            "error": self.error,
        }

    def restore(self, state: Mapping[str, Any], small: nn.Module | None, kept: Run | None) -> None:
        """Restore a saved state; `kept` is the run from before the growth, if it was in memory."""
        self.small, self.error = small, state["error"]
        self.done = [(left, Surgery.from_dict(surgery)) for left, surgery in state["done"]]
        self._asked = {int(place): asked for place, asked in state["asked"].items()}
        if state["trial"] is not None:
            self.trial = Trial.restored(state["trial"], kept)
