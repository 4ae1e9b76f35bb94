"""Holds the state of the training: the script's networks, optimizers and other objects, without wrapping them.

Gradients are combined at the end of every backward pass, so that gradient clipping and scaling see the combined ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import LBFGS, Optimizer

from argosy.errors import InputError
from argosy.sdk.checkpoints.packing import check_readable
from argosy.sdk.data.order import Position
from argosy.sdk.gradients.combine import Combiner


class Structure(Protocol):
    """Records the structure of a grown network, so that it can be built again."""

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Build the network that this state belongs to; its weights are loaded afterwards."""


class Training:
    """The script's objects, and how far training is."""

    def __init__(self, combiner: Combiner) -> None:
        self.combiner = combiner
        self.position = Position()
        self.modules: list[Module] = []
        self.optimizers: list[Optimizer] = []
        self.others: dict[str, Any] = {}
        self.growth: Structure | None = None
        self.batch: int | None = None  # samples of a step, as the policy has chosen them; None: as the loader says
        self.random: list[dict[str, Any]] = []  # the random state of each rank, after loading a checkpoint

    @property
    def step(self) -> int:
        return self.position.step

    @property
    def parameters(self) -> list[Parameter]:
        """Return the parameters of all networks, each parameter once."""
        found = {id(one): one for module in self.modules for one in module.parameters()}
        return list(found.values())

    @property
    def size(self) -> int:
        """Return the approximate size of parameters and optimizer state in bytes."""
        states = [value for optimizer in self.optimizers for one in optimizer.state.values() for value in one.values()]
        return sum(one.nbytes for one in (*self.parameters, *states) if isinstance(one, Tensor))

    def add(self, objects: Sequence[Any], others: Mapping[str, Any], device: torch.device) -> None:
        for one in objects:
            if isinstance(one, Module):
                self.modules.append(one.to(device))
            elif isinstance(one, LBFGS):
                raise InputError(
                    "LBFGS is not supported, because one call of step evaluates the loss several times",
                    hint="use SGD, Adam or another optimizer that needs one backward pass for each step",
                )
            elif isinstance(one, Optimizer):
                self.optimizers.append(one)
            else:
                others = {**others, f"object {len(self.others) + len(others)}": one}
        for name, one in others.items():
            if not (callable(getattr(one, "state_dict", None)) and callable(getattr(one, "load_state_dict", None))):
                raise InputError(
                    f"{name} ({type(one).__name__}) has no state_dict and load_state_dict",
                    hint="pass only objects to job.setup that can be saved and restored",
                )
            check_readable(name, one.state_dict())
            self.others[name] = one
        for number, optimizer in enumerate(self.optimizers):
            check_readable(f"optimizer {number}", {"groups": optimizer.state_dict()["param_groups"]})
        self.combiner.bind(self.modules, self.parameters)

    def state(self) -> dict[str, Any]:
        """Return the whole state; its tensors are not copied."""
        return {
            "position": list(self.position),
            "modules": [dict(module.state_dict()) for module in self.modules],
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "others": {name: _state_of(one) for name, one in self.others.items()},
            "combiner": self.combiner.state(),
            "random": self.random,
            "growth": self.growth.state() if self.growth else {},
        }

    def complete(self, state: dict[str, Any]) -> bool:
        """Return whether the script has passed the same number of objects to setup as this state has."""
        same = len(self.modules) == len(state["modules"]) and len(self.optimizers) == len(state["optimizers"])
        return same and self.others.keys() == state["others"].keys()

    def load(self, state: dict[str, Any]) -> None:
        if self.growth is not None:
            self.growth.load(state["growth"])
        elif state["growth"].get("surgeries"):
            what = "the saved network has grown, but the script does not allow growth"
            raise InputError(what, hint="use argosy.job(grow=True)")
        if not self.complete(state):
            kinds = ("modules", "optimizers", "others")
            saved, mine = (" ".join(f"{len(one[kind])} {kind}" for kind in kinds) for one in (state, vars(self)))
            raise InputError(
                f"the saved state has {saved}, but the script has {mine}",
                hint="pass the same objects to job.setup as when it was saved",
            )
        for module, saved in zip(self.modules, state["modules"]):
            module.load_state_dict(saved)
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        for name, one in self.others.items():
            one.load_state_dict(state["others"][name])
        self.combiner.load(state["combiner"])
        self.position = Position(*state["position"])
        self.random = list(state["random"])


def _state_of(one: Any) -> Any:
    """Return the state of an object without our wrapper of `step`: schedulers save all their attributes."""
    state = one.state_dict()
    if isinstance(state, dict) and isinstance(state.get("step"), MethodType):
        return {name: value for name, value in state.items() if name != "step"}
    return state


class Backwards:
    """Calls a function once at the end of every backward pass that reaches a watched parameter."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._queued = False

    def watch(self, parameters: Iterable[Parameter]) -> None:
        """Watch these parameters too; a parameter that is given again is still watched once."""
        for parameter in parameters:
            watched: Any = parameter  # the type stubs lack its hooks
            # looked up in the parameter, because a list of ours would keep parameters of a former network alive
            known = self._note in (watched._post_accumulate_grad_hooks or {}).values()
            if parameter.requires_grad and not known:
                watched.register_post_accumulate_grad_hook(self._note)

    def reset(self) -> None:
        """Forget a backward pass that was aborted by an error before its end."""
        self._queued = False

    def _note(self, _: Tensor) -> None:
        if not self._queued:
            self._queued = True
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._finish)

    def _finish(self) -> None:
        self._queued = False
        self._call()
