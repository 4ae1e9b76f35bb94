"""Clip gradients that are much larger than usual, so that a single step cannot destroy a grown network."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import torch
from torch import nn

RECENT = 100  # norms whose median is the usual one
ENOUGH = 10  # norms that must be known before gradients are clipped
EVERY = 5  # steps; before growth only some norms are noted, because a norm takes time


class Clipping:
    """Knows the norms of recent gradients."""

    def __init__(self, norms: Iterable[float] = (), steps: int = 0) -> None:
        self.norms: deque[float] = deque(norms, maxlen=RECENT)
        self.steps = steps

    def step(self, parameters: Sequence[nn.Parameter], times: float, *, grown: bool) -> bool:
        """Note the norm of a step's gradients; in a grown network, scale them down to `times` the usual norm.

        Norms are noted as they were before clipping: if they stay large, they become the usual ones. Returns whether
        the gradients were scaled down.
        """
        self.steps += 1
        if not grown and self.steps % EVERY:
            return False
        dense = [p for p in parameters if p.grad is not None and p.grad.layout == torch.strided]
        if not grown:
            self._note(_norm(dense))
            return False
        most = times * median(self.norms) if len(self.norms) >= ENOUGH else math.inf
        norm = float(nn.utils.clip_grad_norm_(dense, most))
        self._note(norm)
        return norm > most

    def _note(self, norm: float) -> None:
        if math.isfinite(norm):
            self.norms.append(norm)

    def state(self) -> dict[str, Any]:
        """Return everything as plain data, as the constructor takes it."""
        return {"norms": list(self.norms), "steps": self.steps}


def _norm(parameters: Sequence[nn.Parameter]) -> float:
    """Return the norm of all gradients together, without changing them."""
    norms = [float(torch.linalg.vector_norm(p.grad)) for p in parameters if p.grad is not None]
    return math.hypot(*norms)
