"""Evolution strategies: improve a vector of weights by scores alone, whatever the score is.

A generation tries pairs of mirrored changes, all on the same arrivals. Only the ranks of the scores count, so that one
extreme trace cannot dominate. The caller computes the scores: in this process, in others, or on other machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from argosy.errors import InputError
from argosy.learn.algorithms.learner import Learner, positive
from argosy.learn.algorithms.state import State, need
from argosy.seeding import stream

Vector = NDArray[np.float64]


class Evaluate(Protocol):
    """Returns the scores [V], or [V, S] by seed, of V vectors on the same S seeds; more is better."""

    def __call__(self, vectors: Vector, seeds: Sequence[int]) -> Vector: ...


class Evolution(Learner):
    """Improves a vector of weights. All random numbers follow from `seed` and the number of the generation."""

    def __init__(
        self,
        start: NDArray[np.floating],
        *,
        pairs: int = 16,
        sigma: float = 0.05,
        lr: float = 0.02,
        decay: float = 0.0,
        arrivals: int = 1,
        seeds: tuple[int, int] = (1_000_000, 2_000_000),
        seed: int = 0,
        scale: NDArray[np.floating] | None = None,
        average: float = 0.0,
    ) -> None:
        """Try `pairs` of changes in each generation, on `arrivals` seeds from `seeds`. `decay` is the weight decay.

        With a `scale`, changes of each weight are in units of its scale: weights whose scale is 0 stay as they are.
        `average` is how much of the mean of the weights so far stays in each generation: see `averaged`.
        """
        positive(pairs=pairs, sigma=sigma, lr=lr, arrivals=arrivals)
        if not 0 <= average < 1:
            raise InputError(f"average must be at least 0 and less than 1, is {average}")
        if start.ndim != 1 or not len(start) or not np.isfinite(start).all():
            raise InputError("evolution must start from a vector of finite numbers with one dimension")
        self.pairs, self.sigma, self.arrivals, self.seeds, self.seed = pairs, sigma, arrivals, seeds, seed
        begin = start.astype(np.float64)
        self._base, self._scale = np.zeros(len(start)), np.ones(len(start))
        if scale is not None:
            self._base, self._scale, begin = begin, scale.astype(np.float64), np.zeros(len(start))
        self._weights = torch.nn.Parameter(torch.from_numpy(begin))
        self._average, self._mean = average, begin.copy()
        self.optimizer = torch.optim.AdamW([self._weights], lr=lr, weight_decay=decay)
        super().__init__({"optimizer": self.optimizer})

    @property
    def vector(self) -> Vector:
        """Return the present weights."""
        return self._base + self._weights.detach().numpy() * self._scale

    @property
    def averaged(self) -> Vector:
        """Return the moving average of the weights, in which the noise of single generations cancels out."""
        return self._base + self._mean * self._scale

    def ask(self) -> tuple[Vector, list[int]]:
        """Return the vectors of the next generation and its seeds; the second half mirrors the first."""
        noise = self._noise()
        draws = stream(self.seed, "arrivals", self.updates)
        seeds = draws.integers(*self.seeds, size=self.arrivals).tolist()
        return self.vector + self.sigma * np.concatenate((noise, -noise)) * self._scale, seeds

    def tell(self, scores: NDArray[np.floating]) -> dict[str, float]:
        """Update the weights by the scores of those vectors."""
        if scores.shape[:1] != (2 * self.pairs,):
            raise InputError(f"there are {len(scores)} scores for {2 * self.pairs} vectors", hint="give one for each")
        self.check("the sum of the scores", float(scores.sum()))
        table = scores.reshape(len(scores), -1).astype(np.float64)
        ranks = np.mean([shaped(column) for column in table.T], axis=0)
        gain = (ranks[: self.pairs] - ranks[self.pairs :]) @ self._noise() / (2 * self.pairs * self.sigma)
        self._weights.grad = -torch.from_numpy(gain)
        self.optimizer.step()
        self._mean = self._average * self._mean + (1.0 - self._average) * self._weights.detach().numpy()
        self.updates += 1
        by_vector = table.mean(axis=1)
        return {
            "mean": float(by_vector.mean()),
            "best": float(by_vector.max()),
            "worst": float(by_vector.min()),
            "gradient_norm": float(np.linalg.norm(gain)),
        }

    def update(self, evaluate: Evaluate) -> dict[str, float]:
        """Evaluate one generation, and update the weights."""
        vectors, seeds = self.ask()
        return self.tell(np.asarray(evaluate(vectors, seeds), np.float64))

    def _noise(self) -> Vector:
        return stream(self.seed, "evolution", self.updates).standard_normal((self.pairs, len(self._weights)))

    def state(self) -> State:
        """Return the weights, the optimizer's state, and the number of generations."""
        return super().state() | {"vector": self._weights.detach().clone(), "mean": torch.from_numpy(self._mean.copy())}

    def restore(self, state: State) -> None:
        """Continue from a saved state."""
        vector, mean = need(state, "vector", "evolution"), need(state, "mean", "evolution")
        if vector.shape != self._weights.shape:
            raise InputError(f"the saved vector has {len(vector)} weights, but {len(self._weights)} are needed")
        super().restore(state)
        with torch.no_grad():
            self._weights.copy_(vector)
        self._mean = mean.numpy().copy()


def shaped(scores: Vector) -> Vector:
    """Replace scores by their ranks, from -1/2 for the worst to 1/2 for the best; ties share a rank."""
    ranks: Vector = rankdata(scores)
    return (ranks - 1.0) / max(len(scores) - 1, 1) - 0.5
