"""Carry optimizer state over to a grown network: momentum and moments follow their parameters."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from argosy.grow.errors import GrowError
from argosy.grow.surgery.history import Origin, Origins, origins_of, surgeries_of

__all__ = ["Origin", "Origins", "carry"]

_State = dict[str, Any]
# the power by which state scales with the gradient: 2 for squares, 0 for steps already divided by its size
_POWERS = {
    "exp_avg_sq": 2.0,
    "max_exp_avg_sq": 2.0,
    "square_avg": 2.0,
    "sum": 2.0,
    "acc_delta": 0.0,
    "step_size": 0.0,
    "eta": 0.0,
    "mu": 0.0,
    "ax": 0.0,
}


def carry(optimizer: Optimizer, old_model: nn.Module, new_model: nn.Module, *, lr: float | None = None) -> Optimizer:
    """Return a new optimizer of the same class for `new_model`, which was grown from `old_model`.

    State of the parameter's shape (SGD momentum, Adam and RMSprop moments …) is mapped to the grown parameter; new
    elements start at zero, and new parameters without state. A grown parameter whose state has another shape (factored
    moments) starts without state. Groups keep their hyper-parameters; new parameters join the group of the nearest old
    parameter of the same kind (matrix or vector). `lr` sets the learning rate of every group.
    """
    if lr is not None and not (math.isfinite(lr) and lr > 0):
        raise GrowError(f"the learning rate must be a positive number, not {lr!r}")
    steps = _steps_between(old_model, new_model)
    names = {parameter: name for name, parameter in old_model.named_parameters()}
    known = [p for group in optimizer.param_groups for p in group["params"] if p in names]
    if not known:
        raise GrowError(
            "the optimizer has no parameter of old_model",
            hint="give the optimizer that trained old_model, and that same model object",
        )
    history = _Ancestry(old_model, new_model, steps)
    groups = _groups(optimizer, names, history, new_model)
    fresh = _same_class(optimizer, groups)
    grown = dict(new_model.named_parameters())
    olds = dict(old_model.named_parameters())
    for name, chain in history.chains.items():
        if chain is None:
            continue
        state = optimizer.state.get(olds[chain.source])
        if state:
            mapped = chain.map(state, olds[chain.source], type(optimizer).__name__)
            if mapped:
                fresh.state[grown[name]] = mapped
    for parameter, state in optimizer.state.items():
        if parameter not in names:  # a parameter outside the model, for instance of the loss
            fresh.state[parameter] = {key: _copied(value) for key, value in state.items()}
    for group in fresh.param_groups:
        if lr is not None:
            group["lr"] = torch.full_like(group["lr"], lr) if isinstance(group["lr"], Tensor) else lr
            if "initial_lr" in group:
                group["initial_lr"] = lr
    return fresh


class _Chain:
    """The origins that lead from one parameter of the old model to one of the grown model."""

    def __init__(self, source: str, origins: tuple[Origin, ...]) -> None:
        self.source, self.origins = source, origins

    @property
    def changed(self) -> bool:
        return any(o.index or o.scale for o in self.origins)

    def map(self, state: _State, parameter: Tensor, optimizer: str) -> _State | None:
        mapped: _State = {}
        for key, value in state.items():
            if torch.is_tensor(value) and value.shape == parameter.shape and value.dim() > 0:
                for origin in self.origins:
                    value = origin.map(value, _power(key, optimizer))
                mapped[key] = value.clone()
            elif self.changed and torch.is_tensor(value) and value.numel() > 1:
                return None
            else:
                mapped[key] = _copied(value)
        return mapped


class _Ancestry:
    """Knows the chain of origins of every parameter of the grown model; None for a new one."""

    def __init__(self, old_model: nn.Module, new_model: nn.Module, steps: tuple[Origins, ...]) -> None:
        self.olds = {name: parameter.dim() for name, parameter in old_model.named_parameters()}
        self.dims = {name: parameter.dim() for name, parameter in new_model.named_parameters()}
        self.chains = {name: self._follow(name, steps) for name in self.dims}

    def _follow(self, name: str, steps: tuple[Origins, ...]) -> _Chain | None:
        origins: list[Origin] = []
        for step in reversed(steps):
            origin = step.get(name, Origin(name))
            if origin is None:
                return None
            if origin.index or origin.scale:
                origins.append(origin)
            name = origin.name
        if name not in self.olds:
            raise GrowError(
                f"the grown model's parameter {name!r} is not in the old model", hint="give the model it was grown from"
            )
        return _Chain(name, tuple(reversed(origins)))

    def beside(self, name: str) -> str:
        """Return the nearest old parameter of the same kind, for a new parameter."""
        path, matrix = name.split("."), self.dims[name] > 1

        def closeness(other: str) -> tuple[bool, int]:
            shared = 0
            for one, two in zip(path, other.split(".")):
                if one != two:
                    break
                shared += 1
            return ((self.olds[other] > 1) == matrix, shared)

        return max(self.olds, key=closeness)


def _groups(
    optimizer: Optimizer, names: dict[nn.Parameter, str], history: _Ancestry, new_model: nn.Module
) -> list[dict[str, Any]]:
    where = {names[p]: i for i, group in enumerate(optimizer.param_groups) for p in group["params"] if p in names}
    frozen = {name for p, name in names.items() if not p.requires_grad and name not in where}
    groups = [
        {key: value for key, value in group.items() if key not in ("params", "param_names")}
        | {"params": [p for p in group["params"] if p not in names]}
        for group in optimizer.param_groups
    ]
    for name, parameter in new_model.named_parameters():
        chain = history.chains[name]
        new = chain is None or (parameter.requires_grad and chain.source in frozen)  # or unfrozen
        group = where.get(history.beside(name) if chain is None or new else chain.source)
        if group is None and new:
            group = min(where.values())
        if group is not None:
            groups[group]["params"].append(parameter)
    return groups


def _same_class(optimizer: Optimizer, groups: list[dict[str, Any]]) -> Optimizer:
    accepted = inspect.signature(type(optimizer).__init__).parameters
    settings = {key: value for key, value in optimizer.defaults.items() if key in accepted}
    try:
        return type(optimizer)(groups, **settings)
    except Exception as problem:
        raise GrowError(
            f"a new {type(optimizer).__name__} cannot be made from its own settings: {problem}",
            hint="make a new optimizer for the grown model yourself",
        ) from problem


def _steps_between(old_model: nn.Module, new_model: nn.Module) -> tuple[Origins, ...]:
    before, after = surgeries_of(old_model), surgeries_of(new_model)
    if after[: len(before)] != before:
        raise GrowError(
            "new_model was not grown from old_model: their surgeries differ",
            hint=f"old: {', '.join(map(str, before)) or 'none'}; new: {', '.join(map(str, after)) or 'none'}",
        )
    return origins_of(new_model)[len(before) :]


def _power(key: str, optimizer: str) -> float:
    if key == "momentum_buffer" and optimizer == "RMSprop":  # a step, already divided by the gradient's size
        return 0.0
    return _POWERS.get(key, 1.0)


def _copied(value: Any) -> Any:
    return value.clone() if torch.is_tensor(value) else value
