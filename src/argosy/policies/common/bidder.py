"""The base of policies whose bids depend on how much work jobs have left."""

from __future__ import annotations

from typing import Any

from argosy.cluster.view import View
from argosy.policies.base import Event, Policy
from argosy.policies.common.remaining_work import ENDS, RemainingWork


class Bidder(Policy):
    """A policy that bids, learns from the jobs that end, and bids anew after `every_s` if nothing happens."""

    uses = frozenset(
        {"demand", "service", "placement", "nodes", "profile", "rate", "progress", "declared", "overhead", "history"}
    )
    hears = ENDS
    preemptive = True

    remaining: RemainingWork  # set by `reset`

    def on_event(self, event: Event) -> None:
        self.remaining.on_event(event)

    def wake_at(self, view: View) -> float | None:
        return view.now + self.every_s if len(view.jobs) else None

    def state(self) -> dict[str, Any]:
        return self.remaining.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.remaining.restore(state)
