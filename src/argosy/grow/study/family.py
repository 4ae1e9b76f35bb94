"""The family of networks, data sets and recipes on which growth is tried, so that its effects can be learned.

Widths, learning rates and numbers of pictures are drawn once for each member, so that no effect is that of one setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import nn

from argosy.grow.data import Data, load
from argosy.grow.models import SIZED, build
from argosy.grow.training.recipe import Recipe
from argosy.seeding import stream

Value = TypeVar("Value")
WITHOUT_NORM = {"norm": False}
FAMILIES: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {  # the network, its options, its widths
    "plain": ("plain", {}, (6, 8, 12)),
    "residual": ("residual", {}, (6, 8, 12)),
    "depthwise": ("depthwise", {}, (8, 12, 16)),
    "gelu": ("plain", {"activation": "gelu", **WITHOUT_NORM}, (6, 8, 12)),
    "silu": ("plain", {"activation": "silu", **WITHOUT_NORM}, (6, 8, 12)),
    "mlp": ("mlp", {}, (16, 32, 64)),
    "vit": ("vit", {}, (12, 16, 24)),
    "lstm": ("lstm", {}, (16, 24, 32)),
}
PICTURES: dict[str, int | None] = {"fashion-mnist": 14, "cifar10": 16, "digits": None}  # the side they are scaled to
TABULAR = ("clusters", "breast-cancer")
RATES = {"sgd": (0.01, 0.02, 0.05, 0.1), "adam": (0.001, 0.002, 0.004)}
RATES_WITHOUT_NORM = {"sgd": (0.02, 0.03, 0.05), "adam": (0.002, 0.003, 0.004)}  # others are too slow, or diverge
TRAIN = (1500, 2000)
BATCHES = (32, 32, 48)
DRAWS = {"mlp": 2, "lstm": 2}  # how many settings are drawn; these networks train in no time
SMALL = {"digits": (900, 540), "breast-cancer": (250, 200)}  # examples for training and for validation
HELD_OUT = 3000  # the most pictures for validation, and for the test


@dataclass(frozen=True)
class Member:
    """Holds a network, its data and its recipe."""

    family: str
    data: str
    train: int  # pictures
    width: int
    recipe: Recipe
    budget: float = 12.0  # epochs of the network before it grows
    draw: int = 0

    @property
    def key(self) -> str:
        """Return a short name."""
        return f"{self.family}-{self.data}-{self.recipe.optimizer}" + (f"-{self.draw + 1}" if self.draw else "")

    def load(self) -> Data:
        """Return the data."""
        return _load(self.data, self.train)

    def options(self, data: Data) -> dict[str, Any]:
        """Return the options with which the network is built."""
        name, more, _ = FAMILIES[self.family]
        options = {"width": self.width, "classes": data.classes, "channels": data.channels, **more}
        side = data.shape[-1]
        if name in SIZED:
            options["size"] = side
        if name == "vit":
            options["patch"] = max(side // 4, 2)
        return options

    def network(self, data: Data, seed: int) -> nn.Module:
        """Return the network at the start of training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return build(FAMILIES[self.family][0], **self.options(data))

    def to_dict(self) -> Mapping[str, Any]:
        """Return this as plain data, for JSON."""
        return {
            "family": self.family,
            "data": self.data,
            "train": self.train,
            "width": self.width,
            "recipe": self.recipe.to_dict(),
            "budget": self.budget,
            "draw": self.draw,
        }


def members() -> list[Member]:
    """Return every member of the family."""
    found = []
    for family in FAMILIES:
        for data in (*PICTURES, *(TABULAR if family == "mlp" else ())):
            for optimizer in ("sgd", "adam"):
                if family == "vit" and optimizer == "sgd":  # hardly learns in so few epochs
                    continue
                found += [member(family, data, optimizer, draw) for draw in range(DRAWS.get(family, 1))]
    return found


def member(family: str, data: str, optimizer: str, draw: int = 0) -> Member:
    """Return a member with settings drawn for it; other numbers `draw` give other settings."""
    rng = stream(draw, f"growth family {family} {data} {optimizer}")

    def pick(values: Sequence[Value]) -> Value:
        return values[int(rng.integers(len(values)))]

    rates = RATES_WITHOUT_NORM if family in ("gelu", "silu", "lstm") else RATES
    recipe = Recipe(batch=pick(BATCHES), optimizer=optimizer, lr=pick(rates[optimizer]))  # type: ignore[arg-type]
    train = SMALL[data][0] if data in SMALL else pick(TRAIN)
    return Member(family, data, train, pick(FAMILIES[family][2]), recipe, pick((10.0, 12.0, 15.0)), draw)


@lru_cache(maxsize=4)
def _load(name: str, train: int) -> Data:
    if name in SMALL:
        return load(name, train=train, val=SMALL[name][1])
    most = HELD_OUT if name in PICTURES else 2000
    return load(name, train=train, val=most, test=HELD_OUT if name in PICTURES else None, size=PICTURES.get(name))
