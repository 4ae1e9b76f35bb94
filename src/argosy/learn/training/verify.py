"""Are shipped weights what their recipe makes? They are made again, by the same number of updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from argosy.errors import InputError
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.train import train
from argosy.learn.training.watch import Watch
from argosy.zoo import Weights

TOLERANCE = 0.02


@dataclass(frozen=True)
class Verified:
    """Scores over the floor: smaller is better."""

    shipped: float
    again: float
    same: bool  # bit for bit

    @property
    def reached(self) -> bool:
        return self.again <= self.shipped * (1 + TOLERANCE)


def recipe_of(weights: Weights) -> tuple[Recipe, float]:
    """How they were made, and their score."""
    try:
        return Recipe.from_dict(weights.about["recipe"]), float(weights.about["score"]["score"])
    except (KeyError, TypeError, ValueError):
        hint = "only weights that `argosy train` has written can be made again"
        raise InputError("these weights do not say how they were made", where=weights.source, hint=hint) from None


def verify(
    weights: Weights,
    *,
    data: Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Verified:
    """Make them again."""
    recipe, shipped = recipe_of(weights)
    again = train(recipe, data=data, workers=workers, ray=ray, watch=watch, say=say)
    if again.weights is None or again.best is None:
        raise InputError("the training was interrupted, so nothing is verified", hint="let it run to its end")
    mine, theirs = again.weights.arrays, weights.arrays
    same = mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)
    return Verified(shipped, again.best.score, same)
