"""Look for the best plan by trying few of them.

Each try trains a network, so it is dear. After every try the search asks which plan promises the largest expected
improvement over the best result so far, and stops when that is less than a try is worth. It begins with what other
tasks taught; how far this task is unlike them is part of what it is unsure of.
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

FAITH = 6.0  # results in a new task that weigh as much as the usual spread of other tasks
OWN = 0.3  # variance of what is peculiar to a new task, beyond what the kernel learned
ORDER = 0.3  # how much it matters when a layer is grown, against how often, if nothing is known
NOISE = 0.6  # of one result, if nothing is known


@dataclass(frozen=True)
class Prior:
    """Standardised results before any of this task is known."""

    mean: Floats
    covariance: Floats
    noise: float


@dataclass(frozen=True)
class Belief:
    """Results as expected after some are known, in accuracy."""

    mean: Floats
    deviation: Floats  # of the plan's true mean
    next_deviation: Floats  # of one more result, noise included


class Search:
    """Ask which plan to try, tell what it gave."""

    def __init__(
        self,
        task: Task,
        plans: Sequence[Plan],
        surrogate: Surrogate | None = None,
        *,
        price: float = 0.001,  # accuracy that one more try must be expected to bring
        repeat: bool = False,  # whether a plan may be tried again, where results are noisy
        seed: int = 0,
    ) -> None:
        if not plans:
            raise GrowError("there is no plan to choose from", hint="give the plans that are possible")
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
        """Note the result of a try."""
        if not np.isfinite(result):
            raise GrowError(f"the result of plan {plan} is not a number")
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
        """Return whether that is more than a try costs."""
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
    """Return what others taught, and room for what is this task's own."""
    own = _alike(asked)
    if not surrogate.known:
        return Prior(np.zeros(len(own)), own, NOISE)
    mean, covariance = surrogate.expect(asked)
    return Prior(mean, covariance + OWN * own, surrogate.usual_noise)


def _alike(asked: Observed) -> Floats:
    """Return how alike plans are if nothing was ever learned: they grow the same layers as often, at about the same
    time.
    """
    weights = np.array([ORDER if "late" in note else 0.0 if "less" in note else 1.0 for note in (*NOTES, *WHOLE)])
    layers = asked.layers * weights[: len(NOTES), None]
    codes = np.concatenate([layers.reshape(len(layers), -1), asked.whole * weights[len(NOTES) :]], axis=1)
    apart = ((codes[:, None] - codes[None]) ** 2).sum(-1)
    return np.asarray(np.exp(-0.5 * apart))


def _update(prior: Prior, tried: Sequence[int], results: Floats, spread: float) -> Belief:
    """Predict results of a task whose mean is free and whose spread is unknown but drawn to the usual one."""
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
        scale = float(np.sqrt((misfit + FAITH * spread**2) / (len(rows) - 1 + FAITH)))
    across = covariance[:, rows]
    mean = level + scale * prior.mean + across @ cho_solve(factor, rest)
    reduced = covariance.diagonal() - np.einsum("ij,ji->i", across, cho_solve(factor, across.T))
    of_level = (1 - across @ solved_one) ** 2 / weight
    variance = np.maximum(reduced, 1e-9) + of_level
    return Belief(mean, scale * np.sqrt(variance), scale * np.sqrt(variance + prior.noise))
