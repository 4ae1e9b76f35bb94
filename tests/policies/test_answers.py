"""A host calls the methods that a policy overrides, unless the class or the instance says otherwise."""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.policies.base import POLICIES, QUESTIONS, Floats, Policy, Sizes, create


class Ranks(Policy):
    def rank(self, view: View) -> Floats:
        return view.jobs.submitted


class RanksAndSizes(Ranks):
    def size(self, view: View) -> Sizes:
        return Sizes(np.ones(len(view.jobs), np.int64))


class SizesIfTold(RanksAndSizes):
    """A policy that sizes jobs only if a parameter is set."""

    answers = Ranks.answers

    def __init__(self, sizes: bool = False) -> None:
        if sizes:
            self.answers |= {"size"}


class Wakes(SizesIfTold):
    def wake_at(self, view: View) -> float | None:
        return view.now + 1.0


class Placing:
    """A mixin with `place`, which is not a policy by itself."""

    def place(self, view: View) -> Floats:
        return np.zeros(len(view.jobs))


class RanksAndPlaces(Placing, Ranks):  # type: ignore[misc]
    pass


def test_a_class_answers_what_it_and_its_bases_override() -> None:
    assert Policy.answers == frozenset()
    assert Ranks.answers == {"rank"} and RanksAndSizes.answers == {"rank", "size"}
    assert RanksAndPlaces.answers == {"rank", "place"}


def test_a_class_may_say_it_and_its_subclasses_follow() -> None:
    assert SizesIfTold.answers == {"rank"}
    assert Wakes.answers == {"rank", "wake_at"}


def test_an_instance_may_say_it_for_itself() -> None:
    assert SizesIfTold(True).answers == {"rank", "size"} and SizesIfTold().answers == {"rank"}
    assert Wakes(True).answers == {"rank", "size", "wake_at"} and Wakes.answers == {"rank", "wake_at"}


def test_parameters_change_answers_and_never_the_class() -> None:
    for spec in ("gavel-max-min:packing=true", "gavel-makespan:packing=true", "gavel-ftf:placement_aware=true"):
        policy = create(spec)
        assert type(policy) is POLICIES[spec.partition(":")[0]]
        assert ("plan" in policy.answers) == ("packing" in spec)
    assert "plan" not in create("gavel-max-min").answers


def test_every_policy_answers_something_that_a_host_asks() -> None:
    for name in POLICIES:
        policy = create(name)
        assert policy.answers <= set(QUESTIONS)
        assert policy.key or policy.answers & {"rank", "plan", "bid"}
