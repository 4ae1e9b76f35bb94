"""What moved a learned score: the features of a job, each compared with the mean of all jobs by occlusion.

A feature's influence is what the job's score would lose if this one feature had the mean of all jobs that were scored
at the same time, and all others stayed. Influences do not add up to the score where features work together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.policies.base import Floats

TOLD = 3  # features named in an explanation
LEAST = 0.005  # what moves a score by less is not worth a word
DAY_S, HOUR_S, MINUTE_S = 86_400.0, 3_600.0, 60.0


def number(value: float) -> str:
    return f"{value:.3g}"


def seconds(value: float) -> str:
    """Format a time, roughly."""
    for unit_s, letter in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if value >= unit_s:
            return f"{value / unit_s:.3g} {letter}"
    return f"{value:.3g} s"


def yes_or_no(value: float) -> str:
    return "yes" if value >= 0.999 else "no" if value <= 0.001 else f"{value:.0%} yes"


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature in words: what it is called, and how its value becomes one that people know."""

    words: str
    show: Callable[[float], str] = number
    undo: Callable[[float], float] = float  # from the network's scale


def occluded(rows: NDArray[Any], row: int) -> Floats:
    """Return copies of one row, each with another feature at its mean over all rows: [feature, feature]."""
    count = rows.shape[1]
    copies: Floats = np.repeat(rows[row : row + 1].astype(np.float64), count, axis=0)
    copies[np.arange(count), np.arange(count)] = rows.mean(axis=0)
    return copies


def in_words(features: Sequence[Feature], moved: Floats, values: Floats, means: Floats, jobs: int) -> str:
    """Say which features moved a job's score most; positive numbers bring the job forward. Empty if none did."""
    most = np.argsort(-np.abs(moved), kind="stable")[:TOLD]
    told = []
    for i in most.tolist():
        if not abs(moved[i]) >= LEAST:
            continue
        feature = features[i]
        own, mean = (feature.show(feature.undo(float(x[i]))) for x in (values, means))
        way = "brings it forward" if moved[i] > 0 else "holds it back"
        told.append(f"{feature.words} {own} (mean {mean}) {way} ({moved[i]:+.2f})")
    if not told:
        return ""
    return f"what moved its score most, against the mean of {jobs} jobs: {', '.join(told)}"
