"""Run a network: with any kind of inputs, in evaluation mode, with a given number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def forward(model: nn.Module, inputs: Any, device: torch.device) -> Any:
    """Return the outputs for one tensor, or for several (a tuple or list: one argument each)."""
    if isinstance(inputs, tuple | list):
        return model(*(part.to(device) for part in inputs))
    return model(inputs.to(device))


def first(inputs: Any, n: int = 1) -> Any:
    """Return the first examples of a batch."""
    return tuple(part[:n] for part in inputs) if isinstance(inputs, tuple | list) else inputs[:n]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Use evaluation mode without gradients in this context; afterwards every part has its own mode again."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def threads(wanted: int) -> Iterator[None]:
    """Use this many CPU threads in this context; 0 leaves the number as it is."""
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)
