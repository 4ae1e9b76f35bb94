"""Learn a linear model with random effects: the variances by their marginal likelihood, the weights given those.

Rows belong to *blocks* (a network with its data and recipe) that share no noise and no effects but those that go across
blocks (such as of families of networks). So all that has to be inverted is one matrix per block, and one for the
weights and the effects across blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from argosy.grow.agents.mixed_linear import Fitted, Floats

Ints = NDArray[np.int64]

SMALLEST, USUAL, LARGEST = 1e-6, 0.01, 1.0  # variances: the limits, and where they stay if the data do not matter
PULL = 0.02  # how strongly they are drawn there
TINY = 1e-4  # results that differ by less than the root of this from what is expected count as equal
SHRINK = 5.0  # how many blocks it takes to believe that the scale depends on a number


@dataclass(frozen=True)
class Effect:
    """One kind of random effect: its value is shared by rows with the same number in `group`, times `amount`."""

    name: str
    group: Ints
    amount: Floats
    across: bool = False  # groups go across blocks, as families of networks do
    scaled: bool = True  # its deviation is larger where results are more uncertain


@dataclass(frozen=True)
class Rows:
    """Holds results with their features; `prior` is the prior deviation of each weight, relative to the others."""

    features: Floats
    results: Floats
    block: Ints
    effects: tuple[Effect, ...]
    prior: Floats
    numbers: Floats  # of the situation, on which the scale of effects and noise depends

    def divided(self, scale: Floats) -> Rows:
        """Return the rows divided by the scale of their effects and noise."""
        effects = tuple(e if e.scaled else replace(e, amount=e.amount / scale) for e in self.effects)
        features, results = self.features / scale[:, None], self.results / scale
        return replace(self, features=features, results=results, effects=effects)


def fit(rows: Rows, start: Mapping[str, float] | None = None, steps: int = 80) -> Fitted:
    """Learn variances and weights, then the scale, then variances and weights again.

    `start` has variances from which learning begins.
    """
    first = _fit(rows, start, steps)
    scales = _scales(rows, first)
    if not scales.any():
        return first
    fitted = replace(first, scales=scales)
    return replace(_fit(rows.divided(fitted.scale(rows.numbers)), first.variances, steps), scales=scales)


def _fit(rows: Rows, start: Mapping[str, float] | None, steps: int) -> Fitted:
    problem = _Problem(rows)
    begin = np.log([min(max((start or {}).get(name, USUAL), SMALLEST), LARGEST) for name in problem.names])
    bounds = [(math.log(SMALLEST), math.log(LARGEST))] * len(begin)
    found = minimize(problem.loss, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return problem.posterior(found.x)


def _scales(rows: Rows, fitted: Fitted) -> Floats:
    """Return how the size of what the weights leave unexplained depends on the numbers of the situation."""
    left = np.log((rows.results - rows.features @ fitted.mean) ** 2 + TINY)
    numbers = rows.numbers
    blocks = len(np.unique(rows.block))
    ridge = SHRINK * len(left) / max(blocks, 1) * np.eye(numbers.shape[1])  # a block is hardly more than one result
    return np.asarray(0.5 * np.linalg.solve(numbers.T @ numbers + ridge, numbers.T @ (left - left.mean())))


def numbered(names: Sequence[object]) -> Ints:
    """Return a number for each distinct name, in order of appearance."""
    known: dict[object, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)


class _Problem:
    """The marginal likelihood as a function of the logarithms of all variances; blocks are padded to one size."""

    def __init__(self, rows: Rows) -> None:
        self.names = ["weights", "noise", *(e.name for e in rows.effects)]
        self.rows = rows
        across = [(e, np.unique(e.group)) for e in rows.effects if e.across]
        inside = [e for e in rows.effects if not e.across]
        columns = [rows.features, *((e.group[:, None] == groups) * e.amount[:, None] for e, groups in across)]
        blocks = [np.flatnonzero(rows.block == b) for b in np.unique(rows.block)]
        size = max(map(len, blocks))
        self.columns = _padded(np.concatenate(columns, axis=1), blocks, size)
        self.results = _padded(rows.results[:, None], blocks, size)
        self.real = _padded(np.ones((len(rows.results), 1)), blocks, size)[..., 0]
        self.shared = {}
        for effect in inside:
            amount = _padded(effect.amount[:, None], blocks, size)[..., 0]
            group = _padded(effect.group[:, None].astype(float), blocks, size)[..., 0]
            same = (group[:, :, None] == group[:, None, :]).double()
            self.shared[effect.name] = amount[:, :, None] * amount[:, None, :] * same
        self.prior = torch.from_numpy(rows.prior**2)
        self.across = [(effect.name, len(groups)) for effect, groups in across]

    def solve(self, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the negative log marginal likelihood, the columns' weights, and the factor of their precision."""
        variance = dict(zip(self.names, logs.exp(), strict=True))
        prior = torch.cat([variance["weights"] * self.prior, *(variance[n].expand(k) for n, k in self.across)])
        noise = (variance["noise"] + 1e-8) * self.real + (1 - self.real)  # what is only padding has no effect
        covariance = torch.diag_embed(noise)
        for name, matrix in self.shared.items():
            covariance = covariance + variance[name] * matrix
        factor = torch.linalg.cholesky(covariance)
        a = torch.linalg.solve_triangular(factor, self.columns, upper=False).flatten(0, 1)
        b = torch.linalg.solve_triangular(factor, self.results, upper=False).flatten()
        whole = torch.linalg.cholesky(a.T @ a + torch.diag(1 / prior))
        pull = a.T @ b
        mean = torch.cholesky_solve(pull[:, None], whole)[:, 0]
        logs_of = torch.diagonal(factor, dim1=1, dim2=2).log().sum() + torch.diagonal(whole).log().sum()
        return logs_of + 0.5 * (prior.log().sum() + b @ b - pull @ mean), mean, whole

    def loss(self, logs: Floats) -> tuple[float, Floats]:
        """Return what is minimised, and its gradient."""
        at = torch.from_numpy(logs.copy()).requires_grad_()
        loss = self.solve(at)[0] + PULL * ((at - math.log(USUAL)) ** 2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert at.grad is not None
        return float(loss.detach()), at.grad.numpy().copy()

    def posterior(self, logs: Floats) -> Fitted:
        """Return the weights of the features alone; effects across blocks are integrated out."""
        _, mean, whole = self.solve(torch.from_numpy(logs))
        n = self.rows.features.shape[1]
        covariance = torch.cholesky_inverse(whole)[:n, :n]
        variances = dict(zip(self.names, np.exp(logs).tolist(), strict=True))
        return Fitted(mean[:n].numpy(), covariance.numpy(), variances, np.zeros(self.rows.numbers.shape[1]))


def _padded(values: Floats, blocks: Sequence[Ints], size: int) -> Tensor:
    """Return the rows of each block, followed by zeros."""
    found = np.zeros((len(blocks), size, values.shape[1]))
    for i, block in enumerate(blocks):
        found[i, : len(block)] = values[block]
    return torch.from_numpy(found)
