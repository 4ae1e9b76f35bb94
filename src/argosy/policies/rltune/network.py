"""RLTune's actor: a small network that gives every queued job a score, with the same weights for all jobs.

    score(j) = W4 relu(W3 relu(W2 relu(W1 x_j + b1) + b2) + b3) + b4        layers of 32, 16, 8 and 1 units

A softmax over the scores of the jobs that are shown is the probability with which each of them is picked.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.policies.common.scores import comparable
from argosy.zoo import Weights, find

Matrix: TypeAlias = NDArray[np.float32]

KIND = "rltune"  # what a file of weights says that it is for
INPUTS = 7  # features of a job
LAYERS = (INPUTS, 32, 16, 8, 1)
SHAPES: dict[str, tuple[int, ...]] = {
    name: shape
    for i, (before, after) in enumerate(pairwise(LAYERS), 1)
    for name, shape in ((f"w{i}", (before, after)), (f"b{i}", (after,)))
}


class Actor:
    """The network in the form in which it decides, in NumPy."""

    def __init__(self, arrays: Mapping[str, Matrix]) -> None:
        self.arrays = {name: np.ascontiguousarray(arrays[name], np.float32) for name in SHAPES}
        self._layers = [(self.arrays[f"w{i}"], self.arrays[f"b{i}"]) for i in range(1, len(LAYERS))]

    @classmethod
    def of(cls, weights: Weights) -> Actor:
        """Return the network with these weights; raise InputError if they are for another network or not finite."""
        if weights.network != KIND:
            what = f"these weights are for a {weights.network!r} network, and a {KIND!r} network is needed"
            raise InputError(what, where=weights.source, hint="name weights that were trained for this policy")
        for name, shape in SHAPES.items():
            array = weights.arrays.get(name)
            if array is None or array.shape != shape:
                has = "is missing" if array is None else f"has the shape {array.shape}"
                hint = f"RLTune's actor has layers of {', '.join(map(str, LAYERS[1:]))} units on {INPUTS} features"
                raise InputError(f"the array {name!r} {has}, it must be {shape}", where=weights.source, hint=hint)
            if not np.isfinite(array).all():
                hint = "they must be finite numbers: train again"
                raise InputError(f"the weights {name!r} are not finite", where=weights.source, hint=hint)
        return cls(weights.arrays)

    @classmethod
    def find(cls, weights: str | Actor) -> Actor:
        """Return the network for a weights file or the name of shipped weights; a network is returned as it is."""
        return cls.of(find(weights)) if isinstance(weights, str) else weights

    def scores(self, table: Matrix) -> NDArray[np.float64]:
        """Return the score of each job, a row of seven features."""
        x = table.astype(np.float64)
        for weight, bias in self._layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = self._layers[-1]
        return comparable((x @ weight + bias)[:, 0])


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probabilities with which jobs of these scores are picked."""
    powers = np.exp(scores - float(scores.max()))
    return np.asarray(powers / powers.sum())
