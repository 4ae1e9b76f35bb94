"""Evolution strategies: they improve a vector of weights by scores alone, whatever the score is.

A generation tries pairs of mirrored changes, each on the same arrivals. Only the ranks of the scores count, so an
extreme trace does not decide. The scores are the caller's: they may be computed here, in processes or elsewhere.
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
    """Improves a vector. Everything random follows from `seed` and the number of the generation."""

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
    ) -> None:
        """`decay` of weights. `arrivals`: seeds of a generation, drawn from the range `seeds`."""
        positive(pairs=pairs, sigma=sigma, lr=lr, arrivals=arrivals)
        if start.ndim != 1 or not len(start) or not np.isfinite(start).all():
            raise InputError("evolution starts from a flat vector of numbers")
        self.pairs, self.sigma, self.arrivals, self.seeds, self.seed = pairs, sigma, arrivals, seeds, seed
        self._weights = torch.nn.Parameter(torch.from_numpy(start.astype(np.float64)))
        self.optimizer = torch.optim.AdamW([self._weights], lr=lr, weight_decay=decay)
        super().__init__({"optimizer": self.optimizer})

    @property
    def vector(self) -> Vector:
        """Return the present weights."""
        return self._weights.detach().numpy().copy()

    def ask(self) -> tuple[Vector, list[int]]:
        """The vectors of the next generation, mirrored ones next to each other's half, and its seeds."""
        noise = self._noise()
        draws = stream(self.seed, "arrivals", self.updates)
        seeds = draws.integers(*self.seeds, size=self.arrivals).tolist()
        return self.vector + self.sigma * np.concatenate((noise, -noise)), seeds

    def tell(self, scores: NDArray[np.floating]) -> dict[str, float]:
        """Update the weights by the scores of those vectors."""
        if scores.shape[:1] != (2 * self.pairs,):
            raise InputError(f"there are {len(scores)} scores for {2 * self.pairs} vectors")
        self.check("the sum of the scores", float(scores.sum()))
        table = scores.reshape(len(scores), -1).astype(np.float64)
        ranks = np.mean([shaped(column) for column in table.T], axis=0)
        gain = (ranks[: self.pairs] - ranks[self.pairs :]) @ self._noise() / (2 * self.pairs * self.sigma)
        self._weights.grad = -torch.from_numpy(gain)
        self.optimizer.step()
        self.updates += 1
        by_vector = table.mean(axis=1)
        return {
            "mean": float(by_vector.mean()),
            "best": float(by_vector.max()),
            "worst": float(by_vector.min()),
            "gradient_norm": float(np.linalg.norm(gain)),
        }

    def update(self, evaluate: Evaluate) -> dict[str, float]:
        """Make one generation."""
        vectors, seeds = self.ask()
        return self.tell(np.asarray(evaluate(vectors, seeds), np.float64))

    def _noise(self) -> Vector:
        return stream(self.seed, "evolution", self.updates).standard_normal((self.pairs, len(self._weights)))

    def state(self) -> State:
        """Return the weights, the optimizer's state, and the number of generations."""
        return super().state() | {"vector": self._weights.detach().clone()}

    def restore(self, state: State) -> None:
        """Continue from a saved state."""
        vector = need(state, "vector", "evolution")
        if vector.shape != self._weights.shape:
            raise InputError(f"the saved vector has {len(vector)} weights, and {len(self._weights)} are needed")
        super().restore(state)
        with torch.no_grad():
            self._weights.copy_(vector)


def shaped(scores: Vector) -> Vector:
    """Replace scores by their ranks, from -1/2 for the worst to 1/2 for the best; ties share a rank."""
    ranks: Vector = rankdata(scores)
    return (ranks - 1.0) / max(len(scores) - 1, 1) - 0.5
