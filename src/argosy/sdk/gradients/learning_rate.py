"""Scales the learning rate when the batch grows with the number of workers.

The script and its schedulers use the rate for one batch; it is multiplied only while the optimizer acts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from argosy.errors import UnknownName

RULES = ("linear", "sqrt", "adascale", "none")


class Rule:
    """A rule for the factor of the learning rate.

    `linear`: the factor by which the batch has grown (for SGD). `sqrt`: its square root (for Adam and similar
    optimizers). `adascale`: AdaScale's gain, between 1 and linear, from the measured noise scale; 1 until that is
    known. `none`: always 1.
    """

    def __init__(self, name: str = "linear") -> None:
        if name not in RULES:
            raise UnknownName("learning-rate rule", name, RULES)
        self.name = name

    def factor(self, scale: float, noise: float | None = None, batch: float = 1.0) -> float:
        """Return the factor for a step of `scale` times the loader's `batch` samples; `noise` is in samples."""
        if self.name == "linear":
            return scale
        if self.name == "sqrt":
            return math.sqrt(scale)
        if self.name == "adascale" and noise is not None:
            return scale * (noise + batch) / (noise + scale * batch)
        return 1.0


@contextmanager
def scaled(optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
    """Multiply the optimizer's rates inside the block; afterwards they are exactly what they were."""
    groups: list[dict[str, Any]] = optimizer.param_groups if factor != 1.0 else []
    before = [group["lr"].clone() if isinstance(group["lr"], torch.Tensor) else group["lr"] for group in groups]
    _set(groups, [rate * factor for rate in before])
    try:
        yield
    finally:
        _set(groups, before)


def _set(groups: list[dict[str, Any]], rates: list[Any]) -> None:
    for group, rate in zip(groups, rates):
        if isinstance(rate, torch.Tensor):
            group["lr"].copy_(rate)  # the same tensor, because compiled optimizers keep a reference to it
        else:
            group["lr"] = rate
