"""Decides when a network grows and shrinks with its job: it is deeper or wider only while there are spare slots.

Both the job file (`grow: {allowed: true}`) and the script (`argosy.job(grow=True)`) must allow it. When more workers
train than the job began with, rank 0 asks the growth agent; when they are gone, it distils what was learned into the
original network. It changes its own network and then sends its state to the others, in the same way as to new workers.
The state says how the network was grown, so that a worker that loads it builds the same network.

For the first epochs after growth rank 0 watches the weights, and the losses and the accuracy that the script reports,
by the same rules as `argosy.grow.Trainer`. If growth has done harm, it is rolled back, and the job does not grow again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.nn import Module, Parameter
from torch.optim import Optimizer

from argosy.errors import InputError
from argosy.sdk.checkpoints.transfer import hand_over
from argosy.sdk.growth.scheduler import Done, JobScheduler

if TYPE_CHECKING:
    from argosy.grow import Guard
    from argosy.sdk.growth.grower import Grower, Times
    from argosy.sdk.session import Session

GROW_AFTER = 5  # steps with more workers before growing; by then rank 0 has recorded inputs
SHRINK_AFTER = 20  # steps with fewer workers before shrinking; by then it has enough inputs to distil with
ASK_EVERY = 5  # steps between two checks of whether it is time, and of a growth on probation
SCORES = ("val_accuracy", "validation_accuracy", "accuracy")  # names of reported scores, the best first
SETTLED_S = 1.0  # how long the group must be stable: a job that moves has more workers only for a moment

Change = Callable[[], tuple[bool, str]]  # returns whether the network was changed, and what to report


def consent(script: bool, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether both the script and the job file allow growth."""
    return script and bool(_growth_options(environment).get("allowed"))


class Growth:
    """Decides when to grow and shrink, makes all workers do the same, and keeps a record in the job's state."""

    def __init__(
        self,
        session: Session,
        watch: Callable[[Sequence[Parameter]], None],
        done: Callable[[], Done],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        if session.settings.exact:
            raise InputError(
                "exact=True and grow=True exclude each other, because growth depends on what happens to the job",
                hint="leave one of them out",
            )
        from argosy.sdk.growth.grower import warm_up

        warm_up()
        self._session, self._watch, self._done = session, watch, done
        self._allowed = consent(True, environment)
        self._scheduler = JobScheduler(_growth_options(environment).get("time_budget"), done)
        self._grower: Grower | None = None
        self._guard = _guard(environment)
        self._rolled_back = ""  # why growth was rolled back
        self._harm = ""  # what growth has done, as far as rank 0 knows
        self._judged = 0.0  # epochs of training when growth was last judged
        self._refusal = "no network was passed to job.setup"
        self._turns: int | None = None  # steps since the number of workers changed; None: the change was handled
        self._resized_at = 0.0
        self._seen = self._stepped = 0
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
                return  # setup was called again with objects that do not matter here
            self._grower.close()
            self._grower = None
        elif not self._refusal:
            try:
                self._grower = Grower(training.modules[0], training.optimizers[0], self._guard)
            except GrowError as problem:
                self._refusal = str(problem)

    # -- the record in the job's state

    def state(self) -> dict[str, Any]:
        record = self._grower.state() if self._grower else {}
        about = {"rolled_back": self._rolled_back, "judged": self._judged}
        return self._scheduler.state() | about | record

    def load(self, state: Mapping[str, Any]) -> None:
        """Build the network that this state belongs to; its weights are loaded afterwards."""
        if not state:
            return
        self._scheduler.restore(state)
        self._rolled_back, self._judged = state["rolled_back"], state["judged"]
        if self._grower is None:
            if state.get("surgeries"):
                raise InputError(
                    f"the saved network has grown, but this one cannot grow: {self._refusal}",
                    hint="pass the same network and optimizer to job.setup as when it was saved",
                )
        elif "surgeries" in state and self._grower.load(state):
            self._use_new_parameters()

    # -- a growth on probation

    def note(self, metrics: Mapping[str, Any]) -> None:
        """Note what the script reports: its loss and its accuracy, if they have the usual names."""
        grower = self._grower
        if grower is None:
            return
        from argosy.grow import GrowError

        epoch, spent = self._session.training.position.epoch, self._scheduler.spent()
        score = next((metrics[name] for name in SCORES if metrics.get(name) is not None), None)
        try:
            if score is not None:
                grower.note_score(float(score), epoch, spent)
            if metrics.get("loss") is not None:
                grower.note(float(metrics["loss"]), epoch, spent)
        except GrowError as problem:
            self._harm = str(problem).split("\n")[0]
        except (TypeError, ValueError):
            return  # not a number

    def _judge(self) -> None:
        """Let rank 0 judge a growth on probation, and do on all workers what follows from that."""
        grower, group = self._grower, self._session.group
        if grower is None or grower.probation is None or self._session.training.step % ASK_EVERY:
            return
        if group.rank == 0:
            self._harm = self._harm or ("" if grower.is_finite else "a weight is not finite")
            if not self._harm and self._done().epochs >= self._judged + 1:
                self._judged = self._done().epochs
                self._harm = self._epoch_passed(grower)
        verdict = json.dumps([self._harm, grower.probation.over, self._judged]).encode() if group.rank == 0 else b""
        harm, over, self._judged = json.loads(group.broadcast_bytes(verdict, 0))
        if harm:
            self._rolled_back = harm
        if over or (harm and not self._together(lambda: self._roll_back(harm))):
            grower.passed()

    def _epoch_passed(self, grower: Grower) -> str:
        """Judge the epoch that has passed; return the harm that was done."""
        from argosy.grow import GrowError

        assert grower.probation is not None
        try:
            grower.probation.epoch(grower.take_score())
        except GrowError as problem:
            return str(problem).split("\n")[0]
        return ""

    def _roll_back(self, reason: str) -> tuple[bool, str]:
        self._harm = ""
        assert self._grower is not None
        return self._grower.roll_back(reason, self._times())

    # -- when to grow and shrink

    def _resized(self) -> None:
        """Note that the group of workers has changed."""
        self._scheduler.resized(self._session.group.world)
        self._turns, self._resized_at = 0, time.monotonic()
        self._seen = self._stepped = self._session.training.step

    def _between(self) -> None:
        """Grow or shrink if it is time. All workers call this after the same steps, so all act after the same one."""
        step, scheduler = self._session.training.step, self._scheduler
        if step != self._stepped:
            self._stepped = step
            if self._grower is not None:
                self._grower.rate.step()
            self._judge()
        if self._turns is None or step == self._seen:  # the workers have not changed, or the step is not complete
            return
        self._seen, self._turns = step, self._turns + 1
        back = scheduler.wants_back() and self._grower is not None and self._grower.is_grown
        if self._turns < (SHRINK_AFTER if back else GROW_AFTER) or self._turns % ASK_EVERY or not self._settled():
            return
        before, self._turns = scheduler.told, None
        if back:
            if self._together(self._shrink):  # otherwise, or if a worker dies meanwhile, it is still due
                scheduler.allocation()
            return
        if scheduler.allocation() == "up" and self._allowed:
            self._together(lambda: self._grow(max(before, scheduler.base)))

    def _settled(self) -> bool:
        """Return whether the group has been stable for long enough, according to the clock of rank 0."""
        settled = time.monotonic() - self._resized_at >= SETTLED_S
        return self._session.group.broadcast_bytes(b"yes" if settled else b"no", 0) == b"yes"

    def _grow(self, before: int) -> tuple[bool, str]:
        self._tell(f"spare slots: {before} → {self._scheduler.world} workers; the growth agent is asked")
        if self._grower is None:
            return False, f"the network stays as it is: {self._refusal}"
        if self._rolled_back and not self._guard.again:
            return False, f"the network stays as it is, because growth was rolled back before: {self._rolled_back}"
        self._harm, self._judged = "", self._done().epochs
        return self._grower.grow(self._times(), self._scheduler.gpus_gained(), self._done())

    def _shrink(self) -> tuple[bool, str]:
        world = self._scheduler.world
        workers = f"{world} worker{'s' if world > 1 else ''}"
        self._tell(f"spare slots are gone: {workers}; the network is distilled into the original one")
        assert self._grower is not None
        return self._grower.shrink(self._times(), self._hurry)

    def _together(self, change: Change) -> bool:
        """Let rank 0 change its network and send it to all workers. All return whether it was changed."""
        group, changed = self._session.group, False
        if group.rank == 0:
            try:
                changed, story = change()
            except Exception as problem:  # any error, as the script's code runs here; training can go on
                reason = str(problem).strip().split("\n")[0][:300] or type(problem).__name__
                story = f"the network stays as it is: {reason}"
            self._tell(story)
        if changed:
            self._use_new_parameters()
        changed = group.broadcast_bytes(b"changed" if changed else b"as before", 0) == b"changed"
        if group.world > 1 and changed:
            hand_over(group, 0, self._session.training)
        return changed

    def _use_new_parameters(self) -> None:
        """Give the new parameters of the network to the hooks and the combiner."""
        training = self._session.training
        self._watch(training.parameters)
        training.combiner.bind(training.modules, training.parameters)

    def _times(self) -> Times:
        """Return the time left: by the job file's budget or, without one, by the progress so far."""
        from argosy.sdk.growth.grower import Times

        scheduler = self._scheduler
        return Times(scheduler.time_left(), scheduler.time_budget(), scheduler.epoch_s)

    def _hurry(self) -> bool:
        """Return whether the job is about to suspend or change its slots, and should not wait for a distillation."""
        control = self._session.control
        if control is None:
            return self._session.suspend_wish
        return control.suspending or control.newest > self._session.members.plan.version

    def _tell(self, text: str) -> None:
        self._session.tell("story", text=text)
        print(f"argosy: {text}", file=sys.stderr, flush=True)


def _growth_options(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the job file says about growth."""
    options = json.loads(environment.get("ARGOSY_GROW") or "{}")
    return options if isinstance(options, dict) else {}


def _guard(environment: Mapping[str, str]) -> Guard:
    """Return how growth is watched, as the job file says."""
    from argosy.grow import Guard

    options = _growth_options(environment)
    return Guard(**{name: options[name] for name in ("probation", "memory_gib", "again") if name in options})


def _refusal(modules: Sequence[Module], optimizers: Sequence[Optimizer]) -> str:
    """Return why this script's network cannot grow; empty if it can."""
    if len(modules) != 1 or len(optimizers) != 1:
        return f"growth needs one network and one optimizer, but job.setup got {len(modules)} and {len(optimizers)}"
    if hasattr(modules[0], "_orig_mod"):
        return "a network compiled by torch.compile cannot grow"
    own = set(modules[0].parameters())
    if not any(parameter in own for group in optimizers[0].param_groups for parameter in group["params"]):
        return "the optimizer has none of the network's parameters"
    return ""
