"""The policy that an environment gives to the engine in place of the learner.

The engine asks it like any other policy. Where the learner decides, the learner's answer replaces this policy's before
the clock moves; all other decisions are this policy's own. With a policy `under` it, order, placement, timers and the
answers between two time slots come from that policy, so that a learned sizer can be combined with any other policy
without new code. A policy that plans can only advise a sizer; its plans are not carried out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.learn.envs.implied_sizes import planned_sizes, requested_sizes
from argosy.policies.base import Event, Floats, Ints, Policy, Sizes
from argosy.policies.common.demands import DemandReader, Demands
from argosy.policies.common.sizes import current_sizes
from argosy.policies.common.time_slots import between_slots, slot_at

# "rate" has the speeds of machines as measured through their jobs; the true speeds ("speed") are not shown
SEES = frozenset({"demand", "service", "placement", "progress", "estimate", "nodes", "rate"})


class EnvPolicy(Policy):
    """Ranks as the policy under it does, or by arrival; keeps all sizes, or takes them from that policy."""

    name = "environment"

    def __init__(
        self, under: Policy | None, *, slot_s: float, sizing: bool, newcomers: str = "wait", cap: int = 1
    ) -> None:
        """With `sizing`, running jobs may be resized and stopped; otherwise they go on as they are.

        `slot_s`: the policy is asked at least at the beginning of each time slot; 0: whenever something happens.
        `newcomers`: what jobs do that arrive between two time slots if there is no policy under this one: "wait", or
        "start" at their smallest size, with at most `cap` workers.
        """
        planner = under if sizing and under is not None and "plan" in under.answers else None
        under = under if planner is None else None
        if under is not None and "plan" in under.answers:
            raise InputError(
                f"the policy {under.name} decides everything at once, and leaves a learner nothing to decide",
                hint="choose a policy that ranks, or let it decide alone with autopilot=True",
            )
        if under is not None and "bid" in under.answers:
            hint = "use mode='bid', in which a learner values the bids, or a policy that ranks"
            raise InputError(f"the policy {under.name} bids for sizes and GPU types", hint=hint)
        if under is not None and not sizing and (under.preemptive or "size" in under.answers):
            raise InputError(
                f"the policy {under.name} preempts or resizes jobs, which a learner that picks jobs cannot do",
                hint="choose a policy that does not, or let it decide alone with autopilot=True",
            )
        self.under, self.planner, self.slot_s = under, planner, slot_s
        self._newcomers, self._cap = newcomers, cap
        self.uses = SEES.union(*(policy.uses for policy in (under, planner) if policy is not None))
        self.preemptive = under.preemptive if under else sizing
        if under is not None:
            self.backfill, self.placer, self.every_s = under.backfill, under.placer, under.every_s
        theirs = under.answers & {"place", "on_event"} if under is not None else frozenset()
        self.answers = frozenset({"rank", "wake_at"} | ({"size"} if sizing else set())) | theirs
        self.advised_key: Floats = np.zeros(0)  # the last answer of the policy under it
        self.advised: Sizes | None = None
        self.wake: float | None = None

    def reset(self, context: Context) -> None:
        self._context = context
        self._demand_reader = DemandReader(context, self._cap)
        if self.under is not None:
            self.under.reset(context)

    def rank(self, view: View) -> Floats:
        if self.under is not None:
            self.advised_key = self.under.rank(view)
            return self.advised_key
        self.advised_key = view.jobs.submitted
        if self._newcomers == "wait":
            return self.advised_key
        key, self._kept = between_slots(view, self._demand_reader, self._newcomers)
        return key

    def size(self, view: View) -> Sizes:
        self.advised = self.under.size(view) if self.under is not None and "size" in self.under.answers else None
        if self.advised is None:
            return current_sizes(view) if self._newcomers == "wait" else self._kept
        if self.advised.servers is None:  # as requested, whatever the learner granted in the last time slot
            self.advised = replace(self.advised, servers=view.jobs.ps)
        return self.advised

    def place(self, view: View) -> Ints:
        assert self.under is not None
        return self.under.place(view)

    def on_event(self, event: Event) -> None:
        assert self.under is not None
        self.under.on_event(event)

    def wanted(self, view: View, needs: Demands, there: Floats) -> Sizes | None:
        """Return what the policy under it, or the planner, would give to each job now; None if there is neither."""
        under, planner = self.under, self.planner
        if planner is not None:
            planner.reset(self._context)  # it remembers plans that were not carried out
            return planned_sizes(view, planner.plan(view))
        if under is None or self.advised is not None:
            return self.advised
        key = self.advised_key
        return requested_sizes(view, key, needs, there, preemptive=under.preemptive, backfill=under.backfill)

    def wake_at(self, view: View) -> float | None:
        under, wake = self.under, None
        if under is not None and ("wake_at" in under.answers or under.every_s < np.inf):
            wake = under.wake_at(view)
        if self.slot_s and len(view.jobs):
            slot = (slot_at(view.now, self.slot_s) + 1) * self.slot_s
            wake = slot if wake is None else min(wake, slot)
        self.wake = wake
        return wake


def as_driver(policy: Policy) -> Policy:
    """Prepare a policy that decides alone: its view has what an environment observes, and it is asked every time."""
    policy.uses = policy.uses | SEES
    policy.static = False  # the shortcut would skip decisions at which an environment stops; results are the same
    return policy
