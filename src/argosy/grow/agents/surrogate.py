"""Predict the accuracy that growing leads to: a Gaussian process over plans, shared between networks and scenarios.

Layers are encoded by a learned linear map of their features and their neighbours'; a plan is the sum of the codes of
the layers that it grows, weighted by the plan's notes; plans with similar sums have similar results. Results of two
tasks are correlated as far as the tasks are similar (network, time left, GPUs …):

    k((t, p), (t', p')) = B(t, t') exp(-|code(p) - code(p')|² / 2)
    B(t, t') = a0 + a1 N(t, t') + a2 N(t, t') S(t, t') + a3 [t = t']

N compares the networks, S their surroundings. All free parameters are learned from the tables by maximising the
marginal likelihood. Results are standardised within a task; the mean and the spread of a new task are estimated from
its own results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from argosy.grow.agents.plan_features import NODE_INPUTS, SURROUNDINGS, WHOLE, Floats, Plan, Task
from argosy.grow.errors import GrowError

CODE = 3  # numbers in the code of a layer
JITTER = 1e-4


@dataclass(frozen=True)
class Observed:
    """Holds results of some plans of one task, in accuracy, and the number of runs behind each."""

    task: Task
    layers: Floats  # notes on layers, as Task.notes gives them
    whole: Floats
    values: Floats
    runs: int = 1  # each value is the mean of this many

    @classmethod
    def of(cls, task: Task, plans: Sequence[Plan], values: Floats, runs: int = 1) -> Observed:
        """Return results of plans."""
        if len(plans) != len(values) or not len(plans):
            raise GrowError(f"there are {len(plans)} plans but {len(values)} results; give one result per plan")
        if not np.isfinite(values).all():
            raise GrowError("a result is not a finite number")
        return cls(task, *task.notes(plans), np.asarray(values, float), runs)

    @property
    def spread(self) -> float:
        """Return the standard deviation of the results."""
        return float(self.values.std()) or 1.0

    @property
    def standard(self) -> Floats:
        """Return the results with mean 0 and deviation 1."""
        return np.asarray((self.values - self.values.mean()) / self.spread)


class Kernel(nn.Module):
    """The kernel: the similarity of two plans, with a few hundred learned numbers."""

    usual: torch.Tensor  # values for unknown surroundings
    centre: torch.Tensor
    scale: torch.Tensor

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        random = torch.randn(NODE_INPUTS, CODE, generator=generator, dtype=torch.float64)
        self.encode = nn.Parameter(random / NODE_INPUTS**0.5)
        self.log_notes = _parameter([0.0, 0.0, -1.0, 0.0, -1.0, 0.0])
        self.log_whole = _parameter([0.0] * len(WHOLE))
        self.log_amounts = _parameter(np.log([0.5, 0.3, 0.3, 0.2]).tolist())
        self.log_networks = _parameter(0.0)
        self.log_surroundings = _parameter([1.0, 0.0, 0.0, 0.0])
        self.log_noise = _parameter(-1.0)
        self.register_buffer("usual", torch.zeros(len(SURROUNDINGS), dtype=torch.float64))
        self.register_buffer("centre", torch.zeros(NODE_INPUTS, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(NODE_INPUTS, dtype=torch.float64))

    def look_at(self, tasks: Sequence[Task]) -> None:
        """Compute the usual values of the layers' features and of the surroundings from these tasks."""
        around = np.stack([task.surroundings for task in tasks])
        known = ~np.isnan(around)
        self.usual = torch.from_numpy(np.where(known, around, 0.0).sum(0) / np.maximum(known.sum(0), 1))
        nodes = np.concatenate([task.nodes for task in tasks])
        self.centre = torch.from_numpy(nodes.mean(0))
        self.scale = torch.from_numpy(nodes.std(0) + 0.1)

    def codes(self, task: Task, layers: Floats, whole: Floats) -> torch.Tensor:
        """Return a point for each plan; close points have similar results."""
        nodes = (torch.from_numpy(task.nodes) - self.centre) / self.scale
        summed = torch.from_numpy(layers) @ (nodes @ self.encode)  # plan, kind of note, code
        weighed = summed * self.log_notes.exp()[:, None]
        return torch.cat([weighed.flatten(1), torch.from_numpy(whole) * self.log_whole.exp()], dim=1)

    def ties(self, one: Sequence[Task], other: Sequence[Task]) -> torch.Tensor:
        """Return the correlation between tasks: B of the formula."""
        summary_one, summary_other = self._summaries(one), self._summaries(other)
        networks = torch.exp(-0.5 * torch.cdist(summary_one, summary_other) ** 2 * (2 * self.log_networks).exp())
        apart = (self._around(one)[:, None] - self._around(other)[None]) * self.log_surroundings.exp()
        near = torch.exp(-0.5 * (apart**2).sum(-1))
        same = torch.tensor([[float(a is b) for b in other] for a in one], dtype=torch.float64)
        a = self.log_amounts.exp()
        return torch.as_tensor(a[0] + a[1] * networks + a[2] * networks * near + a[3] * same)

    def _around(self, tasks: Sequence[Task]) -> torch.Tensor:
        known = torch.from_numpy(np.stack([task.surroundings for task in tasks]))
        return torch.where(torch.isnan(known), self.usual, known)

    def _summaries(self, tasks: Sequence[Task]) -> torch.Tensor:
        width = self.centre.numel() // 3  # a layer's own features
        means = torch.stack([torch.from_numpy(t.graph.features).mean(0) for t in tasks])
        return torch.as_tensor((means - self.centre[:width]) / self.scale[:width] / width**0.5)

    def between(self, one: Sequence[Observed], other: Sequence[Observed] | None = None) -> torch.Tensor:
        """Return the covariance of the standardised results of plans, without noise."""
        symmetric = other is None
        codes_one = torch.cat([self.codes(o.task, o.layers, o.whole) for o in one])
        codes_other = codes_one if other is None else torch.cat([self.codes(o.task, o.layers, o.whole) for o in other])
        other = one if other is None else other
        ties = self.ties([o.task for o in one], [o.task for o in other])
        rows = torch.tensor([len(o.layers) for o in one])
        columns = torch.tensor([len(o.layers) for o in other])
        apart = (codes_one**2).sum(1)[:, None] + (codes_other**2).sum(1)[None] - 2 * codes_one @ codes_other.T
        alike = torch.exp(-0.5 * apart.clamp_min(0))
        if symmetric:
            alike = 0.5 * (alike + alike.T)
        return ties.repeat_interleave(rows, 0).repeat_interleave(columns, 1) * alike


def _parameter(values: float | list[float]) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


class Surrogate:
    """Predicts results from a kernel and known results. Without results it knows only which plans are similar."""

    def __init__(
        self, kernel: Kernel | None = None, known: Sequence[Observed] = (), noise: Floats | None = None
    ) -> None:
        self.kernel = (kernel or Kernel()).requires_grad_(False)
        self.known = tuple(known)
        one = float(self.kernel.log_noise.exp())
        self.noise = np.full(len(self.known), one) if noise is None else np.asarray(noise, float)
        self._solved: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def usual_noise(self) -> float:
        """Return the variance of one run around its plan's mean, where the plans' means have a variance of about 1."""
        if not self.known:
            return float(self.kernel.log_noise.exp())
        return float(np.median(self.noise * [o.runs for o in self.known]))

    @property
    def usual_spread(self) -> float:
        """Return the usual standard deviation of the results of a task's plans, in accuracy."""
        return float(np.exp(np.mean([np.log(o.spread) for o in self.known]))) if self.known else 0.03

    def expect(self, asked: Observed) -> tuple[Floats, Floats]:
        """Return mean and covariance of the standardised results of plans, from all other tasks' results."""
        own = self.kernel.between([asked])
        if not self.known:
            return np.zeros(len(own)), own.numpy()
        factor, weights = self._solve()
        across = self.kernel.between([asked], self.known)
        explained = torch.cholesky_solve(across.T, factor)
        return (across @ weights).numpy(), (own - across @ explained).numpy()

    def _solve(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self._solved is None:
            sizes = [len(o.values) for o in self.known]
            covariance = self.kernel.between(self.known)
            covariance += torch.diag(torch.from_numpy(np.repeat(self.noise, sizes)) + JITTER)
            factor = torch.linalg.cholesky(covariance)
            values = torch.from_numpy(np.concatenate([o.standard for o in self.known]))
            self._solved = factor, torch.cholesky_solve(values[:, None], factor)[:, 0]
        return self._solved


def learn(
    known: Sequence[Observed],
    *,
    steps: int = 120,
    seed: int = 0,
    rate: float = 0.05,
    progress: Callable[[int, float], None] | None = None,
) -> Surrogate:
    """Learn the kernel from tables: the one under which their results are most likely."""
    if not known:
        raise GrowError("there is nothing to learn from", hint="give at least one table")
    kernel = Kernel(seed)
    kernel.look_at([o.task for o in known])
    values = torch.from_numpy(np.concatenate([o.standard for o in known]))
    noise = nn.Parameter(torch.full((len(known),), -1.0, dtype=torch.float64))  # each table has its own
    sizes = torch.tensor([len(o.values) for o in known])
    learning = torch.optim.Adam([*kernel.parameters(), noise], rate)
    for step in range(steps):
        covariance = kernel.between(known) + torch.diag(noise.exp().repeat_interleave(sizes) + JITTER)
        factor = torch.linalg.cholesky(covariance)
        solved = torch.cholesky_solve(values[:, None], factor)[:, 0]
        fits = (0.5 * values @ solved + torch.log(torch.diagonal(factor)).sum()) / len(values)
        small = (kernel.encode**2).sum() * NODE_INPUTS / len(values) / 8
        loss = fits + small
        learning.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        learning.step()
        if progress:
            progress(step + 1, float(fits.detach()))
    with torch.no_grad():
        kernel.log_noise.copy_(noise.median())
    return Surrogate(kernel, known, noise.detach().exp().numpy())
