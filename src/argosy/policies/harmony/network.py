"""Harmony's two networks as they decide: the reward model, which predicts speeds, and the actor, which scores places.

`placement_counts` is the paper's matrix d, and `counts_beside` what the reward model reads of it for one job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.policies.base import Floats, Ints
from argosy.policies.common.scores import one_hidden_layer
from argosy.zoo import Weights

FEATURES = 10  # of a (job, place): the columns of `Harmony.features`
NETWORK = "harmony"
SHAPES = {"w1": "ih", "b1": "h", "w2": "h", "b2": "o", "v1": "fk", "c1": "k", "v2": "k", "c2": "o"}


def placement_counts(servers: int, jobs: int, tasks: Sequence[tuple[int, int, int, int]]) -> Ints:
    """Return d, the paper's matrix [M, 2N]: workers and parameter servers of each job on each server.

    `tasks` are (server, job, workers, parameter servers), all counted from 0.
    """
    d = np.zeros((servers, 2 * jobs), np.int64)
    for server, job, workers, ps in tasks:
        d[server, 2 * job] += workers
        d[server, 2 * job + 1] += ps
    return d


def counts_beside(d: Ints, types: Ints, known: int, server: int, job: int) -> NDArray[np.float32]:
    """Return what the reward model reads: the job's type, one of `known`, and the jobs of each type beside it.

    A job counts once, however many tasks it has there: on shared GPUs all of its tasks meet all of the other's.
    """
    there = (d[server].reshape(-1, 2).sum(axis=1) > 0).astype(np.float32)
    there[job] = 0.0
    beside = np.bincount(types, there, known)
    return np.concatenate([np.eye(known, dtype=np.float32)[types[job]], beside]).astype(np.float32)


@dataclass(frozen=True, eq=False)
class HarmonyNetwork:
    """The reward model and the actor, as they decide."""

    arrays: dict[str, NDArray[np.float32]]
    types: tuple[str, ...]  # the networks that the reward model knows

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Return the networks that these weights make; refuse those of another network."""
        hint = "name weights that were trained for harmony"
        if weights.network != NETWORK:
            what = f"these weights are for a {weights.network!r} network, and a {NETWORK!r} network is needed"
            raise InputError(what, where=weights.source, hint=hint)
        sizes: dict[str, int] = {"f": FEATURES, "o": 1}
        for name, letters in SHAPES.items():
            array = weights.arrays.get(name)
            fits = array is not None and array.ndim == len(letters)
            if array is None or not fits or any(sizes.setdefault(k, n) != n for k, n in zip(letters, array.shape)):
                raise InputError(f"the weights have no fitting array {name!r}", where=weights.source, hint=hint)
        types = weights.about.get("types")
        if not isinstance(types, list) or not all(isinstance(t, str) for t in types) or sizes["i"] != 2 * len(types):
            what = f"the weights do not name the {sizes['i'] // 2} types that they tell apart"
            raise InputError(what, where=weights.source, hint=hint)
        return cls({name: weights.arrays[name] for name in SHAPES}, tuple(types))

    def speeds(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the predicted speed of each row, relative to running alone; 1 where nobody is beside it."""
        a = self.arrays
        hidden = np.maximum(inputs.astype(np.float64) @ a["w1"] + a["b1"], 0.0)
        slower = np.logaddexp(0.0, hidden @ a["w2"] + a["b2"])
        alone = inputs[:, len(self.types) :].sum(axis=1) == 0
        return np.where(alone, 1.0, np.exp(-slower)).astype(np.float32)

    def pair_speeds(self, types: Ints) -> Floats:
        """Return [row, column] = predicted speed of a job of the row's type beside one of the column's.

        Beside an unknown type, -1, nothing can be predicted: the speed is 0, so that nobody is put there.
        """
        one = np.eye(len(self.types), dtype=np.float32)[types]
        n = len(types)
        rows = np.concatenate([np.repeat(one, n, axis=0), np.tile(one, (n, 1))], axis=1)
        known = (types[:, None] >= 0) & (types >= 0)
        return np.where(known, self.speeds(rows).reshape(n, n), 0.0).astype(np.float64)

    def scores(self, features: NDArray[np.float32]) -> Floats:
        return one_hidden_layer(features, self.arrays)

    def type_of(self, kind: str) -> int:
        """Return the number of a job's type, -1 if unknown; `kind` is its network's name, perhaps with a batch size."""
        name = kind.partition("@")[0]
        return self.types.index(name) if name in self.types else -1
