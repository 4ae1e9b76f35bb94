"""The policy that an environment gives to the engine in place of a learner that values bids.

The engine asks it like any other policy that bids. It makes no bids of its own; the learner's bids replace its answer
before the clock moves. With a policy `under` it, which must bid too, timers are that policy's, and its bids are known
for advice.
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.mechanism.bids import Bids
from argosy.policies.base import Event, Policy
from argosy.policies.common.bidder import Bidder

EVERY_S = 600.0  # how often the learner is asked if nothing happens
NOBODY = Bids(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))


class BidEnvPolicy(Policy):
    """Bids nothing, and keeps the timers."""

    name = "environment"
    key = "submitted"  # an answer that costs nothing, and is always replaced
    preemptive = True

    def __init__(self, under: Policy | None) -> None:
        """Take the timers of the policy under it, or ask every ten minutes."""
        if under is not None and "bid" not in under.answers:
            raise InputError(
                f"the policy {under.name} does not bid, so a learner that values bids cannot replace its decisions",
                hint="choose a policy that bids, such as joint, or let it decide alone with autopilot=True",
            )
        self.under = under
        self.uses = Bidder.uses | {"nodes"} | (under.uses if under is not None else frozenset())
        if under is not None:
            self.placer, self.preemptive, self.hears = under.placer, under.preemptive, under.hears
        if under is None or "on_event" not in under.answers:
            self.answers -= {"on_event"}  # passing every event to a policy is costly
        self.advised: Bids | None = None  # the last bids of the policy under it
        self.wake: float | None = None

    def reset(self, context: Context) -> None:
        if self.under is not None:
            self.under.reset(context)

    def bid(self, view: View) -> None:
        if self.under is not None:
            advised = self.under.bid(view)
            self.advised = advised.by_job() if advised is not None else None

    def on_event(self, event: Event) -> None:
        if self.under is not None:
            self.under.on_event(event)

    def wake_at(self, view: View) -> float | None:
        under = self.under
        if under is None:
            self.wake = view.now + EVERY_S if len(view.jobs) else None
        elif "wake_at" in under.answers or under.every_s < np.inf:
            self.wake = under.wake_at(view)
        return self.wake
