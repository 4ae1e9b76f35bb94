"""Evolution strategies for the two agents: changed weights run the same jobs, and the order of their costs counts.

Reference: Salimans et al., arXiv 1703.03864.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.algorithms.evolve import Evolution
from argosy.learn.training.dual_agent import runs
from argosy.learn.training.dual_agent.recipe import TRAINING_SEED, DualAgentRecipe
from argosy.policies.base import Floats
from argosy.policies.dual_agent.agents import ATTENTION, OUTER, SHAPES, Agents, first_weights


class TeamEvolution:
    """Improves both agents by evolution strategies."""

    def __init__(self, recipe: DualAgentRecipe) -> None:
        self.recipe = recipe
        start = first_weights(recipe.seed)
        unused = ATTENTION if recipe.squeeze == "mean" else ()
        factors = {name: 1.0 if name in OUTER else 0.0 if name in unused else recipe.inner for name in start}
        self._evolution = Evolution(
            np.concatenate([array.ravel() for array in start.values()]),
            pairs=max(recipe.runs // (2 * len(recipe.scenarios)), 1),
            sigma=recipe.sigma,
            lr=recipe.step,
            seeds=(TRAINING_SEED, 2 * TRAINING_SEED),
            seed=recipe.seed,
            scale=np.concatenate([np.full(array.size, factors[name]) for name, array in start.items()]),
        )

    def agents(self) -> Agents:
        """Return the policy's networks with the present weights."""
        return self._unpacked(self._evolution.vector)

    def update(self) -> dict[str, float]:
        """Run one generation, and learn from it."""
        return self._evolution.update(
            lambda vectors, seeds: np.array(
                [-np.log(runs.totals(self.recipe, self._unpacked(vector), list(seeds))) for vector in vectors]
            )
        )

    def _unpacked(self, vector: Floats) -> Agents:
        return Agents(unpack(vector), squeeze=self.recipe.squeeze)


def unpack(vector: Floats) -> dict[str, NDArray[np.float32]]:
    """Return the arrays of a vector of all weights."""
    if len(vector) != sum(int(np.prod(shape)) for shape in SHAPES.values()):
        raise InputError(f"the networks have other weights than {len(vector)}", hint="use this version's first_weights")
    arrays, at = {}, 0
    for name, shape in SHAPES.items():
        size = int(np.prod(shape))
        arrays[name] = vector[at : at + size].reshape(shape).astype(np.float32)
        at += size
    return arrays
