"""The search that Mirhoseini's and Spotlight's learners share: draw new placements, measure them, learn from all.

A placement that is known costs nothing, so each update learns from every one that has been measured, each with the
weight that the policy's draws would give it: the expected gradient over the known placements, not an estimate of it.
Rewards are ranks. The advantage of a placement is its rank among those known, minus the rank that the policy's draws
have on average, in units of the ranks' spread; so step times of any scale, and placements that fail, need no constants.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from argosy.learn.placement.decoding import sample, unknown
from argosy.learn.placement.problem import Floats, Ints, Meter, PlacementProblem, draw_problem

TRAINING_SEED = 1_000_000
N = TypeVar("N", bound=nn.Module)


class SearchSettings(Protocol):
    """The hyper-parameters of a search that do not depend on how its policy learns."""

    @property
    def samples(self) -> int: ...
    @property
    def from_trained(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def table_lr(self) -> float: ...


class Learner(nn.Module, ABC):
    """A network that scores devices task by task, and can be trained."""

    table: Table

    @abstractmethod
    def inputs(self, problem: PlacementProblem, placements: Ints) -> tuple[Tensor, ...]:
        """Return what `forward` needs beside the placements, a row for each of them."""

    @abstractmethod
    def forward(self, placements: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies [P, t] of the placements' devices."""

    @abstractmethod
    def start(self, problem: PlacementProblem) -> Any:
        """Return the state before the first task, as `Policy` says."""

    @abstractmethod
    def scores(self, problem: PlacementProblem, before: Ints, parents: Ints, state: Any) -> tuple[Tensor, Any]:
        """Score the devices of the next task, as `Policy` says."""

    @abstractmethod
    def copy_for(self, problem: PlacementProblem) -> Self:
        """Return a copy with an empty table for this problem."""


class Update(Protocol):
    """Learns from placements; `weights` say how much each counts, `gains` how much better than usual it is."""

    def __call__(self, placements: Tensor, inputs: tuple[Tensor, ...], weights: Tensor, gains: Tensor) -> None: ...


class Table(nn.Module):
    """Remembers what one problem's measurements say about devices of tasks, beyond what a network knows.

    It adds a number to the score of each (task, device), and if `pairs`, one for each device of every task before. All
    are 0 at first.
    """

    def __init__(self, tasks: int, devices: int, pairs: bool) -> None:
        super().__init__()
        self.single = nn.Parameter(torch.zeros(tasks, devices))
        self.pairs = nn.Parameter(torch.zeros(tasks, devices, tasks, devices)) if pairs else None

    def forward(self, before: Tensor) -> Tensor:
        """Return what is added to the scores [P, d] of the task after those of `before` [P, t]."""
        task = before.shape[1]
        added = self.single[task].expand(len(before), -1)
        if self.pairs is None or not task:
            return added
        return added + self.pairs[task][:, torch.arange(task), before].sum(-1).T


def search_from(
    problem: PlacementProblem,
    settings: SearchSettings,
    network: Learner | None,
    fresh: Callable[[], Learner],
    update_of: Callable[[Learner], Update],
    rng: np.random.Generator,
    budget: int,
) -> Meter:
    """Search from a copy of a trained network, or from a fresh one if there is none."""
    first = network or new(fresh, rng)
    policy, trained = first.copy_for(problem), network and network.copy_for(problem)
    return search_with(problem, policy, trained, settings, update_of(policy), rng, budget)


def search_with(
    problem: PlacementProblem,
    policy: Learner,
    trained: Learner | None,
    settings: SearchSettings,
    update: Update,
    rng: np.random.Generator,
    budget: int,
) -> Meter:
    """Measure placements until `budget` different ones are known, or all are.

    The first are the policy's most probable ones. Later ones are drawn from it, and a few from the network that was
    `trained` before, if there is one: so the search goes on where that network would, even if the policy errs.
    """
    meter = Meter(problem)
    while meter.measured < budget:
        count = min(settings.samples, budget - meter.measured)
        known = set(meter.known)
        others = min(settings.from_trained, count - 1) if trained is not None and known else 0
        placements = unknown(policy, problem, count - others, known, rng if known else None)
        if trained is not None and others:
            known.update(map(tuple, placements.tolist()))
            placements = np.concatenate([placements, unknown(trained, problem, others, known, rng)])
        if not len(placements):
            break
        meter.measure(placements)
        if meter.measured < budget:
            learn(policy, update, problem, meter)
    return meter


def learn(policy: Learner, update: Update, problem: PlacementProblem, meter: Meter) -> None:
    """Learn from all placements that were measured, each as probable as it is now."""
    placements = np.array(list(meter.known), np.int64)
    chosen, inputs = torch.from_numpy(placements), policy.inputs(problem, placements)
    with torch.no_grad():
        weights = policy(chosen, inputs)[0].sum(1).double().softmax(0).numpy()
    gains = advantages(np.array(list(meter.known.values())), weights)
    update(chosen, inputs, torch.from_numpy(weights.astype(np.float32)), torch.from_numpy(gains))


def advantages(times_s: Floats, weights: Floats) -> NDArray[np.float32]:
    """Return ranks of step times, the fastest highest, relative to their weighted mean and in units of their spread."""
    _, inverse, count = np.unique(-times_s, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - 0.5 * count)[inverse]  # equal times have equal ranks
    return np.asarray((rank - weights @ rank / weights.sum()) / (rank.std() + 1e-6), np.float32)


def pretrain_with(
    policy: Learner,
    make_update: Callable[[torch.optim.Optimizer], Update],
    rng: np.random.Generator,
    tasks: int,
    devices: int,
    *,
    updates: int,
    problems: int,
    samples: int,
    lr: float,
) -> None:
    """Train a network on random problems, so that a search begins with what they have in common.

    The table is left empty, because it is for the problem of a search. The learning rate falls to almost nothing.
    """
    table = set(policy.table.parameters())
    optimizer = torch.optim.Adam([p for p in policy.parameters() if p not in table], lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=updates)
    update = make_update(optimizer)
    for number in range(updates):
        drawn, inputs, gains = [], [], []
        for index in range(problems):
            problem = draw_problem(TRAINING_SEED + number * problems + index, tasks, devices)
            placements = sample(policy, problem, samples, rng)
            drawn.append(torch.from_numpy(placements))
            inputs.append(policy.inputs(problem, placements))
            gains.append(advantages(problem.step_times_s(placements), np.ones(samples)))
        given = tuple(torch.cat(parts) for parts in zip(*inputs))
        count = problems * samples
        update(torch.cat(drawn), given, torch.full((count,), 1 / count), torch.from_numpy(np.concatenate(gains)))
        schedule.step()


def adam(policy: Learner, settings: SearchSettings) -> torch.optim.Optimizer:
    """Return the optimizer of a search: the table, which begins empty, learns faster than the network."""
    table = list(policy.table.parameters())
    network = [p for p in policy.parameters() if p not in set(table)]
    groups = [{"params": network, "lr": settings.lr}, {"params": table, "lr": settings.table_lr}]
    return torch.optim.Adam(groups)


def new(make: Callable[[], N], rng: np.random.Generator) -> N:
    """Return a network whose first weights follow from `rng`; PyTorch's own stream stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        return make()
