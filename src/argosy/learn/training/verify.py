"""Check that weights are those of their recipe, by training again with the same number of updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from argosy.errors import InputError
from argosy.learn.training.progress import ProgressListener
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.train import train
from argosy.zoo import Weights

TOLERANCE = 0.02


@dataclass(frozen=True)
class Verified:
    """Holds both scores, mean completion times divided by the floor: smaller is better."""

    shipped: float
    again: float
    same: bool  # bit for bit

    @property
    def reached(self) -> bool:
        return self.again <= self.shipped * (1 + TOLERANCE)


def recipe_of(weights: Weights) -> tuple[Recipe, float]:
    """Return how the weights were made, and their score."""
    try:
        return Recipe.from_dict(weights.about["recipe"]), float(weights.about["score"]["score"])
    except (KeyError, TypeError, ValueError):
        hint = "only weights that `argosy train` wrote can be made again"
        raise InputError("these weights do not say how they were made", where=weights.source, hint=hint) from None


def verify(
    weights: Weights,
    *,
    data: Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    progress: ProgressListener | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Verified:
    """Train again by the recipe of these weights, and compare."""
    recipe, shipped = recipe_of(weights)
    again = train(recipe, data=data, workers=workers, ray=ray, progress=progress, say=say)
    if again.weights is None or again.best is None:
        raise InputError("training was interrupted, so nothing is verified", hint="let it run to its end")
    mine, theirs = again.weights.arrays, weights.arrays
    same = mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)
    return Verified(shipped, again.best.score, same)
