"""Fit the hyper-parameters of the belief with GPyTorch: the random walk's length, noise, variances, the time scale.

The process is that of `argosy.policies.dual_agent.belief`; measurements of jobs on one machine are Gaussian under it,
so that their marginal likelihood is exact and has gradients. Those of gangs, which show their slowest machine, are left
out; `fit.fit_belief` has them too. GPyTorch is an extra: pip install 'argosy[gp]'.

References: Gardner et al., GPyTorch, NeurIPS 2018; Rasmussen and Williams, 2006, chapter 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from argosy.errors import InputError
from argosy.policies.base import Ints
from argosy.policies.dual_agent.belief import BeliefOptions, machine_graph
from argosy.policies.dual_agent.measurements import Seen

SHARES = ("walk", "own")  # from 0 to 1; the others are positive
SCALES = ("amplitude", "length_h", "constant", "noise")
MOST = 600  # measurements of a log that are used, the newest


def covariance(x: torch.Tensor, z: torch.Tensor, p: dict[str, torch.Tensor], graph: torch.Tensor) -> torch.Tensor:
    """Return the covariance of log speeds at rows (machine, hours)."""
    root = graph.sum(1).clamp(min=1e-12).rsqrt() * (graph.sum(1) > 0)
    similar = root[:, None] * graph * root
    kernel = torch.linalg.inv(torch.eye(len(graph), dtype=graph.dtype) - p["walk"] * similar)
    scale = kernel.diagonal().rsqrt()
    related = (1 - p["own"]) * scale[:, None] * kernel * scale + p["own"] * torch.eye(len(graph), dtype=graph.dtype)
    a, b = x[:, 0].long(), z[:, 0].long()
    decay = torch.exp(-(x[:, None, 1] - z[None, :, 1]).abs() / p["length_h"])
    changing = p["amplitude"] ** 2 * related[a][:, b] * decay
    whole: torch.Tensor = changing + p["constant"] ** 2 * (a[:, None] == b)
    return whole


def fit_with_gpytorch(
    records: Sequence[list[Seen]], racks: Ints, types: Ints, start: BeliefOptions, *, steps: int = 60, lr: float = 0.08
) -> tuple[BeliefOptions, float]:
    """Return the hyper-parameters under which the logs are most likely, and the logarithm of how likely."""
    gpytorch = _gpytorch()
    alone = [[seen for seen in record if len(seen.machines) == 1][-MOST:] for record in records]
    alone = [record for record in alone if record]
    if not alone:
        raise InputError("no measurement is of a job on one machine", hint="give logs of runs with smaller jobs")
    graph = torch.from_numpy(machine_graph(racks, types, start.same_rack, start.same_type))
    shared = _Parameters(start)

    class Walk(gpytorch.kernels.Kernel):  # type: ignore[misc, name-defined]
        def forward(self, x1: torch.Tensor, x2: torch.Tensor, diag: bool = False, **_: Any) -> torch.Tensor:
            whole = covariance(x1, x2, shared.values(), graph)
            return whole.diagonal() if diag else whole

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = gpytorch.means.ZeroMean(), Walk()

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    models = []
    for record in alone:
        x = torch.tensor([[seen.machines[0], seen.time / 3600] for seen in record], dtype=torch.float64)
        y = torch.tensor([seen.log_speed for seen in record], dtype=torch.float64)
        likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.ones(len(y), dtype=torch.float64))
        model = Process(x, y, likelihood).double()
        models.append((model, x, y, gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)))

    def likely() -> torch.Tensor:
        found = []
        for model, x, y, marginal in models:
            model.train()
            noise = shared.values()["noise"] ** 2
            marginal.likelihood.noise_covar.noise = noise.expand(len(y))
            found.append(marginal(model(x), y) * len(y))
        return torch.stack(found).sum()

    optimizer = torch.optim.Adam(shared.parameters(), lr=lr)
    best = (-np.inf, start)
    with gpytorch.settings.fast_computations(False, False, False):
        for step in range(steps + 1):
            found = likely()
            if float(found.detach()) > best[0]:
                best = float(found.detach()), replace(start, **shared.numbers())
            if step < steps:
                optimizer.zero_grad()
                (-found).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return best[1], best[0]


class _Parameters(torch.nn.Module):
    """Hyper-parameters without bounds: logarithms, and logits of shares."""

    def __init__(self, start: BeliefOptions) -> None:
        super().__init__()
        share = np.clip([getattr(start, name) for name in SHARES], 0.01, 0.99)
        scale = np.maximum([getattr(start, name) for name in SCALES], 1e-3)
        self.shares = torch.nn.Parameter(torch.from_numpy(np.log(share / (1 - share))))
        self.scales = torch.nn.Parameter(torch.from_numpy(np.log(scale)))

    def values(self) -> dict[str, torch.Tensor]:
        names = (*SHARES, *SCALES)
        return dict(zip(names, [*self.shares.sigmoid(), *self.scales.exp()], strict=True))

    def numbers(self) -> dict[str, float]:
        return {name: float(value.detach()) for name, value in self.values().items()}


def _gpytorch() -> Any:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it uses parts of torch that will go
            import gpytorch
    except ImportError:
        raise InputError("gpytorch is not installed", hint="pip install 'argosy[gp]', or use fit_belief") from None
    return gpytorch
