"""Train one network with several workers: the first decides, all do the same, gradients are averaged.

Everything here is a no-op without torch.distributed. Decisions are sent as JSON, never as pickles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def size() -> int:
    """Return the number of workers that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return this worker's number; worker 0 decides."""
    return dist.get_rank() if size() > 1 else 0


def agree(value: Any, source: int = 0) -> Any:
    """Return the first worker's value, or that of worker `source`, on every worker. It must be plain data."""
    if size() == 1:
        return value
    text = json.dumps(value).encode() if rank() == source else b""
    length = torch.tensor([len(text)])
    dist.broadcast(length, source)
    payload = torch.tensor(list(text or bytes(int(length))), dtype=torch.uint8)
    dist.broadcast(payload, source)
    return json.loads(bytes(payload.tolist()))


def any_problem(problem: str) -> str:
    """Return a problem that some worker has, on every worker; empty if none has one."""
    if size() == 1:
        return problem
    who = torch.tensor([rank() + 1 if problem else 0])
    dist.all_reduce(who, dist.ReduceOp.MAX)
    return str(agree(problem, int(who) - 1)) if int(who) else ""


def same_start(model: nn.Module) -> None:
    """Copy weights and statistics of the first worker to every worker."""
    if size() > 1:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)


def same_statistics(model: nn.Module) -> None:
    """Copy the first worker's buffers (batch-norm's running statistics) to every worker."""
    if size() > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)


def average(parameters: Iterable[nn.Parameter], loss: float, stop: bool) -> tuple[float, bool]:
    """Average gradients and loss over the workers; stop when the first worker says so.

    Everything is sent in one message, so the workers always make the same number of steps.
    """
    held = [p for p in parameters if p.requires_grad]
    for p in held:
        if p.grad is None:  # a layer that was not used here may have been used elsewhere
            p.grad = torch.zeros_like(p)
    grads = [p.grad for p in held if p.grad is not None]
    extra = torch.tensor([loss, float(stop and rank() == 0)], dtype=grads[0].dtype, device=grads[0].device)
    flat = torch.cat([*(g.flatten() for g in grads), extra])
    dist.all_reduce(flat)
    flat /= size()
    offset = 0
    for grad in grads:
        grad.copy_(flat[offset : offset + grad.numel()].view_as(grad))
        offset += grad.numel()
    return float(flat[-2]), float(flat[-1]) > 0
