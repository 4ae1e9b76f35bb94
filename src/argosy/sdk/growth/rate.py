"""Resets the learning rate of a script's optimizer when the growth agent says so, and takes it back after a roll-back.

The rate climbs within some steps to what it was at the beginning, group by group, by a factor for each step. So it goes
together with schedules that multiply the rate (most of PyTorch's): they go on from the higher rate. A schedule that
computes each rate anew (LambdaLR, OneCycleLR, or the script itself) sets it back at its next step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

CLIMB = 30  # steps in which the rate rises
FROM = 0.01  # of the first rate: a rate below this begins to climb here
SAME = 0.99  # of the first rate: a rate above this needs no reset


class Rate:
    """Holds the rates with which a script began, and how far the last reset is."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self.first = [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]
        self._left = 0  # steps until the rates have climbed
        self._by: list[float] = []  # the factors of each step; empty: nothing was reset
        self.begin()

    def begin(self) -> None:
        """Note the present rates as those to which `undo` goes back."""
        self._before, self._up = self.now, [1.0] * len(self.first)  # and the factors by which resets have raised them

    @property
    def now(self) -> list[float]:
        """Return the present rate of each group."""
        return [float(group["lr"]) for group in self._optimizer.param_groups]

    @property
    def is_first(self) -> bool:
        """Return whether all rates are those of the beginning, so that there is nothing to reset."""
        return all(now >= SAME * first for now, first in zip(self.now, self.first, strict=True))

    def reset(self) -> str:
        """Let the rates climb to those of the beginning; return in words from where to where."""
        before = self.now
        for number, first in enumerate(self.first):
            self._raise(number, max(before[number], FROM * first))
        self._left = CLIMB
        self._by = [max(first / now, 1.0) ** (1 / CLIMB) if now else 1.0 for now, first in zip(self.now, self.first)]
        return f"learning rate {before[0]:.3g} → {self.first[0]:.3g}"

    def step(self) -> None:
        """Let the rates climb after a step; once reset, they never exceed those of the beginning."""
        climbs, self._left = self._left > 0, max(self._left - 1, 0)
        if self._by:
            for number, (now, by, first) in enumerate(zip(self.now, self._by, self.first)):
                self._raise(number, min(now * by if climbs else now, first))

    def undo(self) -> None:
        """Take back what resets have done to the rates since `begin`; what a schedule has done stays.

        A rate that is no higher than before was set anew by a schedule, and stays as it is.
        """
        for group, now, before, up in zip(self._optimizer.param_groups, self.now, self._before, self._up):
            if now > before and up > 1.0:
                _set(group, min(now / up, before))
        self._left, self._by = 0, []
        self.begin()

    def _raise(self, number: int, rate: float) -> None:
        group = self._optimizer.param_groups[number]
        now = float(group["lr"])
        if rate != now:
            self._up[number] *= rate / now if now else math.inf
            _set(group, rate)

    def state(self) -> dict[str, Any]:
        """Return this as plain data."""
        return {"left": self._left, "by": list(self._by), "before": list(self._before), "up": list(self._up)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue what `state` described; the rates themselves are part of the optimizer's state."""
        self._left, self._by = state["left"], list(state["by"])
        self._before, self._up = list(state["before"]), list(state["up"])


def _set(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)  # compiled optimizers keep a reference to the tensor
    else:
        group["lr"] = rate
