"""Random networks and recipes for the benchmark of growth that never ends a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.random import Generator
from torch import Tensor, nn

from argosy.grow.agents.base import Situation
from argosy.grow.agents.baselines import RandomGrowth
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.recipe import Recipe

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.ReLU6, nn.ELU)
FORMS = ("plain", "residual", "concat", "grouped", "depthwise", "branch")
NOISES = (0.0, 0.0, 0.0, 0.1, 10.0, 1e38)  # of grown layers; the last ones destroy the network


class Stage(nn.Module):
    """A convolution with or without norm, joined with its input in one of several ways."""

    def __init__(self, form: str, before: int, width: int, norm: bool, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        width = before if form in ("residual", "depthwise", "branch") else width
        groups = {"grouped": 2, "depthwise": before}.get(form, 1)
        self.form = form
        self.conv = nn.Conv2d(before, width, 3, padding=1, groups=groups, bias=not norm)
        self.norm = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.act = activation()
        self.out = before + width if form == "concat" else width

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "branch" and bool((x.mean() > 1e9).item()):  # a branch that cannot be traced
            return x
        y: Tensor = self.act(self.norm(self.conv(x)))
        if self.form == "concat":
            return torch.cat([x, y], 1)
        return x + y if self.form == "residual" else y


def network(rng: Generator, channels: int, side: int, classes: int) -> nn.Module:
    """Return a random network: convolutions of several forms, or a perceptron. One in twenty cannot be traced."""
    activation = ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]
    norm = bool(rng.integers(2))
    if rng.random() < 0.25:
        layers: list[nn.Module] = [nn.Flatten()]
        before = channels * side * side
        for width in rng.choice((8, 16, 24), size=int(rng.integers(1, 4))):
            layers += [nn.Linear(before, int(width)), *([nn.LayerNorm(int(width))] if norm else []), activation()]
            before = int(width)
        return nn.Sequential(*layers, nn.Linear(before, classes))
    width = int(rng.choice((4, 6, 8)))
    layers = [nn.Conv2d(channels, width, 3, padding=1), activation()]
    for _ in range(int(rng.integers(1, 4))):
        form = FORMS[int(rng.choice(len(FORMS), p=(0.25, 0.2, 0.15, 0.15, 0.2, 0.05)))]
        stage = Stage(form, width, int(rng.choice((4, 6, 8))), norm, activation)
        layers += [stage, nn.AvgPool2d(2, ceil_mode=True)]
        width = stage.out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def recipe(rng: Generator) -> Recipe:
    """Return a random recipe; one learning rate in four is far too high."""
    optimizer = ("sgd", "adam", "adamw")[int(rng.integers(3))]
    usual = 10.0 ** rng.uniform(-2.0, -0.5) if optimizer == "sgd" else 10.0 ** rng.uniform(-3.5, -2.0)
    return Recipe(
        batch=int(rng.choice((16, 32))),
        lr=float(usual * (10.0 ** rng.uniform(0.5, 3.0) if rng.random() < 0.25 else 1.0)),
        optimizer=optimizer,  # type: ignore[arg-type]
        schedule=("cosine", "decay", "constant")[int(rng.integers(3))],  # type: ignore[arg-type]
        carry_optimizer=bool(rng.integers(2)),
    )


class Wild:
    """An agent that grows at random, and now and then gives a new layer weights that destroy the network."""

    def __init__(self, seed: int, noise: float = 0.0) -> None:
        self.random, self.noise = RandomGrowth(seed), noise

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        """Return one option at random, with this noise."""
        chosen = self.random.decide(situation)
        return tuple(Surgery(s.op, s.site, s.factor, s.init, self.noise, s.seed) for s in chosen)

    def state(self) -> dict[str, Any]:
        """Return the state of the random numbers."""
        return self.random.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.random.restore(state)
