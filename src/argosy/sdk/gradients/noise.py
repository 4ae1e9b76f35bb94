"""Measures the gradient noise scale: the batch size beyond which more samples per step help little.

Each worker's gradient is a mean over its own samples; the mean over all samples varies less. From the two, the variance
of a single sample's gradient and the squared length of the true gradient follow, without bias; their ratio is the noise
scale φ, in samples. A single worker compares its gradients of two steps in a row instead, as Pollux does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

DECAY = 0.99  # weight of earlier measurements for each new one
ENOUGH = 5  # measurements that are needed before a value is reported
ALONE_EVERY = 4  # a single worker measures only two steps out of this many, because it must copy a gradient


class NoiseScale:
    """Measures the gradient noise scale while gradients are combined; it is a `Rider`."""

    size = 2

    def __init__(self) -> None:
        self.variance = _Average()  # the variance of one sample's gradient, summed over all parameters
        self.square = _Average()  # the squared length of the true gradient
        self._before: tuple[list[Tensor | None], int] | None = None
        self._turn = 0

    @property
    def value(self) -> float | None:
        """Return φ in samples; None until it is known."""
        if self.square.count < ENOUGH or self.square.mean <= 0.0:
            return None
        return max(self.variance.mean, 0.0) / self.square.mean

    @property
    def metrics(self) -> dict[str, float]:
        value = self.value
        return {} if value is None else {"noise_scale": value}

    def fill(self, gradients: Sequence[Tensor | None], samples: int) -> Tensor:
        """Return samples times the squared length of this worker's gradient, and 1 if it has samples."""
        if not samples:
            return torch.zeros(2, dtype=torch.float64)
        return torch.tensor([samples * _square(gradients), 1.0], dtype=torch.float64)

    def take(self, summed: Tensor, gradients: Sequence[Tensor | None], samples: int, world: int) -> None:
        """Take the sums over all workers, and the mean gradient over all samples."""
        weighted, workers = summed.tolist()
        if workers > 1.5:
            self._before = None
            self.observe(weighted, _square(gradients), samples, round(workers))
        elif samples:
            self._alone(gradients, samples)

    def state(self) -> dict[str, Any]:
        return {"turn": self._turn, "variance": self.variance.state(), "square": self.square.state()}

    def load(self, state: dict[str, Any]) -> None:
        self._turn, self._before = state["turn"], None
        self.variance.load(state["variance"])
        self.square.load(state["square"])

    def observe(self, weighted: float, whole: float, samples: int, parts: int) -> None:
        """Add a measurement from Σ nᵢ·|gᵢ|² over the parts of a batch, and |g|² of the whole batch."""
        variance = samples * (weighted / samples - whole) / (parts - 1)
        self.variance.add(variance)
        self.square.add(whole - variance / samples)

    def _alone(self, gradients: Sequence[Tensor | None], samples: int) -> None:
        self._turn += 1
        if self._before is not None and _shapes(self._before[0]) != _shapes(gradients):
            self._before = None  # the network has grown, or parameters were frozen
        if self._before is not None:
            before, earlier = self._before
            self._before = None
            both = earlier + samples
            weighted = earlier * _square(before) + samples * _square(gradients)
            pairs = [(one, other) for one, other in zip(before, gradients) if one is not None and other is not None]
            dot = sum(float(torch.sum(one * other, dtype=torch.float64)) for one, other in pairs)
            own = earlier**2 * _square(before) + samples**2 * _square(gradients)
            self.observe(weighted, (own + 2 * earlier * samples * dot) / both**2, both, 2)
        elif self._turn % ALONE_EVERY == 0:
            self._before = [None if one is None else one.detach().clone() for one in gradients], samples


class _Average:
    """An exponentially weighted mean, unbiased from the first value on."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = self._weight = 0.0

    @property
    def mean(self) -> float:
        return self._sum / self._weight if self.count else 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self._sum = DECAY * self._sum + (1 - DECAY) * value
        self._weight = DECAY * self._weight + (1 - DECAY)

    def state(self) -> list[float]:
        return [self.count, self._sum, self._weight]

    def load(self, state: list[float]) -> None:
        self.count, self._sum, self._weight = int(state[0]), state[1], state[2]


def _shapes(gradients: Sequence[Tensor | None]) -> list[torch.Size | None]:
    return [None if gradient is None else gradient.shape for gradient in gradients]


def _square(gradients: Sequence[Tensor | None]) -> float:
    there = [gradient.detach() for gradient in gradients if gradient is not None]
    if not there:
        return 0.0
    return float(torch.stack(torch._foreach_norm(there)).double().square().sum())
