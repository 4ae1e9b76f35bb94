"""The networks of the learned sizers, as they decide: NumPy for what is done once a slot, kernels for the rest.

    table    DL2's: J jobs in a table of J × (L + 5) numbers, two layers, one output for each of 3J + 1 actions
    score    one small network for every job and size, which also sees the mean over all jobs; the same weights for
             any number of jobs and any cluster. Units go to the highest score; none below 0 is granted

`argosy.learn.networks` has the same networks for training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.policies.common.demands import Demands
from argosy.zoo import Weights, find

Matrix: TypeAlias = NDArray[np.float32]
KINDS = 3  # one more worker, one more server, one of both
SHARE_WORKERS_SERVERS = 3  # columns of a row that change within a slot
SCALE = 100.0  # slots that count as 1; the kernels know it too
CONTEXT = 3  # columns about the arrival and the crowd
SIZE_FEATURES = 6  # what the score network knows of a size


@dataclass(frozen=True, eq=False)
class Crowd:
    """The jobs of a slot, in order of arrival."""

    types: NDArray[np.int64]  # of the names that the network knows, -1: none of them
    times: Matrix  # [job, 3] in hundreds of slots: it has run; work left at the size it asked for; since it came
    gpus_per_job: float
    cpus_per_job: float
    guarded: NDArray[np.bool_]  # must not wait any longer

    def one_hot(self, count: int) -> Matrix:
        table = np.zeros((len(self.types), count), np.float32)
        known = np.flatnonzero(self.types >= 0)
        table[known, self.types[known]] = 1.0
        return table


@dataclass(frozen=True, eq=False)
class Grants:
    """What each job gets, and in which turn it was first served."""

    workers: NDArray[np.int64]
    servers: NDArray[np.int64]
    order: NDArray[np.int64]


class Network:
    """What the two have in common: arrays of fixed shapes, and what they were trained for."""

    kind: ClassVar[str]
    shapes: ClassVar[dict[str, str]]  # array: its dimensions, by letter; the same letter, the same number

    def __init__(self, arrays: Mapping[str, Matrix], types: tuple[str, ...], cap: int) -> None:
        self.types, self.cap = types, cap
        self.arrays = {name: np.ascontiguousarray(arrays[name], np.float32) for name in self.shapes}

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Return the network that these weights make; refuse those of another network."""
        raise NotImplementedError

    @classmethod
    def find(cls, weights: str | Self) -> Self:
        """Return the network of a file of weights or of shipped ones by name; a network stays as it is."""
        return cls.of(find(weights)) if isinstance(weights, str) else weights

    @classmethod
    def check(cls, weights: Weights) -> dict[str, int]:
        """The sizes by letter; refuses weights of another network."""
        hint = f"these arrays make a {cls.kind!r} network: {', '.join(f'{k} {v}' for k, v in cls.shapes.items())}"
        if weights.network != cls.kind:
            what = f"these weights are for a {weights.network!r} network, and a {cls.kind!r} network is needed"
            raise InputError(what, where=weights.source, hint="name weights that were trained for this policy")
        sizes: dict[str, int] = {}
        for name, letters in cls.shapes.items():
            array = weights.arrays.get(name)
            if array is None or array.ndim != len(letters):
                raise InputError(f"the weights have no array {name!r} that fits", where=weights.source, hint=hint)
            for letter, size in zip(letters, array.shape):
                if sizes.setdefault(letter, size) != size:
                    raise InputError(f"the array {name!r} has {array.shape}", where=weights.source, hint=hint)
        types, cap = weights.about.get("types"), weights.about.get("cap")
        good_types = isinstance(types, list) and types and all(isinstance(t, str) for t in types)
        if not good_types or not isinstance(cap, int) or not 1 <= cap <= 1024:
            raise InputError("the weights do not say for which networks and sizes", where=weights.source, hint=hint)
        return sizes


class TableNetwork(Network):
    kind = "table"
    shapes: ClassVar[dict[str, str]] = {"w1": "ih", "b1": "h", "w2": "hk", "b2": "k", "w3": "ka", "b3": "a"}

    def __init__(self, arrays: Mapping[str, Matrix], types: tuple[str, ...], cap: int) -> None:
        super().__init__(arrays, types, cap)
        self.rows = (len(self.arrays["b3"]) - 1) // KINDS

    @classmethod
    def of(cls, weights: Weights) -> Self:
        sizes, types = cls.check(weights), tuple(weights.about.get("types", ()))
        rows, rest = divmod(sizes["a"] - 1, KINDS)
        if rest or sizes["i"] != rows * (len(types) + 2 + SHARE_WORKERS_SERVERS):
            what = f"{sizes['i']} inputs and {sizes['a']} outputs do not belong together for {len(types)} types"
            raise InputError(what, where=weights.source, hint="they were trained with other types: train again")
        return cls(weights.arrays, types, weights.about["cap"])

    def grant(self, crowd: Crowd, needs: Demands, free: NDArray[np.float64], per_share: NDArray[np.float64]) -> Grants:
        from argosy.policies.learned.kernels.by_table import fill_by_table

        n, a = len(needs.rows), self.arrays
        static = np.concatenate([crowd.one_hot(len(self.types)), crowd.times[:, :2]], axis=1)
        workers, servers, order = np.zeros((3, n), np.int64)
        layers = [np.empty_like(a[b]) for b in ("b1", "b2", "b3")]
        scratch = [*layers, np.empty(max(map(len, layers)) + 1, np.int64)]
        fill_by_table(
            self.rows, self.cap, needs.counts, needs.amounts, free.copy(), np.zeros((n, 3)), workers, servers, order,
            crowd.guarded, per_share, static, *a.values(), *scratch,
        )  # fmt: skip
        return Grants(workers, servers, np.arange(n))


class ScoreNetwork(Network):
    kind = "score"
    shapes: ClassVar[dict[str, str]] = {
        "w1": "ie", "b1": "e", "w2": "eh", "wc": "eh", "b2": "h", "w3": "sh", "w4": "hm", "b4": "m", "w5": "mk",
        "b5": "k",
    }  # fmt: skip

    @classmethod
    def of(cls, weights: Weights) -> Self:
        sizes, types = cls.check(weights), tuple(weights.about.get("types", ()))
        wanted = {"i": len(types) + 2 + CONTEXT, "s": SIZE_FEATURES, "k": KINDS}
        for letter, size in wanted.items():
            if sizes[letter] != size:
                what = f"a network for {len(types)} types has {size} where these weights have {sizes[letter]}"
                raise InputError(what, where=weights.source, hint="they were trained with other types: train again")
        return cls(weights.arrays, types, weights.about["cap"])

    def embed(self, crowd: Crowd) -> Matrix:
        """What does not change within a slot, up to the first layer that sees the size: [job, hidden]."""
        from argosy.policies.learned.kernels.by_score import embed

        a, n = self.arrays, len(crowd.types)
        embedded = np.empty((n, len(a["b2"])), np.float32)
        embed(
            crowd.types, crowd.times, crowd.gpus_per_job, crowd.cpus_per_job, a["w1"], a["b1"], a["w2"], a["wc"],
            a["b2"], np.empty((n, len(a["b1"])), np.float32), np.empty_like(a["b1"]), np.empty_like(a["b2"]), embedded,
        )  # fmt: skip
        return embedded

    def grant(self, crowd: Crowd, needs: Demands, free: NDArray[np.float64], per_share: NDArray[np.float64]) -> Grants:
        from argosy.policies.learned.kernels.by_score import fill_by_score

        n, a = len(needs.rows), self.arrays
        workers, servers, order, choice, heap = np.zeros((5, n), np.int64)
        fill_by_score(
            needs.counts, needs.amounts, free.copy(), np.zeros((n, 3)), workers, servers, order, crowd.guarded,
            self.embed(crowd), a["w3"], a["w4"], a["b4"], a["w5"], a["b5"], np.empty_like(a["b4"]), self.cap,
            np.empty(n, np.float32), choice, heap,
        )  # fmt: skip
        return Grants(workers, servers, order)
