"""Watch a network after growth, and say when growth has done harm.

Growth is an experiment: the state before it is kept, and if the network then becomes clearly worse, the job goes back.
*Clearly worse* is one of these:

* a loss, a gradient or a weight is not finite, or a step fails with an error;
* the loss spikes: the median of some steps is above what `Losses.spike` allows;
* at the end of the probation the validation score is below what was to be expected without growth, by more than
  several standard deviations and more than a quarter of the range in which the score has moved so far.

The last rule is meant to be slow: after growth the learning rate is high, and a score that is a little low recovers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from torch import nn

from argosy.grow.errors import Diverged, GrowError
from argosy.grow.training.losses import Losses
from argosy.grow.training.steps import check_gradients

STEPS = 20  # whose median loss is compared
LATEST = 5  # scores from which the curve without growth is extrapolated
DEVIATIONS = 4.0  # of the score; a score at most this far below the expected one counts as noise
SHARE_OF_RANGE = 0.25  # of the scores so far; a score at most this far below the expected one may recover
IN_BETWEEN = 2.0  # until the probation ends, the score may lie this many times as far below
TREND = 0.5  # how much of a rising trend is assumed to continue without growth


@dataclass(frozen=True)
class Guard:
    """Holds how long growth is watched, and how much may be kept to go back.

    The state from before the growth is kept in memory if it has at most `memory_gib`, else in `folder` if it has at
    most `folder_gib`; if it is too large for both, the network does not grow.
    """

    probation: int = 2  # epochs after growth in which losses and scores are watched
    memory_gib: float = 4.0
    folder: Path | str | None = None
    folder_gib: float = 64.0
    again: bool = False  # grow again in a run in which growth was rolled back

    def __post_init__(self) -> None:
        if self.probation < 1:
            raise GrowError(f"probation = {self.probation} epochs is too short", hint="give 1 or more")
        for name in ("memory_gib", "folder_gib"):
            value = getattr(self, name)
            if not value >= 0:
                raise GrowError(f"{name} = {value:g} is not allowed", hint="give 0 or more")


class Harmful(GrowError):
    """Growth has done harm, so that it should be taken back."""


@dataclass(frozen=True)
class Expectation:
    """Holds the validation score that is to be expected without growth, and how far below it is still acceptable."""

    before: float  # the last score before growth
    expected: float
    tolerance: float
    noise: float  # the standard deviation of a score


def expectation(scores: Sequence[float], ahead: float, error: float = 0.0) -> Expectation | None:
    """Extrapolate the validation scores of a run without growth by some epochs; None if there are no scores.

    `error` is the standard error of one score. The latest scores are fitted by a line. A falling one goes on, a rising
    one with half of its slope.
    """
    found = [score for score in scores if math.isfinite(score)]
    if not found:
        return None
    latest = found[-LATEST:]
    level, slope, spread = latest[-1], 0.0, 0.0
    if len(latest) >= 4:
        level, slope, spread = _line(latest)
    noise = math.hypot(spread, error)
    tolerance = max(DEVIATIONS * noise, SHARE_OF_RANGE * (max(found) - min(found)))
    return Expectation(found[-1], level + ahead * (TREND * slope if slope > 0 else slope), tolerance, noise)


class Probation:
    """Compares a network after growth with what was to be expected, and raises `Harmful` if it is clearly worse."""

    def __init__(self, losses: Losses, scores: Sequence[float], epochs: int, error: float = 0.0) -> None:
        self.limit = losses.spike()
        self.expectation = expectation(scores, epochs, error)
        self.epochs = self.left = epochs
        self._latest: deque[float] = deque(maxlen=STEPS)

    @property
    def over(self) -> bool:
        """Return whether the growth has passed."""
        return self.left <= 0

    def prolong(self) -> None:
        """Begin again, because the network has grown once more; what was to be expected without growth stays."""
        self.left = self.epochs
        self._latest.clear()

    def step(self, loss: float, parameters: Sequence[nn.Parameter] = ()) -> None:
        """Judge a step: its loss, and the gradients of these parameters."""
        if not math.isfinite(loss):
            raise Diverged("the loss is not finite")
        check_gradients(parameters)
        if self.over:
            return
        self._latest.append(loss)
        if len(self._latest) == STEPS:
            self._judge_losses()

    def epoch(self, score: float | None) -> None:
        """Judge the network after an epoch, by its validation score."""
        if self.over:
            return
        self.left -= 1
        if self.over and self._latest:
            self._judge_losses()
        wanted = self.expectation
        if score is None or wanted is None:
            return
        least = wanted.expected - wanted.tolerance * (1.0 if self.over else IN_BETWEEN)
        if not score >= least:
            raise Harmful(
                f"the validation score is {score:.4g} after {self.epochs - self.left} epochs; without growth "
                f"{wanted.expected:.4g} was to be expected, and at least {least:.4g} is required"
            )

    def end(self, score: float | None) -> None:
        """Judge the network at the end of training, when nothing can recover any more."""
        wanted = self.expectation
        if score is None or wanted is None:
            return
        if not score >= wanted.before - wanted.noise:
            raise Harmful(f"the validation score at the end is {score:.4g}; before growth it was {wanted.before:.4g}")

    def _judge_losses(self) -> None:
        level = median(self._latest)
        if level > self.limit:
            raise Harmful(
                f"the loss has risen to {level:.4g} (median of {len(self._latest)} steps); after what it was before "
                f"growth, at most {self.limit:.4g} is acceptable"
            )

    def state(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "limit": self.limit if math.isfinite(self.limit) else None,
            "expectation": asdict(self.expectation) if self.expectation else None,
            "epochs": self.epochs,
            "left": self.left,
            "latest": list(self._latest),
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Probation:
        """Return the probation that `state` described."""
        found = cls(Losses(), (), state["epochs"])
        found.limit = math.inf if state["limit"] is None else state["limit"]
        found.expectation = Expectation(**state["expectation"]) if state["expectation"] else None
        found.left = state["left"]
        found._latest.extend(state["latest"])
        return found


def _line(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the end of a least-squares line through equally spaced values, its slope, and the deviation around it."""
    n = len(values)
    middle, mean = (n - 1) / 2, sum(values) / n
    slope = sum((i - middle) * (v - mean) for i, v in enumerate(values)) / sum((i - middle) ** 2 for i in range(n))
    rest = sum((v - mean - slope * (i - middle)) ** 2 for i, v in enumerate(values))
    return mean + slope * middle, slope, math.sqrt(rest / (n - 2))
