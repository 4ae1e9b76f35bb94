"""A worker's membership in plans: it joins, switches to the next plan, recovers from the loss of others, and leaves.

All of this happens between two steps of the training. All members of a group have the same state; new workers get it
from the member that has done the most steps, and the first worker of a run loads a checkpoint.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from argosy.errors import ArgosyError
from argosy.sdk.checkpoints import random_state
from argosy.sdk.checkpoints.manager import CheckpointManager
from argosy.sdk.checkpoints.transfer import hand_over
from argosy.sdk.control import Control, Plan
from argosy.sdk.data.seeds import derive, seed_all
from argosy.sdk.group import rendezvous
from argosy.sdk.group.process_group import Group, GroupBroken, dist
from argosy.sdk.offload import Offload
from argosy.sdk.settings import Settings
from argosy.sdk.training import Training

HEAR_S = 2.0  # a message of the supervisor reaches all workers within this time after the first
LAST_PLAN_S = 3.0  # how long a worker that should suspend waits for a recovery plan


class Leave(SystemExit):
    """Ends the process of a worker that leaves the job, normally with exit code 0."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)


class Membership:
    def __init__(self, settings: Settings, training: Training, control: Control | None) -> None:
        self.control, self.training = control, training
        self.checkpoints = CheckpointManager(settings, self.tell)
        self.group = Group(None, 0, 1)
        self.worker = control.worker if control else 0
        self.plan = Plan(0, (self.worker,))
        self.joined = False
        self.gap_s: float | None = None  # how long training was interrupted for the newest plan; None once reported
        self.resized: list[Callable[[], None]] = []
        self._seed = settings.seed
        self._has_state = False
        self._restored = False
        self._tried = 0  # the version of the newest plan that was tried
        self._rested = 0  # the number of the newest pause that was taken or missed

    @property
    def lost_somebody(self) -> bool:
        """Return whether the supervisor has reported the loss of a member, even if no call has failed yet."""
        return self.control is not None and self.control.recovering(self.plan.version)

    def tell(self, op: str, **fields: Any) -> None:
        if self.control is not None:
            self.control.send(op, **fields)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Report in heartbeats, inside the block, that this worker waits for others."""
        if self.control is None:
            yield
            return
        self.control.busy = False
        try:
            yield
        finally:
            self.control.busy = True

    def restore(self, early: bool = False) -> None:
        """Load the checkpoint, unless that was done; with `early`, only if all of the script's objects are known."""
        if not self._restored:
            self._restored = self.checkpoints.restore(self.training, early)

    # -- joining and switching

    def join(self) -> None:
        """Become a member before the first batch, and receive the state of the training."""
        if self.joined:
            return
        if self.control is None:
            self._gather_by_torchrun()
            self._take_up(self.plan, self.group, time.monotonic())
        else:
            self.tell("ready")
            self.settle()
        self.joined = True

    def switch(self, control: Control, version: int) -> bool:
        """Switch to a plan that all members agreed on. If this fails it returns False, and `settle` must be called."""
        started = time.monotonic()
        while version not in control.plans:  # another worker has received it earlier
            if control.lost:
                return True  # the supervisor is gone, so the plan will not come
            control.wait(lambda: version in control.plans, 1.0)
        plan = control.plans[version]
        self._tried = version
        if self.worker not in plan.members:
            self._go(plan)
        old_group, leavers = self.group, [one for one in self.plan.members if one not in plan.members]
        try:
            with self.waiting():
                group = rendezvous.form_group(plan, self.worker, partial(self._outdated, version))
                rendezvous.wait_for_leavers(plan, leavers)
                old_group.close()
                self._take_up(plan, group, started)
        except rendezvous.PlanVoid:
            old_group.abandon()
            return False
        except GroupBroken as problem:
            self.broke(problem)
            return False
        return True

    def settle(self) -> None:
        """Join the newest plan; wait for one if the newest was tried already."""
        started = time.monotonic()
        while True:
            plan = self._next_plan()
            self._tried = plan.version
            if self.worker not in plan.members:
                if self._has_state:
                    self._go(plan)
                continue
            try:
                with self.waiting():
                    group = rendezvous.form_group(plan, self.worker, partial(self._outdated, plan.version))
                    self._take_up(plan, group, started)
                return
            except rendezvous.PlanVoid:
                continue
            except GroupBroken as problem:
                self.plan = plan
                self.broke(problem)

    def rest(self) -> None:
        """Free the device for another job's turn, as all members agreed. Returns when it is our turn again."""
        control = self.control
        if control is None:
            return
        with self.waiting():
            # other workers may have received the request earlier
            control.wait(lambda: control.newest_rest > self._rested or control.suspending, HEAR_S)
            rest = self._offload_until_turn(control)
        if control.suspending:
            self.suspend()  # from host memory, because the device may be full
        if rest is not None:
            rest.end()

    def broke(self, problem: GroupBroken) -> None:
        """Abandon a broken group and report it to the supervisor."""
        self.group.abandon()
        if self.control is None:
            raise problem
        if not self.lost_somebody:  # otherwise the supervisor already knows
            self.tell("broken", version=self.plan.version, step=self.training.step, error=str(problem)[:500])

    def _gather_by_torchrun(self) -> None:
        """Make the group without a supervisor: this process alone, or the processes that torchrun started."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            store, rank, world = next(iter(dist.rendezvous("env://")))
            self.plan = Plan(0, tuple(range(world)))
            self.group = Group(dist.PrefixStore("argosy", store), rank, world)

    def _take_up(self, plan: Plan, group: Group, started: float) -> None:
        """Put the plan in force, and give all members the same state."""
        first = not self._has_state
        self.plan, self.group = plan, group
        self.training.batch = plan.batch or self.training.batch
        self.training.combiner.regroup(group)
        if self.control is not None:
            self.control.on_shut = group.shut
            self.control.drop_plans_before(plan.version)
        self._share_state(plan.recover)
        self.gap_s = 0.0 if first else time.monotonic() - started
        for call in self.resized:
            call()

    def _share_state(self, recover: bool) -> None:
        here = torch.tensor([int(self._has_state), self.training.step], dtype=torch.int64)
        found = [(bool(has), int(step)) for has, step in self.group.all_gather(here)]
        source = max(range(len(found)), key=lambda rank: (found[rank], -rank))
        if not found[source][0]:  # all workers are new, so rank 0 provides the state, from a checkpoint if there is one
            source = 0
            if self.group.rank == 0:
                self.restore()
        if self.group.world > 1 and (recover or not all(has for has, _ in found)):
            hand_over(self.group, source, self.training)
        elif len(set(found)) > 1:
            steps = [step for _, step in found]
            raise ArgosyError(f"the workers of one group have done different numbers of steps: {steps}")
        if not self._has_state:
            self._restore_random_state()
        self.training.random = []
        self._has_state = True
        if self.control is not None:
            self.control.step = self.training.step

    def _restore_random_state(self) -> None:
        """Restore the random state of this rank; if none was saved, give each rank other than 0 a seed of its own."""
        saved, rank = self.training.random, self.group.rank
        if rank < len(saved):
            random_state.restore(saved[rank])
        elif rank:
            seed_all(derive(self._seed, "rank", rank, self.training.step))

    def _outdated(self, version: int) -> bool:
        """Return whether to stop waiting for the other members of this plan, because it will not come into force."""
        control = self.control
        if control is None:
            return False
        return control.newest > version or control.lost or (control.suspending and not self._has_state)

    def _next_plan(self) -> Plan:
        """Return the newest plan that was not tried yet; wait for one if there is none."""
        control = self.control
        if control is None:
            raise GroupBroken("the group is broken, and without a supervisor it cannot be formed again")
        suspended: float | None = None
        with self.waiting():
            while control.newest <= self._tried:
                if control.lost:
                    return self._without_supervisor()
                if rest := self._offload_until_turn(control):
                    rest.end()
                if control.suspending:
                    suspended = suspended or time.monotonic()
                    if not self._has_state or time.monotonic() - suspended > LAST_PLAN_S:
                        self.leave_alone()
                    time.sleep(0.01)
                control.wait(lambda: control.newest > self._tried or control.suspending or control.rest > 0, 0.2)
        return control.plans[control.newest]

    def _offload_until_turn(self, control: Control) -> Offload | None:
        """Free the device, report it, and wait for our turn or a suspension. Returns None if no pause was requested.

        A request for another pause also ends the wait, because all members have to agree on it.
        """
        number, self._rested = control.rest, control.newest_rest
        if not number or control.lost:
            return None
        rest = Offload(self.training)
        control.send("rested", number=number, step=self.training.step)
        while not (control.rest != number or control.suspending or control.lost):
            control.wait(lambda: control.rest != number or control.suspending, 60.0)
        return rest

    def _without_supervisor(self) -> Plan:
        """Return a plan for this worker alone if it is the first one and has not begun; otherwise exit with code 1."""
        if self.worker == 0 and not self._has_state:
            return Plan(self._tried + 1, (0,))
        text = "argosy: a worker is lost, and without a supervisor the group cannot be formed again"
        print(text, file=sys.stderr, flush=True)
        raise Leave(1)

    # -- leaving

    def suspend(self) -> None:
        """Save and leave; all workers call this after the same step."""
        try:
            with self.waiting():
                saved = self.checkpoints.save(self.group, self.training)
        except GroupBroken as problem:
            self.broke(problem)
            self.leave_alone()
        self._left(saved if self.group.rank == 0 else None)
        raise Leave(0 if saved or self.group.rank or self.control else 143)

    def leave_alone(self) -> None:
        """Leave without the other workers, which cannot be reached; rank 0 saves the state it has."""
        first = self._has_state and self.group.rank == 0
        self._left(self.checkpoints.save(Group(None, 0, 1), self.training) if first else None)
        raise Leave

    def finish(self) -> None:
        """Report that the training is complete."""
        if self.control is not None and not self.control.lost:
            rendezvous.wait_for_others(self.plan, self.group.rank)
        self.tell("done")

    def close(self, in_order: bool) -> None:
        if self.control is not None:
            self.control.close()
        if in_order:
            self.group.close()
        else:  # the error may have interrupted a collective operation
            self.group.abandon()

    def _go(self, plan: Plan) -> None:
        """Leave, because this worker is not a member of the plan."""
        rendezvous.announce_leaving(plan, self.worker)
        self.tell("left", version=plan.version)
        raise Leave

    def _left(self, saved: bool | None) -> None:
        self.tell("left", version=self.plan.version, **({} if saved is None else {"saved": saved}))
