"""Search a placement as a multi-stage decision process with proximal policy optimisation, after Spotlight.

Stage t places task t. Its state is where the tasks before it are; its action is a device. A small network scores each
device from what that state means for it: how busy it is, what the task's traffic with placed tasks would cost, what
memory is left. The same weights score every device, and a table of one number for each (task, device), which starts at
0, remembers what this problem's measurements say beyond that. One batch of measured placements serves several epochs
of the clipped surrogate. On our problems the network makes most of the difference to `mirhoseini`, not the algorithm:
docs/learned-placement.md has both algorithms on both networks.

    L = mean over p, t of min(r A, clip(r, 1 − ε, 1 + ε) A) + η H,    r = π(p_t | s_t) / π_old(p_t | s_t),  A = R(p) − b

Differences from the paper: its network is a recurrent one over embedded operations, ours a score of a device's state;
`search(…, network=SequencePolicy(…))` runs the same algorithm on the sequence network of `mirhoseini`, and so
shows what the algorithm alone is worth. Rewards, baseline and the adaptive entropy are those of `mirhoseini`, and so is
that a network may be trained on other problems first (`pretrain`). The constants are ours.
References: Gao et al., Spotlight: optimizing device placement for training deep neural networks, ICML'18; Schulman et
al., Proximal policy optimization algorithms, 2017.

    from argosy.learn.placement.problem import chain
    from argosy.learn.placement.spotlight import search
    print(search(chain([4, 1, 1, 4], [1, 5, 1])).best)
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from argosy.learn.placement.descent import descend, draw
from argosy.learn.placement.mirhoseini import TRAINING_SEED
from argosy.learn.placement.problem import Floats, Ints, Meter, PlacementProblem, draw_problem
from argosy.learn.placement.search import Gains, Rewards, new, search_with
from argosy.seeding import stream

FEATURES = 6


@dataclass(frozen=True, slots=True)
class Settings:
    """The hyper-parameters of the search."""

    hidden: int = 16  # width of the score network
    draws: int = 64  # placements that are drawn for one update; those that are known cost nothing
    samples: int = 4  # new placements that are measured for one update, at most
    epochs: int = 4  # passes over the placements of one update
    clip: float = 0.2  # ε
    lr: float = 0.03  # of Adam
    baseline: float = 0.0  # how much of the moving average of rewards stays at each update
    entropy: float = 0.05  # η at the beginning
    novelty: float = 0.3  # η grows while fewer of the draws than this are new, and shrinks otherwise
    failed: float = 1.2  # a placement that fails counts as this many times the slowest step time seen so far
    max_norm: float = 1.0  # gradients are clipped to this norm
    most_updates: int = 400  # the search ends even if the policy names only placements that are known


class StagePolicy(nn.Module):
    """Scores devices stage by stage, for problems of one number of tasks and devices."""

    def __init__(self, tasks: int, devices: int, hidden: int = 16) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(FEATURES, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.memory = nn.Parameter(torch.zeros(tasks, devices))

    def inputs(self, problem: PlacementProblem, placements: Ints) -> tuple[Tensor, ...]:
        """Return what `forward` needs beside the placements: the features of all stages [P, t, d, F]."""
        stages = [stage_features(problem, placements, t) for t in range(problem.tasks)]
        return (torch.from_numpy(np.stack(stages, axis=1)),)

    def forward(self, placements: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies [P, t] of the placements' devices."""
        log_p = (self.score(inputs[0])[..., 0] + self.memory).log_softmax(-1)
        return log_p.gather(2, placements[:, :, None])[..., 0], -(log_p.exp() * log_p).sum(-1)

    @torch.no_grad()
    def sample(self, problem: PlacementProblem, count: int, rng: np.random.Generator) -> Ints:
        """Draw placements [count, t]."""
        placements = np.zeros((count, problem.tasks), np.int64)
        for t in range(problem.tasks):
            features = torch.from_numpy(stage_features(problem, placements, t))
            placements[:, t] = draw((self.score(features)[..., 0] + self.memory[t]).numpy(), rng)
        return placements


def search(
    problem: PlacementProblem,
    settings: Settings | None = None,
    *,
    seed: int = 0,
    budget: int = 200,
    network: nn.Module | None = None,
) -> Meter:
    """Measure placements until `budget` different ones are known, from a new network or a copy of a trained one."""
    settings = settings or Settings()
    rng = stream(seed, "placement.spotlight")
    policy = deepcopy(network) if network is not None else new(lambda: _policy(problem, settings), rng)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.lr)

    def update(placements: Tensor, inputs: tuple[Tensor, ...], gains: Gains, explore: float) -> None:
        epochs(policy, optimizer, placements, inputs, gains, settings, explore)

    return search_with(problem, policy, settings, update, rng, budget)


def epochs(
    policy: nn.Module,
    optimizer: torch.optim.Optimizer,
    chosen: Tensor,
    inputs: tuple[Tensor, ...],
    gains: Gains,
    settings: Settings,
    entropy_weight: float,
) -> None:
    """Descend the clipped surrogate for several epochs over one batch of placements."""
    advantage = torch.from_numpy(gains)[:, None]
    with torch.no_grad():
        before, _ = policy(chosen, inputs)
    for _ in range(settings.epochs):
        log_p, entropy = policy(chosen, inputs)
        ratio = (log_p - before).exp()
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        surrogate = torch.minimum(ratio * advantage, clipped * advantage).mean()
        descend(optimizer, -surrogate - entropy_weight * entropy.mean(), settings.max_norm)


def pretrain(
    tasks: int = 6, devices: int = 4, *, updates: int = 200, problems: int = 8, samples: int = 8, seed: int = 0
) -> StagePolicy:
    """Train a network on random problems, so that a search begins with what they have in common."""
    rng = stream(seed, "placement.spotlight.pretrain")
    policy, settings = new(lambda: StagePolicy(tasks, devices), rng), Settings()
    optimizer = torch.optim.Adam(policy.score.parameters(), lr=0.01)  # the table is for the problem of a search
    for update in range(updates):
        drawn, inputs, advantages = [], [], []
        for number in range(problems):
            problem = draw_problem(TRAINING_SEED + update * problems + number, tasks, devices)
            placements = policy.sample(problem, samples, rng)
            drawn.append(torch.from_numpy(placements))
            inputs.append(policy.inputs(problem, placements))
            advantages.append(Rewards(1.2, 0.0).advantages(problem.step_times_s(placements)))
        given = tuple(torch.cat(parts) for parts in zip(*inputs))
        epochs(policy, optimizer, torch.cat(drawn), given, np.concatenate(advantages), settings, 0.02)
    return policy


def _policy(problem: PlacementProblem, settings: Settings) -> nn.Module:
    return StagePolicy(problem.tasks, problem.devices, settings.hidden)


def stage_features(problem: PlacementProblem, placements: Ints, t: int) -> NDArray[np.float32]:
    """Describe for each device [P, d, F] what it would mean to put task t there, given the tasks before it."""
    count, devices = len(placements), problem.devices
    before = placements[:, :t]
    on = before[:, :, None] == np.arange(devices)  # [P, t, d]
    busy = np.einsum("ptd,t->pd", on, problem.compute_s[:t]) / problem.speed
    apart = problem.unit_s[before[:, :, None], before[:, None, :]] * problem.traffic[:t, :t]
    busy += np.einsum("ptd,pt->pd", on, apart.sum(axis=2))
    sent: Floats = np.einsum("ptd,t->pd", on, problem.traffic[t, :t]) @ problem.unit_s  # [P, d]
    added = problem.compute_s[t] / problem.speed + sent
    scale = problem.compute_s.sum() / problem.speed.sum()  # what a perfect division would take
    left = problem.device_gib - np.einsum("ptd,t->pd", on, problem.task_gib[:t]) - problem.task_gib[t]
    worst = np.maximum(busy.max(axis=1, keepdims=True), busy + added)
    ahead = problem.traffic[t, t + 1 :].sum() * problem.unit_s.mean(axis=1)
    columns = (busy / scale, added / scale, worst / scale, sent / scale, left / problem.device_gib, ahead / scale)
    stacked = np.stack([np.broadcast_to(column, (count, devices)) for column in columns], axis=-1)
    return np.asarray(np.clip(stacked, -5.0, 5.0), np.float32)
