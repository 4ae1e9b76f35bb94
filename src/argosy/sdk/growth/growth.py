"""Decides when a network grows with its job: deeper or wider while there are spare slots, small again when they go.

Both the job file (`grow: {allowed: true}`) and the script (`argosy.job(grow=True)`) must allow it. When more workers
train than the job began with, rank 0 asks the growth agent; when they are gone, it distils what was learned into the
original network. It changes its own network and then hands its state to the others, in the same way as to newcomers:
the state says how the network was grown, so that whoever loads it, from a worker or a checkpoint, builds the same.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.nn import Module, Parameter
from torch.optim import Optimizer

from argosy.errors import InputError
from argosy.sdk.checkpoints.transfer import hand_over

if TYPE_CHECKING:
    from argosy.sdk.growth.grower import Grower, Times
    from argosy.sdk.session import Session

GROW_AFTER = 5  # steps with more workers; by then rank 0 has seen inputs of the network
SHRINK_AFTER = 20  # steps with fewer workers; by then it has seen enough inputs to distil with
ASK_EVERY = 5  # steps between two questions to rank 0 whether it is time
SETTLED_S = 1.0  # a job that moves has more workers only for a moment, and should not grow

Change = Callable[[], tuple[bool, str]]  # returns whether the network was changed, and what to report


@dataclass(frozen=True, slots=True)
class Done:
    """How far the training is, in epochs; `of` is None if the number of epochs is unknown."""

    epochs: float = 0.0
    of: int | None = None


def consent(script: bool, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether both the script and the job file allow growth."""
    return script and bool(_said(environment).get("allowed"))


class Growth:
    """Decides when to grow and shrink, makes all workers do the same, and keeps the record in the job's state."""

    def __init__(
        self,
        session: Session,
        watch: Callable[[Sequence[Parameter]], None],
        done: Callable[[], Done],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        if session.settings.exact:
            raise InputError(
                "exact=True and grow=True exclude each other: when a network grows depends on what happens to the job",
                hint="leave one of them out",
            )
        from argosy.sdk.growth.grower import warm_up

        warm_up()
        self._session, self._watch, self._done = session, watch, done
        self._allowed = consent(True, environment)
        self._budget_s: float | None = _said(environment).get("time_budget")
        self._grower: Grower | None = None
        self._refusal = "nothing was handed to job.setup"
        self._began = time.time()  # of the job, not of this process, so not a monotonic time
        self._base = self._told = 0  # workers at the job's start, and the most that were decided on; 0: not begun
        self._turns: int | None = None  # steps since the number of workers changed; None: already acted on
        self._resized_at = 0.0
        self._seen = 0
        session.resized.append(self._resized)
        session.between.append(self._between)

    def take(self) -> None:
        """Take over the script's network and optimizer from `job.setup`."""
        from argosy.grow import GrowError
        from argosy.sdk.growth.grower import Grower

        training = self._session.training
        self._refusal = _refusal(training.modules, training.optimizers)
        if self._grower is not None:
            if not self._refusal:
                return  # setup was called again, for other objects
            self._grower.close()
            self._grower = None
        elif not self._refusal:
            try:
                self._grower = Grower(training.modules[0], training.optimizers[0])
            except GrowError as problem:
                self._refusal = str(problem)

    # -- part of the job's state

    def state(self) -> dict[str, Any]:
        record = self._grower.state() if self._grower else {}
        return {"began": self._began, "base": self._base, "told": self._told, **record}

    def load(self, state: Mapping[str, Any]) -> None:
        """Build the network that this state belongs to; its weights come afterwards."""
        if not state:
            return
        self._began, self._base, self._told = state["began"], state["base"], state["told"]
        if self._grower is None:
            if state.get("surgeries"):
                raise InputError(
                    f"the saved network has grown, and this one cannot: {self._refusal}",
                    hint="hand the same network and optimizer to job.setup as when it was saved",
                )
        elif "surgeries" in state and self._grower.load(state):
            self._train_what_is_there()

    # -- when

    def _resized(self) -> None:
        """Note that the group of workers has changed."""
        if not self._base:
            self._base = self._told = self._session.group.world
        self._turns, self._resized_at, self._seen = 0, time.monotonic(), self._session.training.step

    def _between(self) -> None:
        """Grow or shrink if it is time. Called on all workers at the same steps, so all act at the same one."""
        step, world = self._session.training.step, self._session.group.world
        if self._turns is None or step == self._seen:  # no change, or a step of several batches is incomplete
            return
        self._seen, self._turns = step, self._turns + 1
        back = world <= self._base and self._grower is not None and self._grower.is_grown
        if self._turns < (SHRINK_AFTER if back else GROW_AFTER) or self._turns % ASK_EVERY or not self._settled():
            return
        before, self._turns = max(self._told, self._base), None
        if back:
            if self._together(lambda: self._shrink(world)):
                self._told = world
            return
        self._told = max(self._told, world) if world > self._base else world
        if self._allowed and world > before:
            self._together(lambda: self._grow(before, world))

    def _settled(self) -> bool:
        """Return whether the group has been stable for long enough, by rank 0's clock."""
        settled = time.monotonic() - self._resized_at >= SETTLED_S
        return self._session.group.broadcast_bytes(b"yes" if settled else b"no", 0) == b"yes"

    def _grow(self, before: int, world: int) -> tuple[bool, str]:
        self._tell(f"spare slots: {before} → {world} workers; the growth agent is asked")
        if self._grower is None:
            return False, f"the network stays as it is: {self._refusal}"
        return self._grower.grow(self._times(), world - self._base)

    def _shrink(self, world: int) -> tuple[bool, str]:
        workers = f"{world} worker{'s' if world > 1 else ''}"
        self._tell(f"spare slots are gone: {workers}; what the network has learned is distilled into the small one")
        assert self._grower is not None
        return self._grower.shrink(self._times(), self._hurry)

    def _together(self, change: Change) -> bool:
        """Let rank 0 change its network, and hand it to all workers. Returns False on all if it was not changed."""
        group, changed = self._session.group, False
        if group.rank == 0:
            try:
                changed, story = change()
            except Exception as problem:  # of any kind: the script's network runs in there, and can train on as it is
                reason = str(problem).strip().split("\n")[0][:300] or type(problem).__name__
                story = f"the network stays as it is: {reason}"
            self._tell(story)
        if changed:
            self._train_what_is_there()
        changed = group.broadcast_bytes(b"changed" if changed else b"as before", 0) == b"changed"
        if group.world > 1 and changed:
            hand_over(group, 0, self._session.training)
        return changed

    def _train_what_is_there(self) -> None:
        """Tell hooks and combiner that the network has new parameters."""
        training = self._session.training
        self._watch(training.parameters)
        training.combiner.bind(training.modules, training.parameters)

    def _times(self) -> Times:
        """Return the time left: by the job file's budget or, without one, by the progress so far."""
        from argosy.sdk.growth.grower import Times

        spent, done = max(time.time() - self._began, 1e-3), self._done()
        epoch_s = spent / done.epochs if done.epochs else None
        budget = self._budget_s
        if budget is None:
            budget = epoch_s * done.of if epoch_s and done.of else 2 * spent  # unknown: assume as long again
        return Times(max(budget - spent, 0.0), budget, epoch_s)

    def _hurry(self) -> bool:
        """Return whether the job is about to leave or change its slots, and nobody should wait for a distillation."""
        control = self._session.control
        if control is None:
            return self._session.suspend_wish
        return control.suspending or control.newest > self._session.members.plan.version

    def _tell(self, text: str) -> None:
        self._session.tell("story", text=text)
        print(f"argosy: {text}", file=sys.stderr, flush=True)


def _said(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the job file says about growth."""
    said = json.loads(environment.get("ARGOSY_GROW") or "{}")
    return said if isinstance(said, dict) else {}


def _refusal(modules: Sequence[Module], optimizers: Sequence[Optimizer]) -> str:
    """Return why this script's network cannot grow; empty if it can."""
    if len(modules) != 1 or len(optimizers) != 1:
        return f"growth takes one network and one optimizer, job.setup was given {len(modules)} and {len(optimizers)}"
    if hasattr(modules[0], "_orig_mod"):
        return "the network is compiled"
    own = set(modules[0].parameters())
    if not any(parameter in own for group in optimizers[0].param_groups for parameter in group["params"]):
        return "the optimizer has none of the network's parameters"
    return ""
