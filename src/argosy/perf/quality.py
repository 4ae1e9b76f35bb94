"""How good a network becomes: left alone, with more replicas, or grown on spare GPUs.

A curve belongs to a kind of network on a kind of data. It has the accuracy over the share of the training that is done,
and what growing or replicating gains by the share of the training that is left when it begins. The figures are means
of real trainings (`argosy.grow.study.quality_curves` writes the file), with the deviation of single trainings.

A training with a curve has a time budget: it takes as long as it would alone, and spare GPUs change how good it
becomes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from argosy.errors import UnknownName
from argosy.perf.base import Floats

Use = Literal["replicas", "growth"]
AVERAGE = "average"  # the curve of a network of which nothing is known


@dataclass(frozen=True, slots=True)
class Gains:
    """What one use of spare GPUs gains in accuracy by the share of the training that is left, if it lasts to the end.

    `gpus` is how many GPUs it takes, relative to those that the job has: those that train replicas or a larger network
    in the same time.
    """

    left: tuple[float, ...]  # shares of the training, increasing
    gain: tuple[float, ...]
    deviation: tuple[float, ...]  # of single trainings from that
    gpus: float

    def mean(self, left: ArrayLike) -> Floats:
        """Return the expected gain by the share of the training that is left; nothing is gained at the end."""
        return np.interp(np.asarray(left, np.float64), (0.0, *self.left), (0.0, *self.gain))

    def spread(self, left: ArrayLike) -> Floats:
        """Return the deviation of the gain of single trainings."""
        return np.interp(np.asarray(left, np.float64), (0.0, *self.left), (0.0, *self.deviation))


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """How good networks of a kind become. `kept`: the share of growth's gain that is left after shrinking."""

    name: str
    done: tuple[float, ...]  # shares of the training
    accuracy: tuple[float, ...]  # on validation data, left alone
    growth: Gains
    replicas: Gains
    kept: float
    trainings: int  # from which it was fitted

    @property
    def final(self) -> float:
        """Return the accuracy at the end, left alone."""
        return self.accuracy[-1]

    def gains(self, use: Use) -> Gains:
        """Return what one use of spare GPUs gains."""
        return self.growth if use == "growth" else self.replicas

    def gained(self, use: Use, begin: float, end: float, luck: float = 0.0) -> float:
        """Return what spare GPUs between two points of the training (shares of it) gain at its end.

        What replicas have learned stays. Growth that ends before the training does leaves its `kept` share. `luck` is
        in deviations.
        """
        found = self.gains(use)
        lasting = found.mean(1.0 - begin) + luck * found.spread(1.0 - begin)
        if end >= 1.0:
            return float(lasting)
        rest = found.mean(1.0 - end) + luck * found.spread(1.0 - end)
        return float((lasting - rest) * (self.kept if use == "growth" else 1.0))

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data, for JSON."""
        return {
            "done": list(self.done),
            "accuracy": list(self.accuracy),
            **{
                use: {"left": list(g.left), "gain": list(g.gain), "deviation": list(g.deviation), "gpus": g.gpus}
                for use, g in (("growth", self.growth), ("replicas", self.replicas))
            },
            "kept": self.kept,
            "trainings": self.trainings,
        }


def _read(name: str, found: dict[str, Any]) -> QualityCurve:
    def gains(part: dict[str, Any]) -> Gains:
        return Gains(tuple(part["left"]), tuple(part["gain"]), tuple(part["deviation"]), part["gpus"])

    return QualityCurve(
        name,
        tuple(found["done"]),
        tuple(found["accuracy"]),
        gains(found["growth"]),
        gains(found["replicas"]),
        found["kept"],
        found["trainings"],
    )


@cache
def curves() -> tuple[QualityCurve, ...]:
    """Return all curves, in the order of their numbers."""
    text = resources.files("argosy.perf").joinpath("data/quality_curves.json").read_text("utf-8")
    return tuple(_read(name, found) for name, found in sorted(json.loads(text)["curves"].items()))


@cache
def names() -> tuple[str, ...]:
    """Return the names of all curves; a curve's number is its place."""
    return tuple(curve.name for curve in curves())


def curve_of(name: str) -> QualityCurve:
    """Return a curve by its name."""
    if name not in names():
        raise UnknownName("quality curve", name, names())
    return curves()[names().index(name)]


def number_of(name: str | None) -> int:
    """Return the number of a curve; -1 if the job names none."""
    if name is None:
        return -1
    curve_of(name)
    return names().index(name)
