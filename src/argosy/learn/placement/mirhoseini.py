"""Search a placement with a sequence-to-sequence policy and REINFORCE, after Mirhoseini et al.

The tasks are a sequence. An encoder (LSTM) reads a description of each task: compute time, memory, and its traffic with
every other task. A decoder (LSTM with attention over the encoder's states) names a device for each task in turn, and
is told the device of the task before. The reward is minus the square root of the step time, a placement that fails
counts as somewhat slower than the slowest one seen, and the baseline is a moving average of the rewards.

    ∇J = mean over sampled placements of (R(p) − b) Σ_t ∇ log π(p_t | p_1 … p_{t−1})        R = −√T,  b ← βb + (1 − β)R̄

Differences from the paper: tasks need no grouping, because a gang has few. A device is known by its speed, memory and
distances instead of its number, so that a network can be trained on other problems first (`pretrain`); the paper
learns anew for every network, from thousands of measurements. More placements are drawn than measured: those that are
known cost nothing, and count again. Rewards are in units of their spread, and an entropy bonus, which adapts to how
many draws are new, keeps it exploring. All constants are ours, chosen on seeds from 1,000,000 on.
References: Mirhoseini et al., Device placement optimization with reinforcement learning, ICML'17.

    from argosy.learn.placement.mirhoseini import search
    from argosy.learn.placement.problem import chain
    print(search(chain([4, 1, 1, 4], [1, 5, 1])).best)
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from argosy.learn.placement.descent import descend, draw
from argosy.learn.placement.problem import Ints, Meter, PlacementProblem, draw_problem
from argosy.learn.placement.search import Gains, Rewards, new, search_with
from argosy.seeding import stream

TRAINING_SEED = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """The hyper-parameters of the search."""

    hidden: int = 32  # width of the LSTMs
    draws: int = 64  # placements that are drawn for one update; those that are known cost nothing
    samples: int = 8  # new placements that are measured for one update, at most
    lr: float = 0.005  # of Adam
    baseline: float = 0.0  # β: how much of the moving average stays at each update
    entropy: float = 0.02  # initial weight of the bonus for exploring
    novelty: float = 0.15  # the weight grows while fewer of the draws than this are new, and shrinks otherwise
    failed: float = 1.2  # a placement that fails counts as this many times the slowest step time seen so far
    max_norm: float = 1.0  # gradients are clipped to this norm
    most_updates: int = 400  # the search ends even if the policy names only placements that are known


class SequencePolicy(nn.Module):
    """The encoder and the decoder, for problems of one number of tasks and devices."""

    def __init__(self, tasks: int, devices: int, hidden: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(2 + tasks, hidden)
        self.encoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.device = nn.Linear(2 + devices, hidden)
        self.first = nn.Parameter(torch.zeros(hidden))  # stands for the device before the first task
        self.decoder = nn.LSTMCell(2 * hidden, hidden)
        self.attend = nn.Linear(hidden, hidden, bias=False)
        self.query = nn.Linear(2 * hidden, hidden)

    def inputs(self, problem: PlacementProblem, placements: Ints) -> tuple[Tensor, ...]:
        """Return what `forward` needs beside the placements: the tasks and the devices, for each of them."""
        described = describe_tasks(problem), describe_devices(problem)
        return tuple(torch.from_numpy(table).expand(len(placements), -1, -1) for table in described)

    def forward(self, placements: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies [P, t] of the placements' devices."""
        log_probs, entropies = [], []
        for task, log_p in enumerate(self._decode(inputs, lambda task, _: placements[:, task])):
            log_probs.append(log_p.gather(1, placements[:, task, None])[:, 0])
            entropies.append(-(log_p.exp() * log_p).sum(-1))
        return torch.stack(log_probs, 1), torch.stack(entropies, 1)

    @torch.no_grad()
    def sample(self, problem: PlacementProblem, count: int, rng: np.random.Generator) -> Ints:
        """Draw placements [count, t]."""
        placements = np.zeros((count, problem.tasks), np.int64)

        def choose(task: int, log_p: Tensor) -> Tensor:
            placements[:, task] = draw(log_p.numpy(), rng)
            return torch.from_numpy(placements[:, task])

        self._decode(self.inputs(problem, placements), choose)
        return placements

    def _decode(self, inputs: tuple[Tensor, ...], choose: Callable[[int, Tensor], Tensor]) -> list[Tensor]:
        """Return the log-probabilities of all devices, task by task; `choose` says which one each task gets."""
        tasks, devices = inputs
        encoded, (h, c) = self.encoder(torch.tanh(self.embed(tasks)))
        state = (h[0], c[0])
        places = torch.tanh(self.device(devices))  # [P, d, h]
        before = self.first.expand(len(tasks), -1)
        found = []
        for task in range(tasks.shape[1]):
            state = self.decoder(torch.cat([encoded[:, task], before], 1), state)
            weights = torch.einsum("ph,pth->pt", self.attend(state[0]), encoded).softmax(-1)
            read = torch.einsum("pt,pth->ph", weights, encoded)
            logits = torch.einsum("ph,pdh->pd", self.query(torch.cat([state[0], read], 1)), places)
            found.append(logits.log_softmax(-1))
            chosen = choose(task, found[-1])
            before = places[torch.arange(len(chosen)), chosen]
        return found


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
    rng = stream(seed, "placement.mirhoseini")
    policy = deepcopy(network) if network is not None else new(lambda: _policy(problem, settings), rng)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.lr)

    def update(placements: Tensor, inputs: tuple[Tensor, ...], gains: Gains, explore: float) -> None:
        log_p, entropy = policy(placements, inputs)
        loss = -(torch.from_numpy(gains) * log_p.sum(1)).mean()
        descend(optimizer, loss - explore * entropy.mean(), settings.max_norm)

    return search_with(problem, policy, settings, update, rng, budget)


def pretrain(
    tasks: int = 6, devices: int = 4, *, updates: int = 400, problems: int = 8, samples: int = 8, seed: int = 0
) -> SequencePolicy:
    """Train a network on random problems, so that a search begins with what they have in common."""
    rng = stream(seed, "placement.mirhoseini.pretrain")
    policy = new(lambda: SequencePolicy(tasks, devices), rng)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.003)
    for update in range(updates):
        drawn, inputs, advantages = [], [], []
        for number in range(problems):
            problem = draw_problem(TRAINING_SEED + update * problems + number, tasks, devices)
            placements = policy.sample(problem, samples, rng)
            drawn.append(torch.from_numpy(placements))
            inputs.append(policy.inputs(problem, placements))
            advantages.append(Rewards(1.2, 0.0).advantages(problem.step_times_s(placements)))
        log_p, entropy = policy(torch.cat(drawn), tuple(torch.cat(parts) for parts in zip(*inputs)))
        loss = -(torch.from_numpy(np.concatenate(advantages)) * log_p.sum(1)).mean()
        descend(optimizer, loss - 0.02 * entropy.mean(), 1.0)
    return policy


def _policy(problem: PlacementProblem, settings: Settings) -> nn.Module:
    return SequencePolicy(problem.tasks, problem.devices, settings.hidden)


def describe_tasks(problem: PlacementProblem) -> NDArray[np.float32]:
    """Return a row of numbers for each task: compute time, memory, traffic with every task, relative to their means."""
    columns = [problem.compute_s[:, None], problem.task_gib[:, None], problem.traffic]
    return np.concatenate([c / max(float(c.mean()), 1e-12) for c in columns], axis=1).astype(np.float32)


def describe_devices(problem: PlacementProblem) -> NDArray[np.float32]:
    """Return a row of numbers for each device: speed, memory for how much of all tasks, seconds to every device."""
    room = problem.device_gib / max(float(problem.task_gib.sum()), 1e-12)
    far = problem.unit_s * problem.traffic.mean() / max(float(problem.compute_s.mean()), 1e-12)
    return np.concatenate([problem.speed[:, None], room[:, None], far], axis=1).astype(np.float32)
