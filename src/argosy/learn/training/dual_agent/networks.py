"""The two agents in torch, on padded batches of decisions; `argosy.policies.dual_agent.agents` has the formulas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from argosy.learn.training.dual_agent.episodes import Step
from argosy.policies.dual_agent.agents import JOB, MACHINE, PLACE, SHAPES

NEVER = -1e9  # the logit of what cannot be chosen
SQUEEZED_JOBS, SQUEEZED_MACHINES = 2 * len(JOB) + 2, 2 * len(MACHINE) + 1  # what critics see

BY_STEP, BY_DRAW = ("jobs", "here", "machines", "there", "picks", "ahead"), ("places", "open", "row", "taken")


@dataclass(slots=True)
class Batch:
    """Decisions, padded to the same number of jobs, machines and places."""

    jobs: torch.Tensor  # [step, job, feature]
    here: torch.Tensor  # [step, job], whether the row is a job
    machines: torch.Tensor
    there: torch.Tensor
    picks: torch.Tensor  # [step, pick]; -1 beyond the last
    ahead: torch.Tensor  # [step]
    places: torch.Tensor  # [draw, place, feature]
    open: torch.Tensor  # [draw, place], whether the row is a place
    row: torch.Tensor  # [draw], of the job
    taken: torch.Tensor  # [draw]
    step: torch.Tensor  # [draw], the step to which it belongs

    @classmethod
    def of(cls, steps: list[Step]) -> Batch:
        """Join the decisions of episodes."""
        draws = [(place, number) for number, step in enumerate(steps) for place in step.places]
        jobs, here = _padded([step.jobs for step in steps], len(JOB))
        machines, there = _padded([step.machines for step in steps], len(MACHINE))
        places, is_open = _padded([place.places for place, _ in draws], len(PLACE))
        longest = max((len(step.picks) for step in steps), default=0)
        picks = np.full((len(steps), max(longest, 1)), -1, np.int64)
        for number, step in enumerate(steps):
            picks[number, : len(step.picks)] = step.picks
        whole = [[p.row for p, _ in draws], [p.taken for p, _ in draws], [number for _, number in draws]]
        row, taken, owner = (torch.tensor(values, dtype=torch.int64) for values in whole)
        ahead = torch.tensor([step.ahead for step in steps], dtype=torch.float32)
        return cls(jobs, here, machines, there, torch.from_numpy(picks), ahead, places, is_open, row, taken, owner)

    def select(self, steps: torch.Tensor) -> Batch:
        """Return some of the decisions."""
        number = torch.full((len(self.jobs),), -1, dtype=torch.int64)
        number[steps] = torch.arange(len(steps))
        draws = torch.nonzero(number[self.step] >= 0)[:, 0]
        by_step = {name: getattr(self, name)[steps] for name in BY_STEP}
        by_draw = {name: getattr(self, name)[draws] for name in BY_DRAW}
        return Batch(**by_step, **by_draw, step=number[self.step[draws]])

    def squeezed(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what critics see of the jobs and of the machines: means, maxima, numbers."""
        jobs, machines = _squeeze(self.jobs, self.here), _squeeze(self.machines, self.there)
        count = torch.log1p(self.here.sum(1, keepdim=True).float()) / 4
        ahead = (self.ahead / 8)[:, None]
        lag = ahead / (1 + ahead.abs())
        return torch.cat([jobs, count, lag], 1), torch.cat([machines, lag], 1)


def _padded(tables: list[NDArray[np.float64]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    sizes = np.array([len(table) for table in tables], np.int64)
    out = np.zeros((len(tables), max(int(sizes.max(initial=0)), 1), width), np.float32)
    for number, table in enumerate(tables):
        out[number, : len(table)] = table
    return torch.from_numpy(out), torch.from_numpy(np.arange(out.shape[1]) < sizes[:, None])


def _squeeze(rows: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Return mean and maximum of the rows that are real, 0 where there is none."""
    some = real.any(1, keepdim=True)
    mean = (rows * real[..., None]).sum(1) / real.sum(1, keepdim=True).clamp(min=1)
    highest = rows.masked_fill(~real[..., None], NEVER).amax(1)
    return torch.cat([mean, torch.where(some, highest, torch.zeros_like(highest))], 1)


def _attend(queries: torch.Tensor, rows: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    match = (queries @ rows.transpose(1, 2)).masked_fill(~real[:, None], NEVER)
    highest = _squeeze(rows, real)[:, None, rows.shape[2] :]
    mean = torch.softmax(match, 2) @ rows
    return torch.cat([mean, highest.expand_as(mean)], 2)


def squash(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())


class Team(nn.Module):
    """Both agents' networks, with the weights as parameters."""

    def __init__(self, arrays: dict[str, NDArray[np.float32]], squeeze: str) -> None:
        super().__init__()
        self.weights = nn.ParameterDict({name: nn.Parameter(torch.from_numpy(arrays[name].copy())) for name in SHAPES})
        self.attention = squeeze == "attention"

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return the weights as they are in a file."""
        return {name: self.weights[name].detach().numpy().copy() for name in SHAPES}

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys [step, job] and the scores of places [draw, place]."""
        a = self.weights
        own = squash(batch.jobs @ a["B"] + a["b"])
        around = squash(batch.machines @ a["M"])
        if self.attention:
            cluster = _attend(own @ a["A"], around, batch.there)
            queue = _attend(own @ a["G"], own, batch.here)
        else:
            cluster, queue = _squeeze(around, batch.there)[:, None], _squeeze(own, batch.here)[:, None]
        inner = (torch.cat([cluster, queue], 2) @ a["V"]).relu()
        own = own * (2 * torch.sigmoid(inner @ a["W"]))
        message = squash(own @ a["P"] + cluster @ a["Q"] + a["p"])
        key = batch.jobs @ a["t"] + message @ a["v"]
        told = message[batch.step, batch.row][:, None]
        scores = batch.places @ a["s"] + squash(batch.places @ a["E"] + told @ a["F"] + a["d"]) @ a["w"]
        return key, scores


def logits(team: Team, batch: Batch, heat: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of jobs and of places; those of padding are hopeless."""
    key, scores = team(batch)
    return (-key / heat).masked_fill(~batch.here, NEVER), (scores / heat).masked_fill(~batch.open, NEVER)


def log_picks(of_jobs: torch.Tensor, picks: torch.Tensor) -> torch.Tensor:
    """Return the log probability of each pick, given those before it; 0 beyond the last."""
    left, found = of_jobs, []
    for k in range(picks.shape[1]):
        pick = picks[:, k].clamp(min=0)[:, None]
        chance = torch.log_softmax(left, 1).gather(1, pick)[:, 0]
        found.append(torch.where(picks[:, k] >= 0, chance, torch.zeros_like(chance)))
        left = left.scatter(1, pick, NEVER)
    return torch.stack(found, 1)


def entropy(of_choices: torch.Tensor) -> torch.Tensor:
    """Return the entropy of each choice."""
    log = torch.log_softmax(of_choices, 1)
    return -(log.exp() * log).sum(1)


def mlp(inputs: int, seed: int, width: int = 32) -> nn.Sequential:
    """Return a critic with two hidden layers."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
