"""check_policy passes every policy that ships, and names what is wrong with those that are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from argosy.cluster.view import Context, View
from argosy.errors import PolicyError, UndeclaredInformation
from argosy.policies.base import POLICIES, Event, Floats, Policy, Sizes
from argosy.seeding import stream
from argosy.sim.check import check_policy


@pytest.mark.parametrize("name", list(POLICIES))
def test_policies_that_ship_keep_the_contract(name: str) -> None:
    checked = check_policy(name)
    assert checked.decisions > 0
    assert checked.unread == ()  # nobody declares information without looking at it


@pytest.mark.parametrize("spec", ["fair:inner=srtf:by=user", "fair:inner={las:quantum_s=3}", "drf:slot_s=7"])
def test_and_with_parameters(spec: str) -> None:
    assert check_policy(spec).unread == ()


class Good(Policy):
    name = "good"

    def rank(self, view: View) -> Floats:
        return view.jobs.submitted


class Nan(Good):
    def rank(self, view: View) -> Floats:
        return view.jobs.submitted * np.nan


class Infinite(Good):
    def rank(self, view: View) -> Floats:
        return np.where(view.jobs.gpus > 1, np.inf, 0.0)


class Short(Good):
    def rank(self, view: View) -> Floats:
        return view.jobs.submitted[:1]


class Peeking(Good):
    def rank(self, view: View) -> Floats:
        return view.jobs.remaining_s


class Greedy(Good):
    uses = frozenset({"demand", "duration"})


class Breaking(Good):
    def rank(self, view: View) -> Floats:
        return np.full(len(view.jobs), view.jobs.submitted.min())  # no jobs, no minimum


class Scribbling(Good):
    def rank(self, view: View) -> Floats:
        view.jobs.submitted[:] = 0.0
        return view.jobs.submitted


class Forgetful(Good):
    """A policy whose order depends on the number of calls in all runs."""

    calls = 0

    def rank(self, view: View) -> Floats:
        self.calls += 1
        return view.jobs.index * (1.0 if self.calls % 7 else -1.0)


class Drawing(Good):
    """A policy that draws random numbers without declaring it."""

    def reset(self, context: Context) -> None:
        self.seed = context.seed

    def rank(self, view: View) -> Floats:
        return stream(self.seed, "test").random(len(view.jobs))


class FalselyStatic(Good):
    static = True
    uses = frozenset({"demand", "service"})

    def rank(self, view: View) -> Floats:
        return np.asarray(view.jobs.waiting_s * (2 - view.jobs.gpus))


class StaticAndPreemptive(Good):
    static = True
    preemptive = True


class EagerAndSizing(Good):
    eager = True

    def size(self, view: View) -> Sizes:
        return Sizes(np.ones(len(view.jobs), np.int64))


class TooLarge(Good):
    def size(self, view: View) -> Sizes:
        return Sizes(np.full(len(view.jobs), 3))


class Starving(Good):
    def size(self, view: View) -> Sizes:
        return Sizes(np.where(view.jobs.index == 0, 1, 0))


class NotJson(Good):
    def state(self) -> dict[str, Any]:
        return {"seen": {1, 2}}


class Amnesiac(Good):
    def reset(self, context: Context) -> None:
        self.seen = 0

    def on_event(self, event: Event) -> None:
        self.seen += 1

    def state(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def restore(self, state: dict[str, Any]) -> None:
        self.seen = 0


class Nameless(Good):
    name = ""


class Idle(Policy):
    name = "idle"


class SizeOnly(Policy):
    name = "size-only"

    def size(self, view: View) -> Sizes:
        return Sizes(np.ones(len(view.jobs), np.int64))


class Clairvoyant(Good):
    uses = frozenset({"demand", "weather"})


class Elsewhere(Good):
    placer = "nearby"


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (Nan, "ranked job .* as NaN|is ranked nan"),
        (Infinite, "is ranked inf, which is not a finite number"),
        (Short, r"shape \(1,\) for 4 jobs"),
        (Peeking, "read 'remaining_s' but does not declare 'duration'"),
        (Breaking, "ValueError"),
        (Scribbling, "read-only"),
        (Forgetful, "another result on the second run"),
        (Drawing, "declare seeded = True"),
        (FalselyStatic, "declares static, but being asked at every decision changes the result"),
        (StaticAndPreemptive, "static key but is preemptive"),
        (EagerAndSizing, "declares eager"),
        (TooLarge, r"3 GPUs for job .*, which takes 1\.\.1"),
        (Starving, "waiting for ever"),
        (NotJson, "not JSON"),
        (Amnesiac, "differs after restore"),
        (Nameless, "has no name"),
        (Idle, "implements neither rank nor bid nor plan"),
        (SizeOnly, "implements neither rank nor bid nor plan"),
        (Clairvoyant, r"unknown information \['weather'\]"),
        (Elsewhere, "unknown placer 'nearby'"),
    ],
)
def test_what_is_wrong_is_named(policy: type[Policy], problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        check_policy(policy())


def test_an_error_says_on_which_trace() -> None:
    with pytest.raises(UndeclaredInformation, match=r"\[trace 'one job'\]"):
        check_policy(Peeking())


def test_unread_information_is_reported() -> None:
    assert check_policy(Greedy()).unread == ("duration",)


def test_only_policies_can_be_checked() -> None:
    with pytest.raises(PolicyError, match="is not a Policy"):
        check_policy(len)  # type: ignore[arg-type]
