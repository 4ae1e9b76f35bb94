"""Records the recent inputs of a network, and distils a grown network into a small one with them.

Only the script knows how it calls its network and what the targets are. So the inputs of the last training steps are
recorded, and the small network learns the outputs of the grown one for them, whatever the script's loss is.
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

SAMPLES = 2000  # the most samples that are recorded
RATES = 0.05, 0.005, 0.0005  # learning rates; if training diverges, the next one is tried
BATCH = 64  # samples in a distillation step
BYTES = 64 << 20  # the most bytes that are recorded, but at least one batch


class RecentInputs:
    """Records the inputs of training steps while it watches a network."""

    def __init__(self) -> None:
        self.refusal = "it has not been called yet; perhaps the script calls only its parts"
        self._inputs: deque[Tensor] = deque()
        self._watching: Any = None

    def watch(self, model: nn.Module) -> None:
        def note(network: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            if network.training and torch.is_grad_enabled():
                self._note(given, named)

        self._watching = model.register_forward_pre_hook(note, with_kwargs=True)

    def look_away(self) -> None:
        """Stop watching, before the network is copied or tried, because a copy would be watched too."""
        if self._watching is not None:
            self._watching.remove()
            self._watching = None

    @property
    def inputs(self) -> list[Tensor]:
        """Return the inputs, newest last. Raises GrowError if the script calls the network in an unsupported way."""
        if self.refusal:
            raise GrowError(self.refusal)
        return list(self._inputs)

    def _note(self, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if named or len(given) != 1 or not isinstance(given[0], Tensor) or not given[0].dim():
            self.refusal = "it is called with something other than one tensor, so it could not be shrunk again"
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
    """Train a copy of `small` to give the outputs of `bigger`, for `seconds` or until `hurry` is true; return it."""
    inputs = _whole_batches(inputs)
    answers = _answers(bigger, inputs)
    # large outputs are scaled to variance 1; small ones are not scaled, because steps would become too large
    spread = max(float(torch.cat([answer.flatten() for answer in answers]).double().var()), 1.0)

    def distance(mine: Tensor, theirs: Tensor) -> Tensor:
        return nn.functional.mse_loss(mine.float(), theirs.float()) / spread

    pairs = list(zip(inputs, answers, strict=True))
    end = time.monotonic() + seconds
    for rate in RATES:
        left = end - time.monotonic()
        if left < 0.1 * seconds or hurry():
            break  # if time is left, training has diverged: go on with a lower rate
        small = shrink(
            bigger, small, pairs, seconds=left, logit_weight=0.0, loss=distance, lr=rate, clock=_Watch(hurry)
        )
    return small


def agreement(one: nn.Module, other: nn.Module, inputs: Sequence[Tensor]) -> float:
    """Return how well two networks agree, up to 1: the share of equal predictions, or of explained variance."""
    first, second = (torch.cat(_answers(model, inputs)) for model in (one, other))
    if first.dim() > 1 and first.shape[1] > 1:
        return float((first.argmax(1) == second.argmax(1)).float().mean())
    unexplained = nn.functional.mse_loss(second, first) / first.var().clamp_min(1e-12)
    return max(1.0 - float(unexplained), 0.0)


def difference(one: nn.Module, other: nn.Module, example: Tensor) -> float:
    """Return the largest difference of the outputs of two networks, relative to the largest output."""
    first, second = (_answers(model, [example])[0].double() for model in (one, other))
    return float((first - second).abs().max()) / max(float(first.abs().max()), 1.0)


def _whole_batches(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Regroup inputs into larger batches, because batch norm cannot train on a single sample."""
    by_shape: dict[tuple[int, ...], list[Tensor]] = {}
    for one in inputs:
        by_shape.setdefault(tuple(one.shape[1:]), []).append(one)
    found = [batch for alike in by_shape.values() for batch in torch.split(torch.cat(alike), BATCH) if len(batch) > 1]
    if not found:
        raise GrowError("too few inputs were recorded to distil from")
    return found


def _answers(model: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
    with evaluating(model):
        answers = [model(one) for one in inputs]
    if not all(isinstance(answer, Tensor) for answer in answers):
        raise GrowError("it returns something other than one tensor, so it could not be shrunk again")
    return answers


class _Watch(RealClock):
    """A real clock that jumps to the end of time as soon as `hurry` is true."""

    def __init__(self, hurry: Callable[[], bool]) -> None:
        super().__init__()
        self._hurry = hurry

    def now(self) -> float:
        return math.inf if self._hurry() else super().now()
