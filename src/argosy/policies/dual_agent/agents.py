"""The two agents' networks: scores of jobs by squeeze and communicate, and scores of places.

    squeeze       c = [mean, max] over machines of x'_m = σ(M x_m)    q = [mean, max] over jobs of h_j = σ(B f_j + b)
    communicate   g = 2 · sigmoid(W relu(V [c; q]))                k_j = σ(P (g ∘ h_j) + Q c + p)
    ordering      key_j = t · f_j + v · k_j                        the job with the smallest key is next
    placement     score(place) = s · φ + w · σ(E φ + F k_j + d)    k_j is the message from the ordering agent

with σ(x) = x / (1 + |x|). All is equivariant: neither the number of jobs nor that of machines matters, and the cost
grows with their sum. With attention, each job has means of its own, at a cost that grows with the products:

    attention     c_j = [Σ_m softmax_m(h_j A x'_m) x'_m, max]      q_j = [Σ_i softmax_i(h_j G h_i) h_i, max]

Weights begin at a rule written by hand: least attained service first (running jobs ahead of waiting ones with little
less), on the place where the job runs fastest by belief, tightly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.policies.base import Floats
from argosy.policies.common.scores import comparable
from argosy.seeding import stream

KIND = "dual-agent"
JOB = ("attained", "work left", "GPUs", "runs", "wait", "speed", "executed", "preemptions")
MACHINE = ("free share", "speed", "uncertainty", "size", "speed over the rack's")
PLACE = ("rate", "speed", "uncertainty", "room left", "nodes", "racks", "lacks CPUs")
RULES = ("margin", "cost")  # of moves: logarithms of factors on the least gain in speed, and on the cost
SQUEEZED, HIDDEN, REDUCED = 6, 8, 4
SHAPES: dict[str, tuple[int, ...]] = {
    "M": (len(MACHINE), SQUEEZED),
    "B": (len(JOB), HIDDEN),
    "b": (HIDDEN,),
    "V": (2 * SQUEEZED + 2 * HIDDEN, REDUCED),
    "W": (REDUCED, HIDDEN),
    "P": (HIDDEN, HIDDEN),
    "Q": (2 * SQUEEZED, HIDDEN),
    "p": (HIDDEN,),
    "t": (len(JOB),),
    "v": (HIDDEN,),
    "E": (len(PLACE), HIDDEN),
    "F": (HIDDEN, HIDDEN),
    "d": (HIDDEN,),
    "s": (len(PLACE),),
    "w": (HIDDEN,),
    "r": (len(RULES),),
    "A": (HIDDEN, SQUEEZED),
    "G": (HIDDEN, HIDDEN),
}
OUTER = ("t", "v", "s", "w", "r")
ATTENTION = ("A", "G")  # only attention uses them, and weights for means need not have them
SQUEEZES = ("mean", "attention")


class Agents:
    """The networks of both agents with their weights."""

    def __init__(
        self, arrays: Mapping[str, NDArray[np.floating]], source: str = "memory", squeeze: str = "mean"
    ) -> None:
        self.squeeze = squeeze
        absent = {name: np.zeros(SHAPES[name]) for name in ATTENTION if name not in arrays and squeeze == "mean"}
        arrays = {**arrays, **absent}
        for name, shape in SHAPES.items():
            if name not in arrays or arrays[name].shape != shape:
                found = arrays[name].shape if name in arrays else "nothing"
                raise InputError(
                    f"these are not weights of the dual-agent's networks: {name} is {found}, not {shape}",
                    where=source,
                    hint="train them again with this version: argosy train dual-agent",
                )
            if not np.isfinite(arrays[name]).all():
                raise InputError(f"the weights {name!r} are not finite", where=source, hint="train them again")
        self.arrays = {name: np.ascontiguousarray(arrays[name], np.float64) for name in SHAPES}

    def with_squeeze(self, squeeze: str) -> Agents:
        """Return the same weights with another way to squeeze."""
        return self if squeeze == self.squeeze else Agents(self.arrays, squeeze=squeeze)

    def order(self, jobs: Floats, machines: Floats, communicate: bool = True) -> tuple[Floats, Floats]:
        """Return the key of each job, and its message to the placement agent."""
        a = self.arrays
        own = squash(jobs @ a["B"] + a["b"])
        shared = np.zeros(HIDDEN)
        if communicate and len(jobs):
            around = squash(machines @ a["M"])
            if self.squeeze == "attention":
                cluster, queue = attend(own @ a["A"], around), attend(own @ a["G"], own)
            else:
                cluster, queue = squeeze(around), squeeze(own)
            inner = np.maximum(np.concatenate([cluster, queue], axis=-1) @ a["V"], 0.0)
            own = own * (2.0 / (1.0 + np.exp(-(inner @ a["W"]))))
            shared = cluster @ a["Q"]
        message = squash(own @ a["P"] + shared + a["p"])
        return comparable(jobs @ a["t"] + message @ a["v"]), message

    def place(self, places: Floats, message: Floats) -> Floats:
        """Return the score of each place for one job; more is better."""
        a = self.arrays
        return comparable(places @ a["s"] + squash(places @ a["E"] + message @ a["F"] + a["d"]) @ a["w"])


def squash(x: Floats) -> Floats:
    """Return σ(x) = x / (1 + |x|)."""
    out: Floats = x / (1.0 + np.abs(x))
    return out


def squeeze(rows: Floats) -> Floats:
    """Return the mean and the maximum of the rows: a vector of fixed size, whatever their number and order."""
    return np.concatenate([rows.mean(axis=0), rows.max(axis=0)])


def attend(queries: Floats, rows: Floats) -> Floats:
    """Return for each query the mean of the rows, weighted by how well they match it, and their maximum."""
    match = queries @ rows.T
    weight = np.exp(match - match.max(axis=1, keepdims=True))
    mean = weight @ rows / weight.sum(axis=1, keepdims=True)
    return np.concatenate([mean, np.broadcast_to(rows.max(axis=0), mean.shape)], axis=1)


def first_weights(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Return weights that act as the rule written by hand; the networks add nothing yet."""
    rng = stream(seed, "dual-agent.weights")
    arrays = {}
    for name, shape in SHAPES.items():
        scale = 1.0 / np.sqrt(shape[0]) if len(shape) > 1 else 0.0
        arrays[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
    for name, weight in (("attained", 1.0), ("work left", 0.2), ("GPUs", 0.3), ("runs", -0.4), ("wait", -0.1)):
        arrays["t"][JOB.index(name)] = weight
    for name, weight in (("rate", 1.0), ("speed", 1.0), ("room left", -0.15), ("lacks CPUs", -5.0)):
        arrays["s"][PLACE.index(name)] = weight
    return arrays
