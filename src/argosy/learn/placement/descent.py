"""What the trainers of placement share: a checked step of an optimizer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from argosy.learn.errors import TrainingError


def descend(optimizer: torch.optim.Optimizer, loss: Tensor, max_norm: float) -> None:
    """Step down a loss with a clipped gradient; raise and change nothing if either is not finite."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    if not bool(torch.isfinite(loss.detach()) and torch.isfinite(norm)):
        hint = "the weights are those before this step; try a smaller learning rate"
        raise TrainingError(f"the loss is {float(loss.detach()):g} and its gradient's norm {float(norm):g}", hint=hint)
    optimizer.step()
