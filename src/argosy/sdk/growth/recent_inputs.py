"""Records the recent inputs of a network, and distils a grown network into a small one with them.

Only the script knows how its network is called and what the targets are. So the inputs of the last training steps are
recorded as they came, and the small network learns the grown one's outputs for them, whatever the script's loss.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from argosy.grow import GrowError, RealClock, shrink
from argosy.grow.training.passes import evaluating

SAMPLES = 2000  # recorded at most
RATES = 0.05, 0.005, 0.0005  # learning rates; the next one is tried when one is too high
BATCH = 64  # samples of a distillation step
BYTES = 64 << 20  # recorded at most, but always one batch


class RecentInputs:
    """Records the inputs of training steps while it watches a network."""

    def __init__(self) -> None:
        self.refusal = "it has not been called yet: the script may call its parts one by one"
        self._inputs: deque[Tensor] = deque()
        self._watching: Any = None

    def watch(self, model: nn.Module) -> None:
        def note(network: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            if network.training and torch.is_grad_enabled():
                self._note(given, named)

        self._watching = model.register_forward_pre_hook(note, with_kwargs=True)

    def look_away(self) -> None:
        """Stop watching, before the network is copied or tried: a copy would be watched as well."""
        if self._watching is not None:
            self._watching.remove()
            self._watching = None

    @property
    def inputs(self) -> list[Tensor]:
        """Return the inputs, newest last. Raises GrowError if the network is called in a way that cannot be used."""
        if self.refusal:
            raise GrowError(self.refusal)
        return list(self._inputs)

    def _note(self, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if named or len(given) != 1 or not isinstance(given[0], Tensor) or not given[0].dim():
            self.refusal = "it is called with more than one tensor, and could not be shrunk again"
            return
        self.refusal = ""
        self._inputs.append(given[0].detach())
        while len(self._inputs) > 1 and self._too_much():
            self._inputs.popleft()

    def _too_much(self) -> bool:
        samples = sum(len(one) for one in self._inputs)
        return samples > SAMPLES or sum(one.nbytes for one in self._inputs) > BYTES


def learned(
    bigger: nn.Module, small: nn.Module, inputs: Sequence[Tensor], seconds: float, hurry: Callable[[], bool]
) -> nn.Module:
    """Return a network built like `small` that answers as `bigger` does, after `seconds` or earlier if in a hurry."""
    inputs = _whole_batches(inputs)
    answers = _answers(bigger, inputs)
    # large answers are scaled to size 1; small ones stay as they are, or steps would be too wide
    spread = max(float(torch.cat([answer.flatten() for answer in answers]).double().var()), 1.0)

    def distance(mine: Tensor, theirs: Tensor) -> Tensor:
        return nn.functional.mse_loss(mine.float(), theirs.float()) / spread

    pairs = list(zip(inputs, answers, strict=True))
    end = time.monotonic() + seconds
    for rate in RATES:
        left = end - time.monotonic()
        if left < 0.1 * seconds or hurry():
            break  # otherwise it diverged before its time was over: the rest goes to smaller steps
        small = shrink(
            bigger, small, pairs, seconds=left, logit_weight=0.0, loss=distance, lr=rate, clock=_Watch(hurry)
        )
    return small


def agreement(one: nn.Module, other: nn.Module, inputs: Sequence[Tensor]) -> float:
    """Return how far two networks agree, up to 1: the share of equal choices, or of variance explained."""
    first, second = (torch.cat(_answers(model, inputs)) for model in (one, other))
    if first.dim() > 1 and first.shape[1] > 1:
        return float((first.argmax(1) == second.argmax(1)).float().mean())
    unexplained = nn.functional.mse_loss(second, first) / first.var().clamp_min(1e-12)
    return max(1.0 - float(unexplained), 0.0)


def difference(one: nn.Module, other: nn.Module, example: Tensor) -> float:
    """Return the largest difference of two networks' answers, in units of the largest answer."""
    first, second = (_answers(model, [example])[0].double() for model in (one, other))
    return float((first - second).abs().max()) / max(float(first.abs().max()), 1.0)


def _whole_batches(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Regroup inputs into batches of one size: batch norm cannot learn from a worker's slice of one sample."""
    by_shape: dict[tuple[int, ...], list[Tensor]] = {}
    for one in inputs:
        by_shape.setdefault(tuple(one.shape[1:]), []).append(one)
    found = [batch for alike in by_shape.values() for batch in torch.split(torch.cat(alike), BATCH) if len(batch) > 1]
    if not found:
        raise GrowError("it has seen too little to learn from")
    return found


def _answers(model: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
    with evaluating(model):
        answers = [model(one) for one in inputs]
    if not all(isinstance(answer, Tensor) for answer in answers):
        raise GrowError("it answers with more than one tensor, and could not be shrunk again")
    return answers


class _Watch(RealClock):
    """A real clock on which all time is over as soon as there is a hurry."""

    def __init__(self, hurry: Callable[[], bool]) -> None:
        super().__init__()
        self._hurry = hurry

    def now(self) -> float:
        return math.inf if self._hurry() else super().now()
