"""Compute statistics for an added batch-norm from the calibration batch, and check that surgery kept the function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from argosy.grow.errors import GrowError
from argosy.grow.surgery.blocks import BATCH_NORMS
from argosy.grow.surgery.trace import run

TOLERANCE = 1e-4  # relative to the output's scale; real differences in float32 are at least ten times smaller
_DEAD = 1e-10  # a channel with a smaller variance counts as constant


class _Seen(Exception):
    """Raised to end a forward pass when the wanted tensor has been seen."""


def make_identity(model: nn.Module, path: str, inputs: tuple[Any, ...], *, exact: bool = True) -> None:
    """Give the new batch-norm at `path` the batch's statistics; if `exact`, make it the identity.

    With mean m and biased variance v of the batch, running_mean = m, running_var = v, weight = sqrt(v + eps) and
    bias = m: the identity in evaluation mode on every input, and in training mode on this batch. The statistics are
    those of a training-mode pass (batch-norms use the batch, dropout is off). A channel that is constant on the batch
    gets variance 1, which is the identity as well, and has a usable scale if the channel varies later.
    """
    norm = model.get_submodule(path)
    assert isinstance(norm, nn.modules.batchnorm._NormBase)
    seen = _input_of(model, path, inputs)
    if seen is None:
        mean, variance = torch.zeros(norm.num_features).double(), torch.ones(norm.num_features).double()
    else:
        over = [d for d in range(seen.dim()) if d != 1]
        mean, variance = seen.double().mean(over), seen.double().var(over, unbiased=False)
        variance = torch.where(variance < _DEAD, torch.ones_like(variance), variance)
    with torch.no_grad():
        if norm.running_mean is not None and norm.running_var is not None:
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance)
            variance = norm.running_var.double()  # as it was rounded, so that both cancel exactly
        if exact:
            norm.weight.copy_((variance + norm.eps).sqrt())
            norm.bias.copy_(mean)


def _input_of(model: nn.Module, path: str, inputs: tuple[Any, ...]) -> Tensor | None:
    """Return the input of the module at `path` in a training-mode pass that changes nothing; None if not finite."""
    training = {part: part.training for part in model.modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    caught: list[Tensor] = []

    def stop(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        caught.append(given[0].detach())
        raise _Seen

    hook = model.get_submodule(path).register_forward_pre_hook(stop)
    try:
        for batch_statistics in (True, False):
            for part, was_training in training.items():
                frozen = training[model] and not was_training
                part.training = batch_statistics and isinstance(part, BATCH_NORMS) and not frozen
            if _runs_to_the_hook(model, inputs, last=not batch_statistics) and bool(torch.isfinite(caught[-1]).all()):
                return caught[-1]
        return None
    finally:
        hook.remove()
        for part, was_training in training.items():
            part.training = was_training
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])


def _runs_to_the_hook(model: nn.Module, inputs: tuple[Any, ...], *, last: bool) -> bool:
    """Run the model until the hook ends the pass; a batch with one value per channel needs evaluation mode."""
    try:
        with torch.no_grad():
            model(*inputs)
    except _Seen:
        return True
    except Exception as problem:
        if last:
            raise GrowError(f"the grown network does not run on the example input: {problem}") from problem
    return False


def check_preserved(
    old: nn.Module,
    new: nn.Module,
    inputs: tuple[Any, ...],
    what: str,
    added: nn.Module | None = None,
    *,
    exact: bool = True,
) -> None:
    """Run both networks in evaluation mode and compare; they differ if the forward pass has something untraceable.

    `added` is a new module that the forward pass must reach.
    """
    reached: list[bool] = []
    expected = _outputs(old, inputs)
    hook = added.register_forward_pre_hook(lambda *_: reached.append(True)) if added is not None else None
    try:
        got = _outputs(new, inputs)
    except GrowError as problem:
        raise GrowError(
            f"cannot {what}: the grown network does not run ({problem.what.rpartition(': ')[2]})",
            hint="the forward pass probably depends on a fixed size; nothing was changed",
        ) from problem
    finally:
        if hook is not None:
            hook.remove()
    if added is not None and not reached:
        raise GrowError(
            f"cannot {what}: the forward pass does not reach the new layers",
            hint="it probably calls the layer through a plain Python list or another reference; use nn.ModuleList",
        )
    differences = [why for one, other in zip(expected, got, strict=True) if (why := _difference(one, other))]
    if exact and differences:
        raise GrowError(
            f"cannot {what}: the grown network's output differs {differences[0]} from the original's",
            hint="the forward pass does something that tracing cannot see; nothing was changed",
        )


def _outputs(model: nn.Module, inputs: tuple[Any, ...]) -> list[Tensor]:
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)  # the same for both networks, in case they draw random numbers
        return [leaf for leaf in tree_leaves(run(model, inputs)) if torch.is_tensor(leaf)]


def _difference(one: Tensor, other: Tensor) -> str | None:
    if one.shape != other.shape:
        return f"in shape ({tuple(other.shape)} for {tuple(one.shape)})"
    if not one.numel():
        return None
    if not one.is_floating_point():
        return None if torch.equal(one, other) else "in whole numbers"
    scale = max(1.0, float(one.abs().max()))
    coarse = max(1.0, torch.finfo(one.dtype).eps / torch.finfo(torch.float32).eps)  # half precision is coarser
    off = float((one - other).abs().max())
    return None if off <= TOLERANCE * scale * coarse else f"by {off:.2g}"
