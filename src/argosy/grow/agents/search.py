"""Search for the best plan with few tries (Bayesian optimisation).

Each try trains a network, so it is expensive. After every try the search takes the plan with the largest expected
improvement over the best result so far, and stops when that is less than the price of a try. Its prior comes from other
tasks; how far this task differs from them is part of its uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from argosy.grow.agents.plan_features import NOTES, WHOLE, Floats, Plan, Task
from argosy.grow.agents.surrogate import Observed, Surrogate
from argosy.grow.errors import GrowError

SPREAD_WEIGHT = 6.0  # the usual spread of other tasks weighs as much as this many results of a new task
TASK_VARIANCE = 0.3  # variance of what is specific to a new task, in addition to the learned kernel
TIMING_WEIGHT = 0.3  # weight of when a layer is grown, relative to how often, if nothing is known
NOISE = 0.6  # variance of one result, if nothing is known


@dataclass(frozen=True)
class Prior:
    """Holds the distribution of standardised results before any result of this task is known."""

    mean: Floats
    covariance: Floats
    noise: float


@dataclass(frozen=True)
class Belief:
    """Holds the distribution of results, in accuracy, after some are known."""

    mean: Floats
    deviation: Floats  # of the plan's true mean
    next_deviation: Floats  # of one more result, including noise


class Search:
    """Chooses plans to try: `ask` returns the next one, and `tell` takes its result."""

    def __init__(
        self,
        task: Task,
        plans: Sequence[Plan],
        surrogate: Surrogate | None = None,
        *,
        price: float = 0.001,  # the gain in accuracy that one more try must be expected to bring
        repeat: bool = False,  # whether a plan may be tried again, where results are noisy
        seed: int = 0,
    ) -> None:
        if not plans:
            raise GrowError("there is no plan to choose from", hint="give at least one plan")
        self.plans, self.price, self.repeat = plans, price, repeat
        self.rng = np.random.default_rng(seed)
        self.surrogate = surrogate or Surrogate()
        asked = Observed(task, *task.notes(plans), np.zeros(len(plans)))
        self.prior = _prior(self.surrogate, asked)
        self.spread = self.surrogate.usual_spread
        self.tried: list[int] = []
        self.results: list[float] = []

    def ask(self) -> int:
        """Return the row of the plan to try next."""
        gains = self._gains() + 1e-12 * self.rng.standard_normal(len(self.plans))
        if not self.repeat:
            if len(self.tried) >= len(self.plans):
                raise GrowError("every plan has been tried")
            gains[self.tried] = -np.inf
        return int(gains.argmax())

    def tell(self, plan: int, result: float) -> None:
        """Store the result of a try."""
        if not np.isfinite(result):
            raise GrowError(f"the result of plan {plan} must be a finite number, not {result}")
        self.tried.append(plan)
        self.results.append(float(result))

    def left_to_gain(self) -> float:
        """Return the improvement that the best next try is expected to bring."""
        gains = self._gains()
        if not self.repeat:
            gains[self.tried] = 0.0
        return float(gains.max())

    @property
    def worth_another(self) -> bool:
        """Return whether the expected improvement is more than the price of a try."""
        return len(self.tried) < 2 or self.left_to_gain() > self.price

    def best(self) -> int:
        """Return the plan to take: of those tried, the one that is expected to be best."""
        if not self.tried:
            return int(self.prior.mean.argmax())
        tried = np.unique(self.tried)
        return int(tried[self.expected()[tried].argmax()])

    def expected(self) -> Floats:
        """Return the expected result of every plan."""
        return self._belief().mean

    def _belief(self) -> Belief:
        return _update(self.prior, self.tried, np.array(self.results), self.spread)

    def _gains(self) -> Floats:
        """Return the expected improvement of each plan over the best so far."""
        if not self.tried:
            return self.prior.mean * self.spread
        belief = self._belief()
        best = max(self.results) if not self.repeat else float(belief.mean[self.tried].max())
        deviation = belief.deviation if self.repeat else belief.next_deviation
        z = (belief.mean - best) / deviation
        return np.asarray(deviation * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)))


def _prior(surrogate: Surrogate, asked: Observed) -> Prior:
    """Return the prior from other tasks, widened by what may be specific to this task."""
    own = _alike(asked)
    if not surrogate.known:
        return Prior(np.zeros(len(own)), own, NOISE)
    mean, covariance = surrogate.expect(asked)
    return Prior(mean, covariance + TASK_VARIANCE * own, surrogate.usual_noise)


def _alike(asked: Observed) -> Floats:
    """Return the similarity of plans without learning: similar ones grow the same layers as often, at similar times."""
    weights = np.array(
        [TIMING_WEIGHT if "late" in note else 0.0 if "less" in note else 1.0 for note in (*NOTES, *WHOLE)]
    )
    layers = asked.layers * weights[: len(NOTES), None]
    codes = np.concatenate([layers.reshape(len(layers), -1), asked.whole * weights[len(NOTES) :]], axis=1)
    apart = ((codes[:, None] - codes[None]) ** 2).sum(-1)
    return np.asarray(np.exp(-0.5 * apart))


def _update(prior: Prior, tried: Sequence[int], results: Floats, spread: float) -> Belief:
    """Predict the results of a task whose mean is free, and whose spread is estimated with the usual one as prior."""
    rows = list(tried)
    covariance, one = prior.covariance, np.ones(len(rows))
    factor = cho_factor(covariance[np.ix_(rows, rows)] + prior.noise * np.eye(len(rows)))
    solved_one = cho_solve(factor, one)
    weight = one @ solved_one
    scale = spread
    for _ in range(4):  # the mean depends on the scale and the scale on the mean
        rest = results - scale * prior.mean[rows]
        level = (solved_one @ rest) / weight
        rest = rest - level
        misfit = rest @ cho_solve(factor, rest)
        scale = float(np.sqrt((misfit + SPREAD_WEIGHT * spread**2) / (len(rows) - 1 + SPREAD_WEIGHT)))
    across = covariance[:, rows]
    mean = level + scale * prior.mean + across @ cho_solve(factor, rest)
    reduced = covariance.diagonal() - np.einsum("ij,ji->i", across, cho_solve(factor, across.T))
    of_level = (1 - across @ solved_one) ** 2 / weight
    variance = np.maximum(reduced, 1e-9) + of_level
    return Belief(mean, scale * np.sqrt(variance), scale * np.sqrt(variance + prior.noise))
