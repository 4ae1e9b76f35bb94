"""Argosy's own growth agent: forecast every choice, and take the one that is expected to be best, with some caution.

Decision: of leaving the network alone, only resetting the learning rate, replicating, and every growth with and without
    a reset, the one whose careful gain is largest: the expected gain minus `caution` deviations of this expectation. A
    growth must also be expected to beat the best choice that does not grow, as carefully, and by `at_least`.
State used: the learning curve, sizes of network and data, the recipe, time and price; what is unknown makes it careful.
Parameters: `caution`, which is small in the agent that ships: the gain of what it does is above 0 with a probability of
    at least 54 %, because more caution declined too much that would have helped; `several`, the most surgeries per
    decision; `at_least`, the gain in score that growing or replicating must be expected to bring, and `gpu_price`, the
    same if the job is charged for the GPUs.

What live growths led to refines the forecasts: `learned`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from argosy.errors import InputError
from argosy.grow.agents.base import Answer, Outcome, Situation
from argosy.grow.agents.forecast_features import (
    GAIN,
    RESET_NEEDS,
    SMALLEST_ERROR,
    Choice,
    Step,
    choices_of,
    epochs_left,
    last_error,
)
from argosy.grow.agents.forecaster import Expected, Forecaster, Seen, Usual
from argosy.grow.agents.mixed_linear import Fitted
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.zoo import weights as zoo

PRETRAINED = Path(__file__).with_name("forecaster.safetensors")
NETWORK = "growth forecaster 2"
ROLLED_BACK = -0.2  # the gain that is assumed of a growth that was undone, on the logarithmic scale
UNSURE = 0.1  # its deviation
TAKES_GPUS = ("grow", "replicate")


@dataclass(frozen=True)
class Forecast:
    """Holds the forecast of one choice: its gain in score over leaving the network alone at the end of the budget.

    `low` and `high` bound 80 % of the runs; `deviation` is that of the expected gain itself.
    """

    kind: str  # "leave", "reset", "replicate" or "grow"
    step: Step
    reset: bool
    gain: float
    low: float
    high: float
    deviation: float
    score: float  # expected at the end
    chosen: bool = False

    @property
    def what(self) -> str:
        """Return the choice in words."""
        if self.kind in ("leave", "reset"):
            return "leave it" if self.kind == "leave" else "only reset the learning rate"
        return " and ".join(map(str, self.step)) + ("" if self.reset or self.kind == "replicate" else " without reset")

    def __str__(self) -> str:
        if self.kind == "leave":
            return f"leave it: {100 * self.score:.1f} % at the end"
        return f"{self.what}: {_signed(self.gain)} ({_signed(self.low)} to {_signed(self.high)})"


class ForecastingAgent:
    """This agent decides by forecasts of what each choice gains."""

    def __init__(
        self,
        forecaster: Forecaster,
        *,
        caution: float = 0.5,
        several: int = 2,
        at_least: float = 0.0,
        gpu_price: float = 0.005,
    ) -> None:
        if several < 1:
            raise GrowError(f"several = {several} surgeries per decision is too small", hint="give 1 or more")
        if not caution >= 0:
            raise GrowError(f"caution = {caution:g} is not allowed", hint="give 0 or more deviations")
        self.forecaster = forecaster
        self.caution, self.several, self.at_least, self.gpu_price = caution, several, at_least, gpu_price
        self.forecasts: tuple[Forecast, ...] = ()  # for the last decision, best first
        self.why = ""

    def decide(self, situation: Situation) -> Answer:
        """Return the choice that is expected to be best, even after a deduction for what is unsure."""
        choices = choices_of(situation, self.several)
        expected = self.forecaster.expect(situation, choices)
        chosen = self.choose(situation, expected)
        forecasts = [self._forecast(expected, i, i == chosen) for i in range(len(choices))]
        self.forecasts = tuple(sorted(forecasts, key=lambda f: (not f.chosen, -f.gain)))
        self.why = self._explain(situation, forecasts[chosen])
        choice = choices[chosen]
        step = tuple(_fresh(surgery, situation) for surgery in choice.step)
        if choice.kind == "leave":
            return Answer((), False)
        return Answer(step, choice.reset if choice.kind != "replicate" else False)

    def choose(self, situation: Situation, expected: Expected) -> int:
        """Return the number of the best choice."""
        kinds = [choice.kind for choice in expected.choices]
        charged = self.gpu_price if situation.price is not None and situation.price.kind == "gpus" else 0.0
        price = [max(charged, self.at_least) * (kind in TAKES_GPUS) for kind in kinds]
        simple = [i for i, kind in enumerate(kinds) if kind != "grow"]
        best = max(simple, key=lambda i: (self._careful(expected, i, 0) - price[i], -i))
        growths = [i for i, kind in enumerate(kinds) if kind == "grow"]
        if not growths:
            return best
        grown = max(growths, key=lambda i: min(self._careful(expected, i, other) for other in {0, best}))
        doubt = min(self._careful(expected, grown, other) - price[grown] + price[other] for other in simple)
        return grown if doubt > 0 else best

    def _careful(self, expected: Expected, number: int, against: int) -> float:
        """Return a lower bound of the expected gain of a choice over another."""
        gain, deviation = expected.points(number, against)
        return gain - self.caution * deviation

    def _forecast(self, expected: Expected, number: int, chosen: bool) -> Forecast:
        choice = expected.choices[number]
        gain, deviation = expected.points(number)
        low, high = expected.interval(number)
        score = 1 - expected.error + gain
        return Forecast(choice.kind, choice.step, choice.reset, gain, low, high, deviation, score, chosen)

    def _explain(self, situation: Situation, chosen: Forecast) -> str:
        """Return the reason for a decision in words."""
        leave = next(f for f in self.forecasts if f.kind == "leave")
        reset = next((f for f in self.forecasts if f.kind == "reset"), None)
        others = [f for f in self.forecasts if f.kind in ("grow", "replicate") and not f.chosen]
        best = max(others, key=lambda f: f.gain, default=None)
        told = f"left alone it would reach {100 * leave.score:.1f} %"
        if chosen.kind == "leave":
            parts = [f"leave it: nothing is expected to do clearly better; {told}"]
        else:
            parts = [f"{chosen.what}: {_points(chosen)} over leaving it; {told}"]
        if reset is not None and chosen.kind != "reset":
            parts.append(f"reset alone {_signed(reset.gain)}")
        if best is not None:
            parts.append(f"{'next best' if chosen.kind == 'grow' else 'best other'} {best.what} {_signed(best.gain)}")
        if last_error(situation) is None:
            parts.append("the accuracy so far is unknown, so this is unsure")
        return "; ".join(parts)

    def learned(self, situation: Situation, surgeries: Step, outcome: Outcome) -> None:
        """Refine the forecasts with what became of a decision in this situation."""
        grows = any(s.op != "replicate" for s in surgeries)
        epochs = epochs_left(situation)
        reset = grows and (epochs is None or epochs >= RESET_NEEDS)
        choice = Choice(tuple(surgeries), reset)
        if not choice.step:
            return
        observed = self._gain_of(situation, choice, outcome)
        if observed is not None:
            self.forecaster = self.forecaster.after(situation, choice, *observed)

    def _gain_of(self, situation: Situation, choice: Choice, outcome: Outcome) -> tuple[float, float] | None:
        """Return the gain that an outcome shows, and its variance."""
        if outcome.rolled_back:
            return ROLLED_BACK, UNSURE**2
        if outcome.score is None or not 0 <= outcome.score <= 1 or last_error(situation) is None:
            return None
        if outcome.share_left > 0.05:
            return None  # only the end shows what growing was worth
        log_error, deviation = self.forecaster.leave_alone(situation)
        gain = log_error - math.log(max(1 - outcome.score, SMALLEST_ERROR))
        noise = float(self.forecaster.expect(situation, [Choice(), choice]).noise[1])
        return min(max(gain, -1.0), 1.0), deviation**2 + noise

    def state(self) -> dict[str, Any]:
        """Return what was learned from live growths, as plain data."""
        return {"seen": [asdict(one) for one in self.forecaster.seen]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with what was learned before."""
        seen = tuple(Seen(**{**one, "features": tuple(one["features"])}) for one in state["seen"])
        if any(len(one.features) != len(GAIN) for one in seen):
            raise GrowError("the saved state is that of another agent", hint="continue with the same agent")
        self.forecaster = replace(self.forecaster, seen=seen)

    @classmethod
    def load(cls, path: str | Path | None = None) -> ForecastingAgent:
        """Read an agent from a file; without a path, return the agent that comes with Argosy."""
        place = Path(path if path is not None else PRETRAINED)
        try:
            found = zoo.read(place)
        except InputError as problem:
            raise GrowError(problem.what, where=str(place), hint=problem.hint) from None
        if found.network != NETWORK:
            raise GrowError(f"the file is not an agent: its network is not {NETWORK!r}", where=str(place))
        try:
            settings, variances, arrays = found.about["settings"], found.about["variances"], found.arrays
            double = {name: array.astype(float) for name, array in arrays.items()}
            usual = Usual(double["mean"], double["deviation"], double["correlation"])
            leave = Fitted(double["leave.mean"], double["leave.covariance"], variances["leave"], double["leave.scales"])
            gains = Fitted(double["gains.mean"], double["gains.covariance"], variances["gains"], double["gains.scales"])
            return cls(Forecaster(usual, leave, gains, float(found.about["spread"])), **settings)
        except (KeyError, TypeError, ValueError) as problem:
            raise GrowError(f"the agent is incomplete or damaged: {problem!r}", where=str(place)) from None

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the agent, and how it was made, to a file."""
        forecaster = self.forecaster
        arrays = {
            "mean": forecaster.usual.mean,
            "deviation": forecaster.usual.deviation,
            "correlation": forecaster.usual.correlation,
            "leave.mean": forecaster.leave.mean,
            "leave.covariance": forecaster.leave.covariance,
            "leave.scales": forecaster.leave.scales,
            "gains.mean": forecaster.gains.mean,
            "gains.covariance": forecaster.gains.covariance,
            "gains.scales": forecaster.gains.scales,
        }
        header = {
            "network": NETWORK,
            "settings": {
                "caution": self.caution,
                "several": self.several,
                "at_least": self.at_least,
                "gpu_price": self.gpu_price,
            },
            "spread": forecaster.spread,
            "variances": {"leave": forecaster.leave.variances, "gains": forecaster.gains.variances},
            **(about or {}),
        }
        zoo.write(zoo.Weights({n: a.astype(np.float32) for n, a in arrays.items()}, header), Path(path))


def pretrained() -> ForecastingAgent:
    """Return the agent that comes with Argosy."""
    return ForecastingAgent.load()


def _fresh(surgery: Surgery, situation: Situation) -> Surgery:
    """Return the surgery with new channels that start at random, which is better than copies, where that is possible.

    A layer norm over the channels needs copies; such channels can only be widened by whole factors.
    """
    whole = surgery.factor == round(surgery.factor)
    if surgery.op != "widen" or surgery.init or (whole and any("layernorm" in n for n in situation.graph.norms)):
        return surgery
    return replace(surgery, init="fresh")


def _signed(gain: float) -> str:
    return f"{100 * gain:+.1f}"


def _points(forecast: Forecast) -> str:
    return f"{_signed(forecast.gain)} points ({_signed(forecast.low)} to {_signed(forecast.high)}, 80 %)"
