"""Measure how good a network is on some data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from argosy.grow.errors import GrowError
from argosy.grow.training.feed import Batch
from argosy.grow.training.passes import forward

Loss = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True)
class Measured:
    """Holds how good a network is on some data."""

    score: float
    error: float  # the standard error of the score
    loss: float  # NaN if the loss does not take these targets


def measured(model: nn.Module, batches: Iterable[Batch], score: Loss, loss: Loss, name: str) -> Measured:
    """Return the mean score and loss of a network in evaluation mode; `name` says which data they are."""
    total, squares, count, losses, examples = 0.0, 0.0, 0, 0.0, 0
    device = next(model.parameters()).device
    for x, y in batches:
        outputs, y = forward(model, x, device), y.to(device)
        scores = score(outputs, y)
        total += float(scores.sum())
        squares += float(scores.double().square().sum())
        count += scores.numel()
        losses += _loss(loss, outputs, y) * len(y)
        examples += len(y)
    if not count:
        raise GrowError(f"there are no {name} data", hint="give data for this part")
    mean = total / count
    return Measured(mean, math.sqrt(max(squares / count - mean**2, 0.0) / count), losses / examples)


def _loss(loss: Loss, outputs: Any, targets: Any) -> float:
    try:
        return float(loss(outputs, targets))
    except Exception:  # a score may take other targets than the loss
        return math.nan
