"""The state of a learner: named tensors and nothing else, so it can be written as safetensors without pickle.

The parts of a learner are networks, optimizers, random number generators, and objects with methods `state` and
`restore`. Numbers are tensors of one element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from argosy.errors import InputError

State = dict[str, torch.Tensor]


@runtime_checkable
class Stateful(Protocol):
    """An object that saves and restores its own state."""

    def state(self) -> State: ...
    def restore(self, state: State) -> None: ...


Part = nn.Module | torch.optim.Optimizer | torch.Generator | Stateful


def number(value: float) -> torch.Tensor:
    """Return a number as a tensor; whole numbers stay whole."""
    return torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)


def pack(parts: Mapping[str, Part]) -> State:
    """Return copies of the states of all parts, under `part/name`."""
    return {
        f"{name}/{key}": tensor.detach().cpu().contiguous().clone()
        for name, part in parts.items()
        for key, tensor in _state_of(part).items()
    }


def unpack(parts: Mapping[str, Part], state: State) -> None:
    """Restore all parts; raise an error if the state does not fit them."""
    for name, part in parts.items():
        mine = {key.removeprefix(f"{name}/"): t for key, t in state.items() if key.startswith(f"{name}/")}
        if isinstance(part, torch.Generator):
            part.set_state(need(mine, "state", name))
        elif isinstance(part, torch.optim.Optimizer):
            _restore_optimizer(part, mine, name)
        elif isinstance(part, nn.Module):
            _restore_module(part, mine, name)
        else:
            part.restore(mine)


def need(state: State, key: str, name: str) -> torch.Tensor:
    """Return a tensor of the state; raise an error if it is missing."""
    if key not in state:
        raise _other(name, f"{key} is missing")
    return state[key]


def _state_of(part: Part) -> State:
    if isinstance(part, torch.Generator):
        return {"state": part.get_state()}
    if isinstance(part, torch.optim.Optimizer):
        return _optimizer_state(part)
    if isinstance(part, nn.Module):
        return dict(part.state_dict())
    return part.state()


def _restore_module(module: nn.Module, state: State, name: str) -> None:
    try:
        module.load_state_dict(state)
    except RuntimeError as problem:
        raise _other(name, " ".join(str(problem).split())[:300]) from None


def _optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """Return the state by parameter number, and the learning rates, which may have changed during training."""
    state: State = {}
    number_of = {id(p): i for i, p in enumerate(_parameters(optimizer))}
    for parameter, values in optimizer.state.items():
        for key, value in values.items():
            state[f"{number_of[id(parameter)]}/{key}"] = torch.as_tensor(value)
    return state | {f"lr/{i}": number(float(group["lr"])) for i, group in enumerate(optimizer.param_groups)}


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: State, name: str) -> None:
    parameters = _parameters(optimizer)
    optimizer.state.clear()
    for i, group in enumerate(optimizer.param_groups):
        group["lr"] = float(need(state, f"lr/{i}", name))
    for label, tensor in state.items():
        index, _, key = label.partition("/")
        if index == "lr":
            continue
        if not index.isdigit() or int(index) >= len(parameters):
            raise _other(name, f"there is no parameter {index}")
        parameter = parameters[int(index)]
        if tensor.dim() and tensor.shape != parameter.shape:
            raise _other(name, f"parameter {index} has another shape")
        optimizer.state[parameter][key] = tensor.clone()


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _other(name: str, why: str) -> InputError:
    hint = "build the learner as it was when it was saved"
    return InputError(f"this state does not fit this {name}: {why}", hint=hint)
