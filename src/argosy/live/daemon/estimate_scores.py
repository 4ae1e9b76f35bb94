"""Scores past estimates of when jobs start and end against what really happened.

*Coverage* is how often the interval from p10 to p90 contained the truth: 80 % for honest intervals. *Pinball loss*
measures how far the quantiles lie from the truth, in seconds; it is compared with that of a naive estimate: the number
of waiting jobs ahead, times the mean GPU-time of a job, over the GPUs of the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

LEVELS = (0.1, 0.5, 0.9)
BEYOND_S = 365 * 86400.0  # what counts for a quantile beyond the horizon, after the time of the estimate


@dataclass(frozen=True, slots=True)
class Scored:
    """An estimate, and what became of the job: times in seconds after the estimate was made."""

    quantiles: tuple[float | None, float | None, float | None]
    real_s: float
    naive_s: float | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """How good many estimates were."""

    count: int
    coverage: float  # of p10..p90
    below: float  # how often the truth came before p10
    above: float  # how often the truth came after p90
    pinball_s: float
    naive_pinball_s: float | None
    gain: float | None  # how much smaller the loss is than that of the naive estimate
    reliability: tuple[tuple[float, float], ...]  # level, and how often the truth lay below that quantile

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def pinball(level: float, guess_s: float, real_s: float) -> float:
    return max(level * (real_s - guess_s), (level - 1.0) * (real_s - guess_s))


def score(found: Iterable[Scored]) -> Score | None:
    """Return the scores of these estimates; None if there are none."""
    listed = list(found)
    if not listed:
        return None
    guesses = np.array([[BEYOND_S if q is None else q for q in one.quantiles] for one in listed])
    real = np.array([one.real_s for one in listed])
    below, above = float(np.mean(real < guesses[:, 0])), float(np.mean(real > guesses[:, 2]))
    loss = float(np.mean([pinball(p, q, r) for row, r in zip(guesses, real) for p, q in zip(LEVELS, row)]))
    naive = [one for one in listed if one.naive_s is not None]
    naive_loss = None
    if len(naive) == len(listed):
        naive_loss = float(np.mean([pinball(p, n.naive_s or 0.0, n.real_s) for n in naive for p in LEVELS]))
    return Score(
        len(listed),
        1.0 - below - above,
        below,
        above,
        loss,
        naive_loss,
        1.0 - loss / naive_loss if naive_loss else None,
        tuple((p, float(np.mean(real <= guesses[:, i]))) for i, p in enumerate(LEVELS)),
    )


def in_words(found: Score | None, of: str) -> str:
    """Return a score as a sentence."""
    if found is None:
        return f"{of}: no job with an estimate has come so far yet"
    text = f"{of}: {found.coverage:.0%} of {found.count} fell between p10 and p90 (80% would be exact)"
    text += f", {found.below:.0%} came earlier and {found.above:.0%} later"
    if found.gain is not None and not math.isnan(found.gain):
        better = "better" if found.gain >= 0 else "worse"
        text += f"; {abs(found.gain):.0%} {better} than queue length × mean"
    return text
