"""Runs the iterations of the script's loop: combines gradients, agrees on what to do next, and does it.

The workers agree on what to do while they combine the gradients of a step, and do it before the next batch. A step that
failed because a worker was lost is repeated by the remaining workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from argosy.sdk.control import Control
from argosy.sdk.gradients.combine import Combiner, Piece
from argosy.sdk.group.agreement import Votes
from argosy.sdk.group.membership import Membership
from argosy.sdk.group.process_group import Group, GroupBroken
from argosy.sdk.settings import Settings
from argosy.sdk.step_times import StepTimes
from argosy.sdk.training import Training


class Session:
    def __init__(self, settings: Settings, combiner: Combiner, control: Control | None) -> None:
        self.settings, self.control = settings, control
        self.training = Training(combiner)
        self.members = Membership(settings, self.training, control)
        self.suspend_wish = False  # a signal has asked for a suspension
        self.save_wish = False
        self.times = StepTimes()
        self.between: list[Callable[[], None]] = []  # called on all workers after every step
        self.piece: Piece | None = None  # the piece that the script works on
        self.failed = False  # the step cannot be completed, because a worker is lost
        self.withheld = False  # optimizers and schedulers must not act
        self.stepped = False  # an optimizer has acted on this piece
        self._samples = 0  # samples whose gradients are not yet combined
        self._combined = False
        self._heard = Votes()  # agreed on in this step, in which the optimizer has not acted yet
        self._due = Votes()  # to be done before the next batch

    @property
    def group(self) -> Group:
        return self.members.group

    @property
    def resized(self) -> list[Callable[[], None]]:
        """Return the functions that are called whenever the group of workers has changed."""
        return self.members.resized

    def tell(self, op: str, **fields: Any) -> None:
        self.members.tell(op, **fields)

    # -- during an iteration

    def begin(self, piece: Piece) -> None:
        self.piece, self.failed, self.withheld, self.stepped, self._combined = piece, False, False, False, False
        self._samples += piece.samples
        self.training.combiner.begin(piece, self.training.step)

    def combine(self) -> None:
        """Combine the gradients at the end of a backward pass."""
        if self.piece is None or self.failed:
            return
        self._combined = True
        group, since = self.group, self.members.plan.version
        try:
            if self.members.lost_somebody:
                raise GroupBroken("a worker is lost")
            votes = self._votes().encode(group.rank, group.world, since)
            with self.members.waiting(), self.times.synchronising(self.piece.last):
                summed = self.training.combiner.combine(replace(self.piece, samples=self._samples), votes)
        except GroupBroken as problem:
            self.fail(problem)
            return
        self._samples = 0
        self.withheld = summed is None
        if summed is not None:
            self._heard |= Votes.decode(summed, group.world, since)

    def allow_step(self) -> bool:
        """Return whether an optimizer may act now."""
        if self.piece is not None and not self._combined and self.group.world > 1:
            self.combine()  # the gradients did not come from a backward pass that we watch
        return not (self.failed or self.withheld)

    def note_step(self) -> None:
        if self.piece is not None:
            self.stepped = True
            if self.control is not None:
                self.control.step = self.training.step + 1

    def fail(self, problem: GroupBroken) -> None:
        self.failed = self.withheld = True
        self.members.broke(problem)

    # -- between two iterations

    def end(self) -> None:
        """End the iteration after the script has finished its piece and the position was advanced."""
        complete = self.stepped or not self.training.optimizers
        if complete:
            alone = self._votes() if self.group.world == 1 else Votes()
            self._due, self._heard = self._due | self._heard | alone, Votes()
        if self.stepped and self.members.gap_s is not None:
            gap_s, self.members.gap_s = round(self.members.gap_s, 4), None
            self.tell("switched", version=self.members.plan.version, step=self.training.step, gap_s=gap_s)
        self.piece, self.stepped = None, False

    def act(self) -> bool:
        """Carry out what was agreed on. Returns whether this has changed the step that training is at."""
        due, self._due = self._due, Votes()
        step = self.training.step
        if self.members.lost_somebody:
            self.fail(GroupBroken("a worker is lost"))
            self.drop()
            return True
        if due.suspend:
            self.members.suspend()
        elif self.control is not None and due.plan > self.members.plan.version:
            if not self.members.switch(self.control, due.plan):
                self.drop()
        elif due.rest:
            self.members.rest()
        elif due.save:
            self.save_wish = False
            self._together(lambda: self.members.checkpoints.save(self.group, self.training))
        for call in self.between:
            self._together(call)
        return self.training.step != step

    def drop(self) -> None:
        """Forget a step that failed, and join the remaining workers."""
        self.piece, self.stepped, self._samples, self._heard, self._due = None, False, 0, Votes(), Votes()
        for optimizer in self.training.optimizers:
            optimizer.zero_grad()
        self.members.settle()

    def _together(self, call: Callable[[], object]) -> None:
        """Call a function that all workers call after the same step; recover if a worker is lost in it."""
        try:
            with self.members.waiting():
                call()
        except GroupBroken as problem:
            self.fail(problem)
            self.drop()

    def _votes(self) -> Votes:
        control = self.control
        save = self.save_wish or (self.group.rank == 0 and self.members.checkpoints.due)
        if control is None:
            return Votes(0, self.suspend_wish, save)
        if control.saving:
            control.saving, save = False, True
        return Votes(control.newest, self.suspend_wish or control.suspending, save, bool(control.rest))
