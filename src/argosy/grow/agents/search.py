"""Looking for the best plan by trying few of them.

Each try trains a network, so it is dear. After every try the search asks which plan promises the largest expected
improvement over the best result so far, and stops when that is less than a try is worth. What other tasks taught
comes in as one hypothesis; that this task is unlike all others is a second one. They take turns in asking, so a
misleading past costs every second try, not all of them; results weigh them when a plan has to be chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from argosy.grow.agents.plans import NOTES, WHOLE, Floats, Plan, Task
from argosy.grow.agents.surrogate import Observed, Surrogate
from argosy.grow.errors import GrowError

FAITH = 6.0  # results in a new task that weigh as much as the usual spread of other tasks
OWN = 0.1  # variance of what is peculiar to a new task, beyond what the kernel learned
ORDER = 0.3  # how much it matters when a layer is grown, against how often, if nothing is known
NOISE = 0.3  # of one result, if nothing is known


@dataclass(frozen=True)
class Hypothesis:
    """Standardised results before any of this task is known."""

    mean: Floats
    covariance: Floats
    noise: float


@dataclass(frozen=True)
class Belief:
    """Results as expected after some are known, in accuracy, and how well the hypothesis foretold them."""

    mean: Floats
    deviation: Floats  # of the plan's true mean
    next_deviation: Floats  # of one more result, noise included
    log_evidence: float


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
        self.hypotheses = _hypotheses(self.surrogate, asked)
        self.spread = self.surrogate.usual_spread
        self.tried: list[int] = []
        self.results: list[float] = []

    def ask(self) -> int:
        """The row of the plan to try next."""
        turn = len(self.tried) % len(self.hypotheses)
        gains = self._gains(turn) + 1e-12 * self.rng.standard_normal(len(self.plans))
        if not self.repeat:
            if len(self.tried) >= len(self.plans):
                raise GrowError("every plan has been tried")
            gains[self.tried] = -np.inf
        return int(gains.argmax())

    def tell(self, plan: int, result: float) -> None:
        """What a try gave."""
        if not np.isfinite(result):
            raise GrowError(f"the result of plan {plan} is not a number")
        self.tried.append(plan)
        self.results.append(float(result))

    def left_to_gain(self) -> float:
        """The improvement that the best next try is expected to bring, whichever hypothesis it comes from."""
        every = np.stack([self._gains(turn) for turn in range(len(self.hypotheses))])
        if not self.repeat:
            every[:, self.tried] = 0.0
        return float((self._beliefs()[0] @ every).max())

    @property
    def worth_another(self) -> bool:
        """Whether that is more than a try costs."""
        return len(self.tried) < 2 or self.left_to_gain() > self.price

    def best(self) -> int:
        """The plan to take: of those tried, the one that is expected to be best."""
        if not self.tried:
            return int(self.hypotheses[0].mean.argmax())
        tried = np.unique(self.tried)
        return int(tried[self.expected()[tried].argmax()])

    def expected(self) -> Floats:
        """The expected result of every plan."""
        weights, beliefs = self._beliefs()
        return np.asarray(weights @ np.stack([b.mean for b in beliefs]))

    def _beliefs(self) -> tuple[Floats, list[Belief]]:
        results = np.array(self.results)
        beliefs = [_update(h, self.tried, results, self.spread) for h in self.hypotheses]
        evidence = np.array([b.log_evidence for b in beliefs])
        weights = np.exp(evidence - evidence.max())
        return weights / weights.sum(), beliefs

    def _gains(self, turn: int) -> Floats:
        """The expected improvement of each plan over the best so far, by one hypothesis."""
        if not self.tried:
            return self.hypotheses[turn].mean * self.spread
        belief = self._beliefs()[1][turn]
        best = max(self.results) if not self.repeat else float(self.expected()[self.tried].max())
        deviation = belief.deviation if self.repeat else belief.next_deviation
        z = (belief.mean - best) / deviation
        return np.asarray(deviation * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)))


def _hypotheses(surrogate: Surrogate, asked: Observed) -> tuple[Hypothesis, ...]:
    """What others taught holds here (if there are others), or this task is its own."""
    own = _alike(asked)
    alone = Hypothesis(np.zeros(len(own)), own, NOISE)
    if not surrogate.known:
        return (alone,)
    mean, covariance = surrogate.expect(asked)
    return Hypothesis(mean, covariance + OWN * own, surrogate.usual_noise), alone


def _alike(asked: Observed) -> Floats:
    """How alike plans are if nothing was ever learned: they grow the same layers as often, at about the same time."""
    weights = np.array([ORDER if "late" in note else 0.0 if "less" in note else 1.0 for note in (*NOTES, *WHOLE)])
    layers = asked.layers * weights[: len(NOTES), None]
    codes = np.concatenate([layers.reshape(len(layers), -1), asked.whole * weights[len(NOTES) :]], axis=1)
    apart = ((codes[:, None] - codes[None]) ** 2).sum(-1)
    return np.asarray(np.exp(-0.5 * apart))


def _update(hypothesis: Hypothesis, tried: Sequence[int], results: Floats, spread: float) -> Belief:
    """The task's own mean and spread are unknown: the mean is free, the spread is drawn to the usual one."""
    rows = list(tried)
    covariance, one = hypothesis.covariance, np.ones(len(rows))
    factor = cho_factor(covariance[np.ix_(rows, rows)] + hypothesis.noise * np.eye(len(rows)))
    solved_one = cho_solve(factor, one)
    weight = one @ solved_one
    scale, misfit = spread, 0.0
    for _ in range(4):  # the mean depends on the scale and the scale on the mean
        rest = results - scale * hypothesis.mean[rows]
        level = (solved_one @ rest) / weight
        rest = rest - level
        misfit = rest @ cho_solve(factor, rest)
        scale = float(np.sqrt((misfit + FAITH * spread**2) / (len(rows) - 1 + FAITH)))
    across = covariance[:, rows]
    mean = level + scale * hypothesis.mean + across @ cho_solve(factor, rest)
    reduced = covariance.diagonal() - np.einsum("ij,ji->i", across, cho_solve(factor, across.T))
    of_level = (1 - across @ solved_one) ** 2 / weight
    variance = np.maximum(reduced, 1e-9) + of_level
    evidence = -0.5 * (len(rows) - 1 + FAITH) * np.log1p(misfit / (FAITH * spread**2))
    evidence -= np.log(np.diag(factor[0])).sum() + 0.5 * np.log(weight)
    return Belief(mean, scale * np.sqrt(variance), scale * np.sqrt(variance + hypothesis.noise), float(evidence))
