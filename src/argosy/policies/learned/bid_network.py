"""Argonaut's network: the logarithm of a bid's value, from features of the bid, of its job and of the cluster.

It is equivariant: jobs and bids may come in any order, and any number of them. The linear part begins as the
hand-written rule of `joint`, and the rest begins at zero.

    e_j = σ(A f_j + a)            c = mean over jobs of e_j            σ(x) = x / (1 + |x|)
    h_j = σ(B f_j + C c + D g + b)
    log value = s · f_bid + t · f_j + w · σ(E f_bid + F h_j + d) + v · h_j
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.policies.learned.bid_features import BID, CLUSTER, JOB, BidFeatures
from argosy.seeding import stream

Matrix = NDArray[np.float32]
SQUEEZED, HIDDEN = 8, 16
UNIT = 0.25  # of the logarithm of times, as the kernels scale it
SHAPES = {
    "A": (len(JOB), SQUEEZED),
    "a": (SQUEEZED,),
    "B": (len(JOB), HIDDEN),
    "C": (SQUEEZED, HIDDEN),
    "D": (len(CLUSTER), HIDDEN),
    "b": (HIDDEN,),
    "E": (len(BID), HIDDEN),
    "F": (HIDDEN, HIDDEN),
    "d": (HIDDEN,),
    "w": (HIDDEN,),
    "v": (HIDDEN,),
    "s": (len(BID),),
    "t": (len(JOB),),
}


class BidNetwork:
    """The network with its weights."""

    kind: ClassVar[str] = "bids"

    def __init__(self, arrays: Mapping[str, NDArray[np.float32]], source: str = "memory") -> None:
        for name, shape in SHAPES.items():
            if name not in arrays or arrays[name].shape != shape:
                found = arrays[name].shape if name in arrays else "nothing"
                hint = "train them again with this version: argosy train argonaut"
                raise InputError(
                    f"these are not weights of argonaut's network: {name} is {found}, not {shape}",
                    where=source,
                    hint=hint,
                )
        self.arrays = {name: np.ascontiguousarray(arrays[name], np.float64) for name in SHAPES}

    def log_values(self, features: BidFeatures, job: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the logarithm of each bid's value; `job` is the row of its job."""
        from argosy.policies.learned.kernels.bid_values import log_values  # imports Numba

        n, rows = len(features.job), len(features.bid)
        scratch = [np.empty((n, HIDDEN)), np.empty(n), np.empty(SQUEEZED), np.empty(HIDDEN), np.empty(HIDDEN)]
        out = np.empty(rows)
        arguments = (features.bid, features.job, features.cluster, job, *self.arrays.values(), *scratch, out)
        log_values(*arguments)
        return out

    def influences(self, features: BidFeatures, job: NDArray[np.int64], bid: int) -> NDArray[np.float64]:
        """Return how much each feature moves a bid's log value, against its mean over all; first `BID`, then `JOB`."""
        a, f_bid, f_job = self.arrays, features.bid[bid], features.job[job[bid]]
        common = _soft(features.job @ a["A"] + a["a"]).mean(0) @ a["C"] + features.cluster @ a["D"] + a["b"]
        bids = np.tile(f_bid, (1 + len(BID) + len(JOB), 1))  # the first row as it is, each other with one mean
        jobs = np.tile(f_job, (len(bids), 1))
        own, of_job = np.arange(len(BID)), np.arange(len(JOB))
        bids[1 + own, own] = features.bid.mean(0)
        jobs[1 + len(BID) + of_job, of_job] = features.job.mean(0)
        h = _soft(jobs @ a["B"] + common)
        hidden = _soft(bids @ a["E"] + h @ a["F"] + a["d"])
        value = bids @ a["s"] + jobs @ a["t"] + hidden @ a["w"] + h @ a["v"]
        moved: NDArray[np.float64] = value[0] - value[1:]
        return moved


def _soft(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / (1.0 + np.abs(x))


def first_weights(
    seed: int, urgency: float = 0.6, stay: float = 1.5, relative: float = 0.0, elastic: float = 0.0
) -> dict[str, Matrix]:
    """Return weights that bid as `joint` does with these parameters."""
    rng = stream(seed, "argonaut.weights")
    arrays = {}
    for name, shape in SHAPES.items():
        scale = 1.0 / np.sqrt(shape[0]) if len(shape) > 1 else 0.0
        arrays[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
    arrays["s"][BID.index("log effective speed")] = 1.0
    arrays["s"][BID.index("is what the job has now, where changes cost time")] = np.log(stay)
    arrays["t"][JOB.index("log work left")] = -urgency / UNIT
    arrays["t"][JOB.index("log work left, times the share of jobs that are elastic")] = elastic / UNIT
    arrays["t"][JOB.index("log best speed")] = -relative
    return arrays
