"""Moves the state of the training from its device to host memory while another job has its turn.

Networks, optimizers and the combiner of gradients stay the same objects; only their tensors move. On a CPU nothing has
to be moved.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor, device
from torch.nn import Module

from argosy.sdk.training import Training

HOST = device("cpu")


class Offload:
    """Holds the state of the training in host memory, from its creation until `end`."""

    def __init__(self, training: Training, host: device = HOST) -> None:
        self._training = training
        self._modules = [
            (module, where) for module in _networks(training) if (where := _device_of(module)) not in (None, host)
        ]
        self._tensors = [
            (state, name, value.device)
            for optimizer in training.optimizers
            for state in optimizer.state.values()
            for name, value in state.items()
            if isinstance(value, Tensor) and value.device != host
        ]
        self._move([(module, host) for module, _ in self._modules], [(s, name, host) for s, name, _ in self._tensors])
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # otherwise cached memory would not be available to other jobs

    def end(self) -> None:
        """Move everything back to where it was."""
        self._move(self._modules, self._tensors)

    def _move(self, modules: list[tuple[Module, Any]], tensors: list[tuple[dict[str, Any], str, device]]) -> None:
        if not modules and not tensors:
            return
        combiner = self._training.combiner
        combined = combiner.state()
        for module, where in modules:
            module.to(where)
        for state, name, where in tensors:
            state[name] = state[name].to(where)
        combiner.bind(self._training.modules, self._training.parameters)  # makes its buffers on that device
        combiner.load(combined)


def _networks(training: Training) -> list[Module]:
    return [*training.modules, *(one for one in training.others.values() if isinstance(one, Module))]


def _device_of(module: Module) -> device | None:
    """Return the device of the module; None if it has no tensors."""
    found: Tensor | None = next(chain(module.parameters(), module.buffers()), None)
    return None if found is None else found.device
