"""Grow a network together with its optimizer, for the trainer and the live SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from argosy.grow.surgery.apply import apply
from argosy.grow.surgery.optimizer import carry
from argosy.grow.surgery.record import Surgery

AnyOptimizer = TypeVar("AnyOptimizer", Optimizer, None)


def apply_and_carry(
    model: nn.Module, optimizer: AnyOptimizer, surgeries: Sequence[Surgery], example: Any
) -> tuple[nn.Module, AnyOptimizer]:
    """Return a copy of the network after all these surgeries, and an optimizer with the state carried over.

    Raises GrowError if a surgery is refused. The arguments are not changed. Without an optimizer, only the network is
    grown.
    """
    for surgery in surgeries:
        grown = apply(model, surgery, example)
        if optimizer is not None:
            optimizer = carry(optimizer, model, grown)
        model = grown
    return model, optimizer
