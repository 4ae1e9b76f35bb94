"""Search a placement with a sequence-to-sequence policy and REINFORCE, after Mirhoseini et al.

The tasks are a sequence. An encoder (LSTM) reads a description of each task: compute time, memory, and its traffic with
every other task. A decoder (LSTM with attention over the encoder's states) names a device for each task in turn, and
is told the device of the task before. The better a measured placement ranks, the likelier its devices become:

    ∇J = Σ_p w_p (R(p) − b) Σ_t ∇ log π(p_t | p_1 … p_{t−1})      w_p ∝ π(p),  R: rank of −√T,  b = Σ_p w_p R(p)

Differences from the paper: tasks need no grouping, because a gang has few. A device is known by its speed, memory and
distances instead of its number, and by what the tasks before have left of it, so that a network can be trained on other
problems first (`pretrain`); the paper learns anew for every network, from thousands of measurements. A table of numbers
for (task, device) and pairs of them learns faster than the LSTMs can. Placements are drawn without replacement, and
rewards are ranks (`search`, `decoding`). An entropy bonus keeps the policy exploring. All constants are ours; the
documentation says on which seeds they were chosen.
References: Mirhoseini et al., Device placement optimization with reinforcement learning, ICML'17.

    from argosy.learn.placement.mirhoseini import search
    from argosy.learn.placement.problem import chain
    print(search(chain([4, 1, 1, 4], [1, 5, 1])).best)
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from argosy.errors import InputError
from argosy.learn.placement.decoding import all_choices, chosen
from argosy.learn.placement.descent import descend
from argosy.learn.placement.problem import Ints, Meter, PlacementProblem
from argosy.learn.placement.search import Learner, Table, Update, adam, new, pretrain_with, search_from
from argosy.seeding import stream

NOW = 3  # columns of `devices_now`


@dataclass(frozen=True, slots=True)
class Settings:
    """The hyper-parameters of the search."""

    hidden: int = 32  # width of the LSTMs
    samples: int = 8  # new placements that are measured for one update
    from_trained: int = 2  # how many of them are drawn from the network that was trained before, if there is one
    lr: float = 0.005  # of Adam, for the network
    table_lr: float = 0.1  # of Adam, for the table
    entropy: float = 0.5  # weight of the bonus for exploring
    max_norm: float = 1.0  # gradients are clipped to this norm


class State(NamedTuple):
    """What the decoder carries from task to task."""

    encoded: Tensor  # [1 or P, t, h] the encoder's states
    devices: Tensor  # [1 or P, d, h] of the devices, whatever is placed on them
    cell: tuple[Tensor, Tensor]  # [P, h] of the decoder
    places: Tensor | None  # [P, d, h] of the devices with what is placed on them so far


class SequencePolicy(Learner):
    """The encoder and the decoder, for problems of one number of tasks and devices."""

    def __init__(self, tasks: int, devices: int, hidden: int = 32) -> None:
        super().__init__()
        self.size = tasks, devices
        self.embed = nn.Linear(2 + tasks, hidden)
        self.encoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.device = nn.Linear(2 + devices, hidden)
        self.now = nn.Linear(NOW, hidden, bias=False)
        self.first = nn.Parameter(torch.zeros(hidden))  # stands for the device before the first task
        self.decoder = nn.LSTMCell(2 * hidden, hidden)
        self.attend = nn.Linear(hidden, hidden, bias=False)
        self.query = nn.Linear(2 * hidden, hidden)
        self.table = Table(tasks, devices, pairs=True)

    def copy_for(self, problem: PlacementProblem) -> Self:
        """Return a copy with an empty table; the problem must have the size that the network was made for."""
        if (problem.tasks, problem.devices) != self.size:
            what = f"this network is for {self.size[0]} tasks on {self.size[1]} devices"
            hint = f"train one with pretrain({problem.tasks}, {problem.devices})"
            raise InputError(f"{what}, the problem has {problem.tasks} on {problem.devices}", hint=hint)
        copy = deepcopy(self)
        copy.table = Table(*self.size, pairs=True)
        return copy

    def inputs(self, problem: PlacementProblem, placements: Ints) -> tuple[Tensor, ...]:
        """Return what `forward` needs: tasks, devices, devices at each task, and which of them the task may get."""
        tables = (torch.from_numpy(t).expand(len(placements), -1, -1) for t in describe(problem))
        now = np.stack([devices_now(problem, placements[:, :task]) for task in range(problem.tasks)], axis=1)
        return (*tables, torch.from_numpy(now), all_choices(problem, placements))

    def forward(self, placements: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies [P, t] of the placements' devices."""
        tasks, devices, now, allowed = inputs
        state, rows, scores = self._encode(tasks, devices), torch.arange(len(placements)), []
        for task in range(placements.shape[1]):
            found, state = self._decode(placements[:, :task], now[:, task], rows, state)
            scores.append(found)
        return chosen(torch.stack(scores, 1), allowed, placements)

    def start(self, problem: PlacementProblem) -> State:
        """Encode the tasks."""
        tasks, devices = (torch.from_numpy(table)[None] for table in describe(problem))
        return self._encode(tasks, devices)

    def scores(self, problem: PlacementProblem, before: Ints, parents: Ints, state: State) -> tuple[Tensor, State]:
        """Score the devices of the next task."""
        now = torch.from_numpy(devices_now(problem, before))
        return self._decode(torch.from_numpy(before), now, torch.from_numpy(parents), state)

    def _encode(self, tasks: Tensor, devices: Tensor) -> State:
        encoded, (h, c) = self.encoder(torch.tanh(self.embed(tasks)))
        return State(encoded, self.device(devices), (h[0], c[0]), None)

    def _decode(self, before: Tensor, now: Tensor, parents: Tensor, state: State) -> tuple[Tensor, State]:
        task = before.shape[1]
        last = self.first.expand(len(before), -1) if state.places is None else state.places[parents, before[:, -1]]
        encoded = state.encoded.expand(len(before), -1, -1)
        h, c = self.decoder(torch.cat([encoded[:, task], last], 1), (state.cell[0][parents], state.cell[1][parents]))
        weights = torch.einsum("ph,pth->pt", self.attend(h), encoded).softmax(-1)
        read = torch.einsum("pt,pth->ph", weights, encoded)
        places = torch.tanh(state.devices + self.now(now))
        scores = torch.einsum("ph,pdh->pd", self.query(torch.cat([h, read], 1)), places)
        return scores + self.table(before), State(state.encoded, state.devices, (h, c), places)


def search(
    problem: PlacementProblem,
    settings: Settings | None = None,
    *,
    seed: int = 0,
    budget: int = 200,
    network: Learner | None = None,
) -> Meter:
    """Measure placements until `budget` different ones are known, from a new network or a copy of a trained one."""
    settings = settings or Settings()

    def fresh() -> Learner:
        return SequencePolicy(problem.tasks, problem.devices, settings.hidden)

    def update_of(policy: Learner) -> Update:
        return reinforce(policy, adam(policy, settings), settings.entropy, settings.max_norm)

    return search_from(problem, settings, network, fresh, update_of, stream(seed, "placement.mirhoseini"), budget)


def reinforce(policy: Learner, optimizer: torch.optim.Optimizer, explore: float, max_norm: float) -> Update:
    """Return an update by the policy gradient; `explore` is the weight of the entropy."""

    def update(placements: Tensor, inputs: tuple[Tensor, ...], weights: Tensor, gains: Tensor) -> None:
        log_p, entropy = policy(placements, inputs)
        descend(optimizer, -(weights * (gains * log_p.sum(1) + explore * entropy.mean(1))).sum(), max_norm)

    return update


def pretrain(
    tasks: int = 6, devices: int = 4, *, updates: int = 600, problems: int = 8, samples: int = 16, seed: int = 0
) -> SequencePolicy:
    """Train a network on random problems, so that a search begins with what they have in common."""
    rng = stream(seed, "placement.mirhoseini.pretrain")
    policy = new(lambda: SequencePolicy(tasks, devices), rng)
    size = {"updates": updates, "problems": problems, "samples": samples}
    pretrain_with(policy, lambda adam: reinforce(policy, adam, 0.02, 1.0), rng, tasks, devices, **size, lr=0.003)
    return policy


def describe(problem: PlacementProblem) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Describe tasks and devices in rows of numbers.

    Of a task: compute time, memory, traffic with every task, relative to their means. Of a device: speed, memory for
    how much of all tasks, seconds to every device.
    """
    columns = [problem.compute_s[:, None], problem.task_gib[:, None], problem.traffic]
    tasks = np.concatenate([c / max(float(c.mean()), 1e-12) for c in columns], axis=1)
    room = problem.device_gib / max(float(problem.task_gib.sum()), 1e-12)
    far = problem.unit_s * problem.traffic.mean() / max(float(problem.compute_s.mean()), 1e-12)
    devices = np.concatenate([problem.speed[:, None], room[:, None], far], axis=1)
    return tasks.astype(np.float32), devices.astype(np.float32)


def devices_now(problem: PlacementProblem, before: Ints) -> NDArray[np.float32]:
    """Describe devices [P, d, 3] for the next task: seconds they compute, memory left, seconds to placed tasks."""
    task, scale = before.shape[1], max(float(problem.compute_s.sum() / problem.speed.sum()), 1e-12)
    on = before[:, :, None] == np.arange(problem.devices)
    busy = np.einsum("ptd,t->pd", on, problem.compute_s[:task]) / problem.speed / scale
    left = 1.0 - np.einsum("ptd,t->pd", on, problem.task_gib[:task]) / np.maximum(problem.device_gib, 1e-12)
    sent = np.einsum("ptd,t->pd", on, problem.traffic[task, :task]) @ problem.unit_s / scale
    return np.asarray(np.clip(np.stack([busy, left, sent], axis=-1), -5.0, 5.0), np.float32)
