"""The search that Mirhoseini's and Spotlight's learners share: draw placements, measure new ones, learn from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from argosy.learn.placement.problem import Floats, Meter, PlacementProblem

SEEN = 64  # rewards over which their spread is taken
Gains = NDArray[np.float32]
N = TypeVar("N", bound=nn.Module)


class SearchSettings(Protocol):
    """The hyper-parameters of a search that do not depend on how its policy learns."""

    @property
    def draws(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def baseline(self) -> float: ...
    @property
    def entropy(self) -> float: ...
    @property
    def novelty(self) -> float: ...
    @property
    def failed(self) -> float: ...
    @property
    def most_updates(self) -> int: ...


class Update(Protocol):
    """Learns from placements and how much better than usual each was; `explore` is the weight of the entropy."""

    def __call__(self, placements: Tensor, inputs: tuple[Tensor, ...], gains: Gains, explore: float) -> None: ...


def search_with(
    problem: PlacementProblem,
    policy: nn.Module,
    settings: SearchSettings,
    update: Update,
    rng: np.random.Generator,
    budget: int,
) -> Meter:
    """Measure placements that the policy draws until `budget` different ones are known."""
    meter = Meter(problem)
    rewards, explore = Rewards(settings.failed, settings.baseline), Exploration(settings.entropy, settings.novelty)
    for _ in range(settings.most_updates):
        known = meter.measured
        drawn = policy.sample(problem, settings.draws, rng)  # type: ignore[operator]
        placements = meter.affordable(drawn, min(settings.samples, budget - known))
        gains = rewards.advantages(meter.measure(placements))
        if meter.measured >= budget:
            break
        update(torch.from_numpy(placements), policy.inputs(problem, placements), gains, explore.weight)  # type: ignore[operator]
        explore.note((meter.measured - known) / len(placements))
    return meter


def new(make: Callable[[], N], rng: np.random.Generator) -> N:
    """Return a network whose first weights follow from `rng`; PyTorch's own stream stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        return make()


class Rewards:
    """Turns step times into rewards −√T, and these into advantages over their moving average."""

    def __init__(self, failed: float, keep: float) -> None:
        self._failed, self._keep, self._slowest_s, self._seen = failed, keep, 0.0, np.zeros(0)
        self._baseline: float | None = None

    def advantages(self, times_s: Floats) -> Gains:
        good = np.isfinite(times_s)
        self._slowest_s = max([self._slowest_s, *times_s[good].tolist()])
        reward = -np.sqrt(np.where(good, times_s, self._failed * (self._slowest_s or 1.0)))
        self._seen = np.concatenate([self._seen, reward])[-SEEN:]
        mean = float(reward.mean())
        self._baseline = mean if self._baseline is None else self._keep * self._baseline + (1 - self._keep) * mean
        return np.asarray((reward - self._baseline) / (self._seen.std() + 1e-6), np.float32)


class Exploration:
    """Adapts the weight of the entropy, so that some of the placements drawn remain new."""

    def __init__(self, weight: float, novelty: float) -> None:
        self.weight, self._novelty = weight, novelty

    def note(self, new_share: float) -> None:
        """Take note of the share of new placements in the last update."""
        self.weight = float(np.clip(self.weight * (1.3 if new_share < self._novelty else 0.9), 0.001, 1.0))
