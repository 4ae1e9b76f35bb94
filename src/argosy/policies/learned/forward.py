"""The forward passes of both networks, written once for NumPy, which decides, and torch, which trains.

They map a table of jobs (`argosy.policies.learned.features`), [..., J, columns], to the logits of 3J + 1 actions:
one more worker, server or both for each job, and to stop. The compiled kernels with which a policy decides compute the
same numbers; after a grant they update them instead of computing all of them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from argosy.policies.learned.features import COLUMNS, SERVERS, SINCE, TIMES, WORKERS
from argosy.policies.learned.kernels.constants import LOG_UNIT, SIZE_LOG, SLOTS_PER_UNIT

Array = Any  # of NumPy or torch


class Ops(Protocol):
    """Operations whose names or arguments differ between NumPy and torch."""

    def relu(self, x: Array) -> Array: ...
    def log1p(self, x: Array) -> Array: ...
    def log2(self, x: Array) -> Array: ...
    def at_least(self, x: Array, least: float) -> Array: ...
    def join(self, parts: Sequence[Array]) -> Array:
        """Concatenate along the last axis."""

    def stack(self, parts: Sequence[Array]) -> Array:
        """Stack along a new last axis."""

    def sum_of_jobs(self, x: Array) -> Array:
        """Sum over the last axis but one, which stays."""

    def as_numbers(self, yes: Array, like: Array) -> Array:
        """Turn true and false into 1 and 0."""

    def append_zero(self, x: Array) -> Array:
        """Append a zero along the last axis."""


class NumpyOps:
    """The operations of NumPy."""

    log1p, log2 = np.log1p, np.log2

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def at_least(self, x: Array, least: float) -> Array:
        return np.maximum(x, np.float32(least))

    def join(self, parts: Sequence[Array]) -> Array:
        return np.concatenate(parts, axis=-1)

    def stack(self, parts: Sequence[Array]) -> Array:
        return np.stack(parts, axis=-1)

    def sum_of_jobs(self, x: Array) -> Array:
        return x.sum(axis=-2, keepdims=True)

    def as_numbers(self, yes: Array, like: Array) -> Array:
        return yes.astype(like.dtype)

    def append_zero(self, x: Array) -> Array:
        return np.concatenate([x, np.zeros((*x.shape[:-1], 1), x.dtype)], axis=-1)


NUMPY: Ops = NumpyOps()


def table_outputs(a: Mapping[str, Array], observation: Array, ops: Ops) -> Array:
    """Return the outputs of DL2's network: the whole table at once, through two hidden layers."""
    x = observation.reshape(*observation.shape[:-2], -1)
    x = ops.relu(x @ a["w1"] + a["b1"])
    return ops.relu(x @ a["w2"] + a["b2"]) @ a["w3"] + a["b3"]


def score_embedding(a: Mapping[str, Array], observation: Array, types: int, ops: Ops) -> Array:
    """Return the score network's embedding of each job, which does not depend on its size: [..., J, hidden].

    h = relu(W1 x + b1);  e = W2 h + Wc mean(h) + b2, with the mean over the jobs present.
    """
    since = types + SINCE
    times = ops.join([observation[..., types : types + TIMES], observation[..., since : since + 1]])
    logs = ops.log1p(SLOTS_PER_UNIT * times) / LOG_UNIT
    seen = ops.join([observation[..., :types], logs, observation[..., since + 1 :]])
    hidden = ops.relu(seen @ a["w1"] + a["b1"])
    here = ops.as_numbers(observation[..., -1:] > 0, hidden)
    mean = ops.sum_of_jobs(hidden * here) / ops.at_least(ops.sum_of_jobs(here), 1.0)
    return hidden @ a["w2"] + (mean @ a["wc"] + a["b2"])


def score_outputs(a: Mapping[str, Array], observation: Array, types: int, cap: int, ops: Ops) -> Array:
    """Return the scores of every job's next worker, server or both, and 0 as the score of stopping."""
    w, u = observation[..., types + WORKERS], observation[..., types + SERVERS]
    logs = [ops.log2(1.0 + cap * n) * SIZE_LOG for n in (w, u)]
    size = ops.stack([w, u, ops.as_numbers(w > 0, w), ops.as_numbers(u > 0, u), *logs])
    x = ops.relu(score_embedding(a, observation, types, ops) + size @ a["w3"])
    scores = ops.relu(x @ a["w4"] + a["b4"]) @ a["w5"] + a["b5"]
    return ops.append_zero(scores.reshape(*scores.shape[:-2], -1))


SIZE_FEATURES = 6  # columns of `size` above
SCORE_INPUTS = TIMES + 1 + 2  # columns of `seen` above, in addition to the types
TABLE_INPUTS = COLUMNS  # columns of a row, in addition to the types
