"""Search a placement as a multi-stage decision process with proximal policy optimisation, after Spotlight.

Stage t places task t. Its state is where the tasks before it are; its action is a device. A small network scores each
device from what that state means for it: how busy it is, what the task's traffic with placed tasks would cost, how busy
the busiest device would be, what memory is left. The same weights score every device, and a table of one number for
each (task, device), which starts at 0, remembers what this problem's measurements say beyond that. One batch of
measured placements serves several epochs of the clipped surrogate.

    L = Σ_p w_p mean over t of min(r A, clip(r, 1 − ε, 1 + ε) A) + η H
    r = π(p_t | s_t) / π_old(p_t | s_t),   w_p ∝ π_old(p),   A = R(p) − Σ_p w_p R(p),   R: rank of −T

Differences from the paper: its network is a recurrent one over embedded operations, ours a score of a device's state,
computed with the terms of the cost model; `search(…, network=SequencePolicy(…))` runs the same algorithm on the
sequence network of `mirhoseini`, and so shows what the algorithm alone is worth. What is drawn, measured and rewarded
is as in `mirhoseini`, and so is that a network may be trained on other problems first (`pretrain`). The constants are
ours.
References: Gao et al., Spotlight: optimizing device placement for training deep neural networks, ICML'18; Schulman et
al., Proximal policy optimization algorithms, 2017.

    from argosy.learn.placement.problem import chain
    from argosy.learn.placement.spotlight import search
    print(search(chain([4, 1, 1, 4], [1, 5, 1])).best)
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from argosy.learn.placement.decoding import all_choices, chosen
from argosy.learn.placement.descent import descend
from argosy.learn.placement.problem import Ints, Meter, PlacementProblem
from argosy.learn.placement.search import Learner, Table, Update, adam, new, pretrain_with, search_from
from argosy.seeding import stream

FEATURES = 7


@dataclass(frozen=True, slots=True)
class Settings:
    """The hyper-parameters of the search."""

    hidden: int = 16  # width of the score network
    samples: int = 8  # new placements that are measured for one update
    from_trained: int = 2  # how many of them are drawn from the network that was trained before, if there is one
    epochs: int = 4  # passes over the placements of one update
    clip: float = 0.2  # ε
    lr: float = 0.03  # of Adam, for the network
    table_lr: float = 0.03  # of Adam, for the table
    entropy: float = 0.3  # η
    max_norm: float = 1.0  # gradients are clipped to this norm


class StagePolicy(Learner):
    """Scores devices stage by stage; the weights serve problems of any size, the table one of this size."""

    def __init__(self, tasks: int, devices: int, hidden: int = 16) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(FEATURES, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.table = Table(tasks, devices, pairs=False)

    def copy_for(self, problem: PlacementProblem) -> Self:
        """Return a copy with an empty table of the problem's size."""
        copy = deepcopy(self)
        copy.table = Table(problem.tasks, problem.devices, pairs=False)
        return copy

    def inputs(self, problem: PlacementProblem, placements: Ints) -> tuple[Tensor, ...]:
        """Return what `forward` needs: features [P, t, d, F] of all stages, and which devices each task may get."""
        stages = [stage_features(problem, placements[:, :task]) for task in range(problem.tasks)]
        return torch.from_numpy(np.stack(stages, axis=1)), all_choices(problem, placements)

    def forward(self, placements: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies [P, t] of the placements' devices."""
        features, allowed = inputs
        remembered = [self.table(placements[:, :task]) for task in range(placements.shape[1])]
        return chosen(self.score(features)[..., 0] + torch.stack(remembered, 1), allowed, placements)

    def start(self, problem: PlacementProblem) -> None:
        """Do nothing: a stage depends only on the devices chosen before it."""

    def scores(self, problem: PlacementProblem, before: Ints, parents: Ints, state: None) -> tuple[Tensor, None]:
        """Score the devices of the next task."""
        features = torch.from_numpy(stage_features(problem, before))
        return self.score(features)[..., 0] + self.table(torch.from_numpy(before)), None


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
        return StagePolicy(problem.tasks, problem.devices, settings.hidden)

    def update_of(policy: Learner) -> Update:
        return ppo(policy, adam(policy, settings), settings)

    return search_from(problem, settings, network, fresh, update_of, stream(seed, "placement.spotlight"), budget)


def ppo(policy: Learner, optimizer: torch.optim.Optimizer, settings: Settings) -> Update:
    """Return an update that descends the clipped surrogate for several epochs over one batch of placements."""

    def update(placements: Tensor, inputs: tuple[Tensor, ...], weights: Tensor, gains: Tensor) -> None:
        with torch.no_grad():
            before, _ = policy(placements, inputs)
        for _ in range(settings.epochs):
            log_p, entropy = policy(placements, inputs)
            ratio = (log_p - before).exp()
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            surrogate = torch.minimum(ratio * gains[:, None], clipped * gains[:, None])
            objective = (weights * (surrogate + settings.entropy * entropy).mean(1)).sum()
            descend(optimizer, -objective, settings.max_norm)

    return update


def pretrain(
    tasks: int = 6, devices: int = 4, *, updates: int = 200, problems: int = 8, samples: int = 16, seed: int = 0
) -> StagePolicy:
    """Train a network on random problems, so that a search begins with what they have in common."""
    rng = stream(seed, "placement.spotlight.pretrain")
    policy = new(lambda: StagePolicy(tasks, devices), rng)
    size, settings = {"updates": updates, "problems": problems, "samples": samples}, Settings(entropy=0.02)
    pretrain_with(policy, lambda adam: ppo(policy, adam, settings), rng, tasks, devices, **size, lr=0.01)
    return policy


def stage_features(problem: PlacementProblem, before: Ints) -> NDArray[np.float32]:
    """Describe for each device [P, d, F] what it would mean to put the next task there."""
    task, devices = before.shape[1], np.arange(problem.devices)
    on = (before[:, :, None] == devices).astype(np.float64)  # [P, t, d]
    apart = problem.unit_s[before[:, :, None], before[:, None, :]] * problem.traffic[:task, :task]
    busy = np.einsum("ptd,t->pd", on, problem.compute_s[:task]) / problem.speed
    busy += np.einsum("ptd,pt->pd", on, apart.sum(axis=2))
    peers = np.einsum("ptd,t->pd", on, problem.traffic[task, :task])  # the task's traffic with each device
    sent = peers @ problem.unit_s
    added = problem.compute_s[task] / problem.speed + sent
    after = busy[:, None, :] + peers[:, None, :] * problem.unit_s  # [P, d, e]: device e, if the task is on d
    after[:, devices, devices] += added
    rest = problem.compute_s[task + 1 :].sum()
    shared = ((after * problem.speed).sum(axis=2) + rest) / problem.speed.sum()  # all work, divided perfectly
    used = np.einsum("ptd,t->pd", on, problem.task_gib[:task]) + problem.task_gib[task]
    left = 1.0 - used / np.maximum(problem.device_gib, 1e-12)
    ahead = problem.traffic[task, task + 1 :].sum() * problem.unit_s.mean(axis=1)
    scale = max(float(problem.compute_s.sum() / problem.speed.sum()), 1e-12)
    columns = [column / scale for column in (busy, added, after.max(axis=2), sent, shared, ahead)]
    stacked = np.stack([np.broadcast_to(column, busy.shape) for column in (*columns, left)], axis=-1)
    return np.asarray(np.clip(stacked, -5.0, 5.0), np.float32)
