"""Changes the script's network and optimizer in place: the objects stay the same, their contents change.

A script keeps references to `model` and `optimizer`. So surgery is done on a copy; then the script's own network gets
the layers of the copy, and its own optimizer their parameters. Nothing is changed before the surgery has succeeded.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from argosy.grow import Surgery, surgeries_of
from argosy.grow.surgery.grown import duplicate
from argosy.grow.surgery.history import origins_of
from argosy.grow.surgery.with_optimizer import apply_and_carry

CONTENT = ("_modules", "_parameters", "_buffers")  # the attributes of an nn.Module that surgery replaces


@dataclass(frozen=True)
class Next:
    """The new content of a network and its optimizer."""

    model: nn.Module
    groups: list[list[Tensor]]
    state: dict[Any, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return size_of(self.model)


class InPlaceModel:
    """A network in training and its optimizer. Raises GrowError if the network cannot be copied."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.original = duplicate(model)  # a copy from before it grew
        names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self._order: list[list[str | Tensor]] = [
            [names.get(parameter, parameter) for parameter in group["params"]] for group in optimizer.param_groups
        ]

    @property
    def surgeries(self) -> tuple[Surgery, ...]:
        return surgeries_of(self.model)

    @property
    def size(self) -> int:
        return size_of(self.model)

    def grown(self, surgeries: Sequence[Surgery], example: Tensor) -> Next:
        """Return the network after these surgeries, with the same outputs. Raises GrowError if a surgery is refused."""
        model, optimizer = apply_and_carry(self.model, self.optimizer, surgeries, example)
        return Next(model, [list(group["params"]) for group in optimizer.param_groups], dict(optimizer.state))

    def small(self, small: nn.Module) -> Next:
        """Return a network built like the original, with its parameter groups and new optimizer state."""
        small = duplicate(small)
        modes = {name: part.training for name, part in self.model.named_modules()}
        for name, part in small.named_modules():
            part.training = modes.get(name, self.model.training)
        own: dict[str, Tensor] = dict(small.named_parameters())
        groups = [[own[one] if isinstance(one, str) else one for one in group] for group in self._order]
        mine = set(self.model.parameters())
        return Next(small, groups, {one: kept for one, kept in self.optimizer.state.items() if one not in mine})

    def become(self, other: Next) -> None:
        """Replace the content of the script's network and optimizer."""
        if not self.surgeries:
            self.original.load_state_dict(self.model.state_dict())
        content = self.model.__dict__
        for name in CONTENT:
            content[name] = other.model.__dict__[name]
        content["grow_surgeries"], content["grow_origins"] = surgeries_of(other.model), origins_of(other.model)
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        for group, parameters in zip(self.optimizer.param_groups, other.groups, strict=True):
            if "param_names" in group:  # the optimizer was made with named parameters
                names |= {one: name for one, name in zip(group["params"], group["param_names"]) if one not in names}
                group["param_names"] = [names[one] for one in parameters]
            group["params"] = parameters
        self.optimizer.state.clear()
        self.optimizer.state.update(other.state)

    def content(self) -> tuple[dict[str, Tensor], dict[Any, Any]]:
        """Return copies of the weights, and of the optimizer's state by the place of each parameter."""
        model = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        return model, copy.deepcopy(self.optimizer.state_dict()["state"])

    def load(self, model: Mapping[str, Tensor], optimizer: Mapping[Any, Any]) -> None:
        """Load what `content` returned for the same structure; learning rates and the like stay as they are."""
        self.model.load_state_dict(model)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": copy.deepcopy(dict(optimizer)), "param_groups": groups})

    def rebuild(self, surgeries: Sequence[Surgery], example: Tensor | None) -> bool:
        """Build the structure after these surgeries; weights are loaded later. Returns False if it already exists."""
        wanted, done = tuple(surgeries), self.surgeries
        if wanted == done:
            return False
        if wanted[: len(done)] != done:
            self.become(self.small(self.original))
            done = ()
        missing = wanted[len(done) :]
        if missing and example is not None:
            self.become(self.grown(missing, example))
        return True


def size_of(model: nn.Module) -> int:
    """Return how many parameters a network has."""
    return sum(parameter.numel() for parameter in model.parameters())
