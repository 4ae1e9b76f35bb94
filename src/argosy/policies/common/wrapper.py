"""The base of policies that contain another one: they change one thing, and leave all else to the policy inside."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Event, Policy, create, decides

MORE_THAN_ORDER = frozenset({"size", "place", "bid", "plan"})  # answers of policies that do not only order jobs


class Wrapper(Policy):
    """A policy with another one inside, which hears of events, sets timers and is saved as if it were alone."""

    inner: Policy

    def wrap(
        self,
        inner: str,
        takes: Collection[str],
        refuses: Collection[str] = MORE_THAN_ORDER,
        hint: str = "give a policy that only orders, such as srtf",
    ) -> None:
        """Create the inner policy; `takes` are the class attributes of `Policy` that hold for both.

        A policy with one of the answers that the wrapper `refuses` is an error, which ends with the hint.
        """
        self.inner = create(inner)
        if self.inner.answers & frozenset(refuses):
            raise InputError(f"{self.name}: the inner policy {inner!r} decides {decides(self.inner)}", hint=hint)
        self.uses = type(self).uses | self.inner.uses
        for name in (*takes, "seeded", "hears"):
            setattr(self, name, getattr(self.inner, name))
        if "on_event" not in self.inner.answers:
            self.answers -= {"on_event"}  # passing every event to a policy is costly

    def reset(self, context: Context) -> None:
        self.inner.reset(context)

    def wake_at(self, view: View) -> float | None:
        return self.inner.wake_at(view)

    def on_event(self, event: Event) -> None:
        self.inner.on_event(event)

    def state(self) -> dict[str, Any]:
        return self.inner.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.inner.restore(state)
