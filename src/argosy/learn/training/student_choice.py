"""Which student belongs to a recipe: one for systems that grant units, one for systems that value bids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from argosy.learn.training.cases import SIZERS, TrainingCases
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.student import Arrays, Student, Trainable, Vector
from argosy.policies.base import Policy, create
from argosy.policies.joint import Joint
from argosy.policies.learned.argonaut import Argonaut
from argosy.policies.learned.bid_network import BidNetwork, first_weights

if TYPE_CHECKING:
    import torch

    from argosy.learn.networks import Actor

RULE = ("urgency", "stay", "relative", "elastic")
OUTER_UNITS = {  # by option: the weights on features and hidden units of jobs, which order them, and of bids
    "order": {"t": 2.0, "v": 1.0},
    "size": {"s": 1.0, "w": 1.0},
}


@dataclass(frozen=True)
class BidStudent:
    """Makes networks and policies that value bids. It is sent to other processes, some without torch."""

    seed: int
    cap: int
    rule: Mapping[str, float] = field(default_factory=dict)  # parameters of `joint` that the first weights follow

    def policy(self, arrays: Mapping[str, NDArray[np.float32]]) -> Policy:
        """Return the policy with these weights. It does not pack: what a pair is worth is not learned."""
        return Argonaut(BidNetwork(arrays), pack=False)

    def actor(self, generator: torch.Generator) -> Actor:
        """Return a new network, which bids as `joint` does."""
        from argosy.learn.networks import BidActor

        return BidActor(first_weights(self.seed, **self.rule))

    def scale(self, arrays: Arrays, options: Mapping[str, float]) -> Vector | None:
        """Return in which units evolution changes each weight, 0: not at all.

        Hidden layers change by `inner`, the weights that order jobs by `order`, those that choose among a job's bids by
        `size`. With few weights to change, a generation tells much more about each of them.
        """
        units = dict.fromkeys(arrays, float(options["inner"]))
        for option, outer in OUTER_UNITS.items():
            units |= {name: unit * float(options[option]) for name, unit in outer.items()}
        return np.concatenate([np.full(array.size, units[name]) for name, array in arrays.items()])

    def about(self) -> dict[str, Any]:
        """Return what a file of weights says about them."""
        return {"network": BidNetwork.kind}


def student_of(recipe: Recipe, cases: TrainingCases) -> Trainable:
    """Return the student of a recipe's system. One that bids begins as its teacher, if that is `joint`."""
    if recipe.system in SIZERS:
        return Student.of(recipe, cases)
    teacher = create(recipe.teacher)
    rule = {name: getattr(teacher, name) for name in RULE} if isinstance(teacher, Joint) else {}
    return BidStudent(recipe.seed, recipe.cap, rule)
