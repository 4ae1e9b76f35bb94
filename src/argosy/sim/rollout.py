"""Roll-outs: what would happen from the present state of an engine on, if jobs had these lengths.

A roll-out copies the world of an engine and lets its clock run on under a policy. Policies whose order is fixed, a
column of the jobs, or compiled code are followed in compiled code alone; others are asked at each decision, as in a
simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from argosy.mechanism.kernels import layout as L
from argosy.mechanism.world import Floats
from argosy.mechanism.world_copy import WorldCopy, first_starts, rank_by, set_work
from argosy.policies.base import Policy
from argosy.sim.configure import configure, make_context
from argosy.sim.engine import Engine
from argosy.sim.event_feed import EventFeed
from argosy.sim.order_in_kernels import is_ranked_in_kernels, use_order
from argosy.sim.views import view_of_active, view_on_arrival


@dataclass(frozen=True, slots=True)
class Outcome:
    """When jobs started next and ended in one roll-out: first the active ones by row, then those that arrived later."""

    start_s: Floats  # NaN: not before the horizon
    end_s: Floats


class RollOuts:
    """Roll-outs of one engine under one policy, each from the state in which the engine was."""

    def __init__(self, engine: Engine, policy: Policy, state: dict[str, Any], later: Floats | None = None) -> None:
        """Prepare. `state` is the policy's memory; `later` are jobs that arrive later, as columns of the trace."""
        self._policy, self._state = policy, state
        self._copy = WorldCopy(engine.world, later)
        self.engine = fork = engine.forked(policy, self._copy.world)
        self.jobs = self._copy.jobs  # indices, in the order of `Outcome`
        self._prepare(fork)

    def _prepare(self, fork: Engine) -> None:
        """Set what depends on the policy, and settle the accounts of running jobs at the modelled speeds."""
        policy, w = self._policy, fork.world
        running = w.ji[L.STATE, : w.si[L.ACTIVE]] == L.RUNNING
        rate = w.jf[L.RATE, : w.si[L.ACTIVE]].copy()
        w.si[L.DERIVE] = 0
        configure(w, fork.settings, policy, oracle=False, watched=True)
        fork.context = make_context(w, fork.names, fork.tables, fork.cluster, policy, fork.settings)
        self._reset(fork)
        if "place" in policy.answers and fork.settings.placer == "policy":
            codes = np.asarray(policy.place(view_on_arrival(fork, w.tr[:, self.jobs], self.jobs)))
            fork.place_codes.learn(w._replace(tr=w.tr[:, self.jobs]), self.jobs)
            w.tr[L.STATIC_F + L.WANT_PLACE, self.jobs] = fork.place_codes.checked(codes, self.jobs, w)
            w.ji[L.WANT_PLACE, : w.si[L.ACTIVE]] = w.tr[L.STATIC_F + L.WANT_PLACE, w.ji[L.ID, : w.si[L.ACTIVE]]]
        asks = set(policy.answers) & {"size", "plan", "bid", "on_event"}
        fixed = policy.static or (bool(policy.key) and "rank" not in policy.answers)
        by_rank = fixed and not asks and "wake_at" not in policy.answers
        self._order = None if asks or by_rank else policy.compiled_order(w.tr.shape[1])
        self.compiled = by_rank or self._order is not None
        w.si[L.ORDER_FN] = 0
        if self._order is not None:
            use_order(fork, self._order)
            self._memory = self._order.memory.copy()
        elif self.compiled and policy.static:
            ranks = np.asarray(policy.rank(view_on_arrival(fork, w.tr[:, self.jobs], self.jobs)), float)
            rank_by(w, ranks, self.jobs)
        elif self.compiled:
            w.si[L.KEY_ROW] = L.COLUMNS_F[policy.key]
        w.sf[L.WAKE] = np.inf if self.compiled else w.sf[L.WAKE]
        w.si[L.DIRTY] = 1
        fork.kernel(L.OP_REPRICE)
        # `speed` is what a running job was measured to do, relative to its modelled speed
        modelled = w.jf[L.RATE, : w.si[L.ACTIVE]]
        with np.errstate(divide="ignore", invalid="ignore"):
            self.speed = np.where(running & (modelled > 0) & (rate > 0), rate / modelled, 1.0)
        self.left_s = w.jf[L.LEFT, : w.si[L.ACTIVE]].copy()
        self.done_s = w.jf[L.WORK, : w.si[L.ACTIVE]] - self.left_s
        self._copy.keep(w)

    def _reset(self, fork: Engine) -> None:
        policy = self._policy
        policy.reset(fork.context)
        if self._state:
            policy.restore(self._state)
        fork.event_feed = EventFeed(policy)
        fork.view = view_of_active(fork)

    def decide_now(self) -> Floats:
        """Return the GPUs that each active job, by row, would hold after a decision at this instant."""
        fork = self.engine
        fork.world = self._copy.begin_anew(fork.world)
        fork.world.sf[L.UNTIL] = fork.now
        fork.world.si[L.ORDER_FN] = 0  # the policy itself is asked, because the caller may want its memory
        self._go_on()
        w = fork.world
        held = np.zeros(int(w.si[L.ACTIVE]))
        held[:] = w.jf[L.HELD, w.so[self.jobs[: len(held)]]]
        return held

    def _go_on(self) -> None:
        """Let time pass until UNTIL."""
        fork = self.engine
        if is_ranked_in_kernels(fork.world):
            fork.advance()
            return
        while fork.advance():
            fork.ask()

    def run(self, left_s: Floats, work_s: Floats, until_s: float) -> Outcome:
        """Let time run until all jobs have ended, or `until_s`.

        `left_s` is the work that active jobs have left, by row, `work_s` the whole work of those that arrive later.
        """
        fork = self.engine
        fork.world = w = self._copy.begin_anew(fork.world)
        active = len(left_s)
        set_work(w, left_s / self.speed, self.jobs[active:], work_s)
        w.sf[L.UNTIL] = until_s
        if self._order is not None:
            self._order.memory[:] = self._memory
        elif not self.compiled:
            self._reset(fork)
        fork.kernel(L.OP_REPRICE)
        self._go_on()
        w = fork.world
        starts = first_starts(w, w.tr.shape[1])
        return Outcome(starts[self.jobs], w.rs[L.R_FINISH, self.jobs].copy())
