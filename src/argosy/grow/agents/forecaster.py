"""Forecast what leaving a network alone leads to, and what resetting, replicating or growing gains over that.

Errors are compared on a logarithmic scale, so a gain is relative to what is left to gain: 0.1 means that a tenth of the
wrong answers disappear. There are two linear models with random effects (`mixed_linear.py`): one for the error when the
network is left alone, one for the gain of a choice. Numbers of the situation that are not known are replaced by what is
usual beside the known ones, and make the forecast less certain.

What training still changes of a network that is left alone is proportional to the square of the share of time left, as
in the tables that are taught: late it stays nearly what it is, and at the end nothing changes any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from argosy.grow.agents.base import Situation
from argosy.grow.agents.forecast_features import (
    GAIN,
    SITUATION,
    SMALLEST_ERROR,
    Choice,
    Describer,
    last_error,
    numbers_of,
)
from argosy.grow.agents.mixed_linear import Fitted, conditioned

Floats = NDArray[np.float64]

SQUARES = ("share_left", "log_error", "progress", "lr_share")
PRODUCTS = (("share_left", "progress"), ("share_left", "lr_share"), ("log_error", "progress"), ("adam", "lr_share"))
SLOWING = 2.0  # the power of the share of time left to which what is still to come is proportional
LEAVE = ("always", *SITUATION, *(f"{n} squared" for n in SQUARES), *(f"{a} x {b}" for a, b in PRODUCTS))
MOST_SEEN = 200  # live growths that are remembered
JUDGED = 2000  # examples on which scores are assumed to be measured
Z80 = 1.2816  # deviations on either side of an 80 % interval
FARTHEST = 3.0  # deviations from the usual: numbers beyond this are moved here, so that no forecast runs away


@dataclass(frozen=True)
class Usual:
    """Holds what situations are like: mean, deviation and correlation of their numbers."""

    mean: Floats
    deviation: Floats
    correlation: Floats

    def complete(self, numbers: Floats) -> tuple[Floats, Floats]:
        """Return standardised numbers, the unknown ones as expected beside the known ones, and their covariance."""
        found = np.clip((numbers - self.mean) / self.deviation, -FARTHEST, FARTHEST)
        unknown = np.isnan(found)
        covariance = np.zeros_like(self.correlation)
        if unknown.any():
            known = ~unknown
            inverse = np.linalg.inv(self.correlation[np.ix_(known, known)] + 0.05 * np.eye(int(known.sum())))
            across = self.correlation[np.ix_(unknown, known)] @ inverse
            found[unknown] = across @ found[known]
            left = self.correlation[np.ix_(unknown, unknown)] - across @ self.correlation[np.ix_(known, unknown)]
            covariance[np.ix_(unknown, unknown)] = left
        return found, covariance


@dataclass(frozen=True)
class Expected:
    """Holds the expected gain of each choice, on the logarithmic scale, and the expected error without growth."""

    choices: tuple[Choice, ...]
    gain: Floats
    covariance: Floats  # of the expected gains
    noise: Floats  # variance of one run around each expected gain
    log_error: float  # of the network that is left alone, at the end
    log_error_variance: float

    @property
    def error(self) -> float:
        """Return the expected share of wrong answers of the network that is left alone."""
        return math.exp(min(self.log_error, 0.0))

    def points(self, number: int, against: int = 0) -> tuple[float, float]:
        """Return the expected gain in score over another choice, and the deviation of this expectation."""
        gain = self.gain[number] - self.gain[against]
        c = self.covariance
        variance = c[number, number] + c[against, against] - 2 * c[number, against]
        base = self.error * math.exp(-float(self.gain[against]))
        return base * -math.expm1(-gain), base * math.exp(-gain) * math.sqrt(max(variance, 0.0))

    def interval(self, number: int) -> tuple[float, float]:
        """Return the 80 % interval of the gain in score that one run shows over leaving the network alone."""
        deviation = math.sqrt(max(self.covariance[number, number] + self.noise[number], 0.0))
        low, high = (self.gain[number] + sign * Z80 * deviation for sign in (-1, 1))
        return self.error * -math.expm1(-low), self.error * -math.expm1(-high)


@dataclass(frozen=True)
class Seen:
    """Holds a choice in some situation and, if it was made, the gain that it led to."""

    network: str  # identifies the network
    step: str
    features: tuple[float, ...]
    scale: float  # of the peculiarities of this network
    gain: float = 0.0
    variance: float = 1.0

    @classmethod
    def of(
        cls,
        situation: Situation,
        choice: Choice,
        features: Floats,
        scale: float,
        gain: float = 0.0,
        variance: float = 1.0,
    ) -> Seen:
        """Return a choice with its features."""
        step = " and ".join(map(str, choice.step)) if choice.grows else ""
        names = " ".join(situation.graph.names)
        return cls(f"{names} {_size(situation)}", step, tuple(features.tolist()), scale, gain, variance)


def _size(situation: Situation) -> int:
    """Return the number of weights of the network as its author wrote it."""
    return round(float((2.0 ** situation.graph.feature("log_weights") - 1).sum()))


@dataclass(frozen=True)
class Forecaster:
    """Holds both models, and what live growths have shown.

    `spread` widens all intervals, so that they cover what they should on networks that were not taught.
    """

    usual: Usual
    leave: Fitted
    gains: Fitted
    spread: float = 1.0
    seen: tuple[Seen, ...] = ()

    def expect(self, situation: Situation, choices: Sequence[Choice]) -> Expected:
        """Return what is expected of these choices in a situation."""
        numbers, unknown = self.usual.complete(numbers_of(situation))
        log_error, variance = self._leave(situation, numbers, unknown)
        features = features_of(situation, choices, numbers)
        gain, covariance = self._gains(situation, choices, features, numbers)
        slopes = self._slopes(situation, choices, numbers, unknown, features)
        covariance = covariance + slopes @ unknown @ slopes.T
        error, scale = math.exp(min(log_error, -0.01)), float(self.gains.scale(numbers))
        noise = noise_of(features, situation.share_left, error, scale, self.gains.variances)
        return Expected(tuple(choices), gain, self.spread**2 * covariance, self.spread**2 * noise, log_error, variance)

    def leave_alone(self, situation: Situation) -> tuple[float, float]:
        """Return the expected logarithm of the final error of a network that is left alone, and its deviation."""
        numbers, unknown = self.usual.complete(numbers_of(situation))
        log_error, variance = self._leave(situation, numbers, unknown)
        return log_error, math.sqrt(variance)

    def _leave(self, situation: Situation, numbers: Floats, unknown: Floats) -> tuple[float, float]:
        """Return the expected logarithm of the final error, and the variance of one run around it."""
        left = to_come(situation.share_left)
        features = leave_features(numbers, left)[None]
        mean, covariance = self.leave.predict(features)
        at, error = SITUATION.index("log_error"), last_error(situation)
        now = float(self.usual.mean[at] + self.usual.deviation[at] * numbers[at])
        if error is not None:  # the numbers are limited to what is usual
            now = math.log(max(error, SMALLEST_ERROR))
        slopes = np.zeros(len(SITUATION))
        for i in np.flatnonzero(np.diag(unknown) > 0):
            moved = numbers.copy()
            moved[i] += 0.5
            slopes[i] = -2 * float((leave_features(moved, left) - features[0]) @ self.leave.mean)
            slopes[i] += self.usual.deviation[at] * (i == at)
        variances = self.leave.variances
        own = sum(v for name, v in variances.items() if name not in ("weights", "measured", "noise"))
        own = (left**2 * own + variances.get("noise", 0.0)) * float(self.leave.scale(numbers)) ** 2
        final = math.exp(min(now - float(mean[0]), -0.01))
        own += 2 * variances.get("measured", 1.0) * (1 - final) / (JUDGED * max(final, SMALLEST_ERROR))
        variance = self.spread**2 * (float(covariance[0, 0]) + own) + float(slopes @ unknown @ slopes)
        return now - float(mean[0]), variance

    def _gains(
        self, situation: Situation, choices: Sequence[Choice], features: Floats, numbers: Floats
    ) -> tuple[Floats, Floats]:
        """Return the expected gains and their covariance, with what live growths have shown."""
        scale = float(self.gains.scale(numbers))
        own = [Seen.of(situation, choice, row, scale) for choice, row in zip(choices, features, strict=True)]
        every = [*own, *self.seen]
        mean, covariance = self.gains.predict(np.array([one.features for one in every]))
        covariance = covariance + peculiar(every, self.gains.variances)
        results, variances = np.array([s.gain for s in self.seen]), np.array([s.variance for s in self.seen])
        return conditioned(mean, covariance, results, variances) if self.seen else (mean, covariance)

    def after(self, situation: Situation, choice: Choice, gain: float, variance: float) -> Forecaster:
        """Return a forecaster that has also seen this gain over leaving the network alone, known up to a variance."""
        numbers, _ = self.usual.complete(numbers_of(situation))
        features = features_of(situation, [choice], numbers)[0]
        seen = Seen.of(situation, choice, features, float(self.gains.scale(numbers)), gain, variance)
        return replace(self, seen=(*self.seen, seen)[-MOST_SEEN:])

    def _slopes(
        self, situation: Situation, choices: Sequence[Choice], numbers: Floats, unknown: Floats, features: Floats
    ) -> Floats:
        """Return how the gain of each choice changes with each unknown number."""
        slopes = np.zeros((len(choices), len(numbers)))
        for i in np.flatnonzero(np.diag(unknown) > 0):
            moved = numbers.copy()
            moved[i] += 1.0
            slopes[:, i] = (features_of(situation, choices, moved) - features) @ self.gains.mean
        return slopes


def features_of(situation: Situation, choices: Sequence[Choice], numbers: Floats) -> Floats:
    """Return the features of choices; `numbers` are those of the situation, standardised."""
    describer = Describer(situation, numbers)
    return np.array([describer.features(choice) for choice in choices]).reshape(-1, len(GAIN))


def to_come(share_left: float) -> float:
    """Return the part of a whole training's changes that is still to come: 1 at its beginning, 0 at its end."""
    return float(min(max(share_left, 0.0), 1.0) ** SLOWING)


def leave_features(numbers: Floats, left: float) -> Floats:
    """Return the features of leaving a network alone, of whose changes a part `left` is still to come."""
    known = dict(zip(SITUATION, numbers, strict=True))
    squares = [known[name] ** 2 for name in SQUARES]
    return left * np.array([1.0, *numbers, *squares, *(known[a] * known[b] for a, b in PRODUCTS)])


PECULIAR = {  # the effects of a network and of its data, and what they are proportional to
    "family reset": "reset always",
    "family grow": "grow always",
    "family deepen": "deepen always",
    "family widen": "widen always",
    "data reset": "reset always",
    "data grow": "grow always",
    "member reset": "reset always",
    "member grow": "grow always",
    "scenario grow": "grow always",
    "epochs": "epochs always",
}


def peculiar(choices: Sequence[Seen], variances: dict[str, float]) -> Floats:
    """Return the part of the gains' covariance that comes from networks and data not seen in training."""
    features = np.array([choice.features for choice in choices])
    found = np.zeros((len(choices), len(choices)))
    for name, feature in PECULIAR.items():
        amount = features[:, GAIN.index(feature)]
        found += variances.get(name, 0.0) * np.outer(amount, amount)
    steps, networks = ([getattr(choice, name) for choice in choices] for name in ("step", "network"))
    found += variances.get("option", 0.0) * np.array([[bool(a) and a == b for b in steps] for a in steps])
    scale = np.array([choice.scale for choice in choices])
    return np.asarray(found * np.outer(scale, scale) * np.array([[a == b for b in networks] for a in networks]))


def noise_of(features: Floats, share_left: float, error: float, scale: float, variances: dict[str, float]) -> Floats:
    """Return the variance of one run's gain around the expected one."""
    measured = (1 - error) / (JUDGED * max(error, SMALLEST_ERROR))
    runs = variances["noise"] + (variances["noise, time left"] + variances["nothing"]) * share_left
    judged = (variances["measured"] + variances["nothing measured"]) * measured
    changed = np.abs(features).sum(axis=1) > 0  # leaving the network alone gains nothing over itself
    return np.where(changed, scale**2 * runs + judged, 0.0)
