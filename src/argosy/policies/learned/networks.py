"""The networks of the learned sizers, in the form in which they decide.

    table    DL2's network: J jobs in a table of J × (L + 5) numbers, two layers, an output for each of 3J + 1 actions
    score    one small network for every job and size, which also sees the mean over all jobs; the same weights for
             any number of jobs and any cluster. Units go to the highest score; none below 0 is granted, except the
             one that makes a job run (the score floor)

`grant` divides a whole time slot in compiled code, for policies; `choose` takes one step in an environment. The forward
passes are in `argosy.policies.learned.forward`, which training uses too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.policies.base import Floats, Ints
from argosy.policies.common.demands import Demands
from argosy.policies.learned.features import WORKERS, JobFeatures, Matrix
from argosy.policies.learned.forward import (
    NUMPY,
    SCORE_INPUTS,
    SIZE_FEATURES,
    TABLE_INPUTS,
    score_outputs,
    table_outputs,
)
from argosy.policies.learned.kernels.constants import KINDS, LEAST_SCORE
from argosy.zoo import Weights, find

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Grants:
    """What each job gets, and how many jobs were served before its first grant (all of them: it had no grant)."""

    workers: Ints
    servers: Ints
    order: Ints


def _division(
    needs: Demands, first: Flags, free: Floats, grants: Grants
) -> tuple[Ints, Floats, Floats, Floats, Ints, Ints, Ints, Flags]:
    """Return the first arguments of both kernels, in their order: a time slot in which nothing is granted yet."""
    used = np.zeros((len(needs.rows), 3))
    return needs.counts, needs.amounts, free.copy(), used, grants.workers, grants.servers, grants.order, first


class Network:
    """What the two networks have in common: arrays of fixed shapes, and what they were trained for."""

    kind: ClassVar[str]
    context: ClassVar[bool]  # whether it sees the context columns, about the cluster
    shapes: ClassVar[dict[str, str]]  # dimensions of each array, by letter; a letter always stands for one number

    def __init__(self, arrays: Mapping[str, Matrix], types: tuple[str, ...], cap: int) -> None:
        self.types, self.cap = types, cap
        self.arrays = {name: np.ascontiguousarray(arrays[name], np.float32) for name in self.shapes}

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Return the network with these weights; raise InputError if they are for another network."""
        raise NotImplementedError

    @classmethod
    def find(cls, weights: str | Self) -> Self:
        """Return the network for a weights file or the name of shipped weights; a network is returned as it is."""
        return cls.of(find(weights)) if isinstance(weights, str) else weights

    def grant(self, features: JobFeatures, needs: Demands, first: Flags, free: Floats, per_share: Floats) -> Grants:
        """Divide a time slot among the jobs; those that are `first` get their smallest size before all others."""
        raise NotImplementedError

    def logits(self, observation: Matrix) -> Matrix:
        """Return one number for each action, from a table of jobs."""
        raise NotImplementedError

    def choose(self, observation: Matrix, mask: Flags) -> int:
        """Return the likeliest action that is possible: one step of what `grant` does."""
        return int(np.where(mask, self.logits(observation), -np.inf).argmax())

    @classmethod
    def check(cls, weights: Weights) -> dict[str, int]:
        """Return the sizes by letter; raise InputError if the weights are for another network."""
        hint = f"these arrays make a {cls.kind!r} network: {', '.join(f'{k} {v}' for k, v in cls.shapes.items())}"
        if weights.network != cls.kind:
            what = f"these weights are for a {weights.network!r} network, and a {cls.kind!r} network is needed"
            raise InputError(what, where=weights.source, hint="name weights that were trained for this policy")
        sizes: dict[str, int] = {}
        for name, letters in cls.shapes.items():
            array = weights.arrays.get(name)
            if array is None or array.ndim != len(letters):
                raise InputError(f"the weights have no valid array {name!r}", where=weights.source, hint=hint)
            for letter, size in zip(letters, array.shape):
                if sizes.setdefault(letter, size) != size:
                    what = f"the array {name!r} has the shape {array.shape}, which does not fit the others"
                    raise InputError(what, where=weights.source, hint=hint)
        types, cap = weights.about.get("types"), weights.about.get("cap")
        good_types = isinstance(types, list) and types and all(isinstance(t, str) for t in types)
        if not good_types or not isinstance(cap, int) or not 1 <= cap <= 1024:
            what = "the weights do not say for which job types and sizes they were trained"
            raise InputError(what, where=weights.source, hint=hint)
        return sizes


class TableNetwork(Network):
    """DL2's network."""

    kind, context = "table", False
    shapes: ClassVar[dict[str, str]] = {"w1": "ih", "b1": "h", "w2": "hk", "b2": "k", "w3": "ka", "b3": "a"}

    def __init__(self, arrays: Mapping[str, Matrix], types: tuple[str, ...], cap: int) -> None:
        super().__init__(arrays, types, cap)
        self.rows = (len(self.arrays["b3"]) - 1) // KINDS

    @classmethod
    def of(cls, weights: Weights) -> Self:
        sizes, types = cls.check(weights), tuple(weights.about.get("types", ()))
        rows, rest = divmod(sizes["a"] - 1, KINDS)
        if rest or sizes["i"] != rows * (len(types) + TABLE_INPUTS):
            what = f"{sizes['i']} inputs and {sizes['a']} outputs do not match for {len(types)} job types"
            raise InputError(what, where=weights.source, hint="they were trained with other types: train again")
        return cls(weights.arrays, types, weights.about["cap"])

    def grant(self, features: JobFeatures, needs: Demands, first: Flags, free: Floats, per_share: Floats) -> Grants:
        from argosy.policies.learned.kernels.by_table import fill_by_table

        n, a = len(needs.rows), self.arrays
        grants = Grants(*np.zeros((3, n), np.int64))
        layers = [np.empty_like(a[b]) for b in ("b1", "b2", "b3")]
        scratch = [*layers, np.empty(max(map(len, layers)) + 1, np.int64)]
        fixed = features.fixed_columns(len(self.types))
        division = _division(needs, first, free, grants)
        fill_by_table(self.rows, self.cap, *division, per_share, fixed, *a.values(), *scratch)
        return Grants(grants.workers, grants.servers, np.arange(n))

    def logits(self, observation: Matrix) -> Matrix:
        return np.asarray(table_outputs(self.arrays, observation, NUMPY))


class ScoreNetwork(Network):
    """The network of dl2+."""

    kind, context = "score", True
    shapes: ClassVar[dict[str, str]] = {
        "w1": "ie",
        "b1": "e",
        "w2": "eh",
        "wc": "eh",
        "b2": "h",
        "w3": "sh",
        "w4": "hm",
        "b4": "m",
        "w5": "mk",
        "b5": "k",
    }

    @classmethod
    def of(cls, weights: Weights) -> Self:
        sizes, types = cls.check(weights), tuple(weights.about.get("types", ()))
        wanted = {"i": len(types) + SCORE_INPUTS, "s": SIZE_FEATURES, "k": KINDS}
        for letter, size in wanted.items():
            if sizes[letter] != size:
                what = f"a network for {len(types)} types has {size} where these weights have {sizes[letter]}"
                raise InputError(what, where=weights.source, hint="they were trained with other types: train again")
        return cls(weights.arrays, types, weights.about["cap"])

    def embed(self, features: JobFeatures) -> Matrix:
        """Return what does not change within a time slot, up to the first layer that sees the size: [job, hidden]."""
        from argosy.policies.learned.kernels.by_score import embed

        a, n = self.arrays, len(features.types)
        embedded = np.empty((n, len(a["b2"])), np.float32)
        embed(
            features.types,
            features.times,
            features.gpus_per_job,
            features.cpus_per_job,
            a["w1"],
            a["b1"],
            a["w2"],
            a["wc"],
            a["b2"],
            np.empty((n, len(a["b1"])), np.float32),
            np.empty_like(a["b1"]),
            np.empty_like(a["b2"]),
            embedded,
        )
        return embedded

    def grant(self, features: JobFeatures, needs: Demands, first: Flags, free: Floats, per_share: Floats) -> Grants:
        from argosy.policies.learned.kernels.by_score import fill_by_score

        n, a = len(needs.rows), self.arrays
        workers, servers, order, choice, heap = np.zeros((5, n), np.int64)
        grants = Grants(workers, servers, order)
        fill_by_score(
            *_division(needs, first, free, grants),
            self.embed(features),
            a["w3"],
            a["w4"],
            a["b4"],
            a["w5"],
            a["b5"],
            np.empty_like(a["b4"]),
            self.cap,
            np.empty(n, np.float32),
            choice,
            heap,
        )
        return grants

    def logits(self, observation: Matrix) -> Matrix:
        return np.asarray(score_outputs(self.arrays, observation, len(self.types), self.cap, NUMPY))

    def choose(self, observation: Matrix, mask: Flags) -> int:
        logits = self.logits(observation)
        idle = np.repeat(observation[:, len(self.types) + WORKERS] == 0, KINDS)
        logits[:-1] = np.where(idle, np.maximum(logits[:-1], np.float32(LEAST_SCORE)), logits[:-1])
        best = int(np.where(mask[:-1], logits[:-1], -np.inf).argmax())
        return best if mask[best] and logits[best] > 0 else len(mask) - 1
