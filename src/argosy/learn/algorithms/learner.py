"""What all learners share: checked steps of an optimizer, and a state that consists of tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from argosy.errors import InputError
from argosy.learn.algorithms.state import Part, State, need, number, pack, unpack
from argosy.learn.errors import TrainingError

CHUNK = 4096


class Learner:
    """Saves and restores the parts of an algorithm together, and counts updates."""

    def __init__(self, parts: Mapping[str, Part | None]) -> None:
        self.parts: dict[str, Part] = {name: part for name, part in parts.items() if part is not None}
        self.updates = 0

    def state(self) -> State:
        """Return everything that the next update depends on."""
        return pack(self.parts) | {"updates": number(self.updates)}

    def restore(self, state: State) -> None:
        """Continue as the saved learner would have."""
        unpack(self.parts, state)
        self.updates = int(need(state, "updates", "learner"))

    def check(self, name: str, value: torch.Tensor | float) -> None:
        """Raise an error if a value is not finite, before it changes the weights."""
        if not bool(torch.isfinite(torch.as_tensor(value)).all()):
            raise self._stop(f"{name} is {float(value):g}")

    def loss_of(self, loss: Any, data: Any) -> Any:
        """Compute one of TorchRL's losses for some samples."""
        try:
            return loss(data)
        except TrainingError as problem:
            raise self._stop(problem.what) from None

    def _stop(self, why: str) -> TrainingError:
        hint = "the weights are those before this step; try a smaller learning rate, or normalised rewards"
        return TrainingError(f"{why} at update {self.updates + 1}", hint=hint)

    def descend(
        self, optimizer: torch.optim.Optimizer, losses: Mapping[str, torch.Tensor], max_norm: float | None
    ) -> float:
        """Step down the sum of the losses, and return the gradient's norm; make no step if anything is not finite."""
        for name, loss in losses.items():
            self.check(f"the loss {name!r}", loss.detach())
        optimizer.zero_grad(set_to_none=True)
        sum(losses.values(), torch.zeros(())).backward()  # type: ignore[no-untyped-call]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = nn.utils.clip_grad_norm_(parameters, float("inf") if max_norm is None else max_norm)
        self.check("the norm of the gradient", norm)
        optimizer.step()
        return float(norm)


class Means:
    """Averages the figures that several steps report."""

    def __init__(self) -> None:
        self._all: dict[str, list[float]] = defaultdict(list)

    def add(self, **values: float | torch.Tensor) -> None:
        """Add the figures of one step."""
        for name, value in values.items():
            self._all[name].append(float(torch.as_tensor(value).detach()))

    def result(self) -> dict[str, float]:
        """Return the means by name."""
        return {name: sum(values) / len(values) for name, values in self._all.items()}


def unique(*networks: nn.Module | None) -> list[nn.Parameter]:
    """Return the parameters of several networks; shared ones appear once."""
    seen: dict[int, nn.Parameter] = {}
    for network in networks:
        seen |= {id(p): p for p in (network.parameters() if network is not None else ())}
    return list(seen.values())


def positive(**values: float | None) -> None:
    """Raise an error for a setting that is given and is not above 0."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise InputError(f"{name} must be above 0, is {value}")


@torch.no_grad()
def in_chunks(network: nn.Module, rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return a network's outputs for many rows, computed in parts."""
    parts = [network(torch.from_numpy(rows[i : i + CHUNK])) for i in range(0, len(rows), CHUNK)]
    return torch.cat(parts).double().numpy()
