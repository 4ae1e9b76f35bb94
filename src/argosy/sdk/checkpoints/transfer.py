"""Sends the state of the training from one worker to all others of its group, and checks that it has arrived.

Small tensors and everything else are sent in one message, each large tensor in a message of its own, without copying.
Afterwards all workers compare step and digest, because training on wrong weights unnoticed would be worse than a stop.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from argosy.errors import ArgosyError
from argosy.sdk.checkpoints.packing import digest, filled, from_bytes, holes, outline, plain, to_bytes
from argosy.sdk.group.process_group import Group


class TransferError(ArgosyError):
    """A worker received a state that differs from what was sent."""


class Stateful(Protocol):
    @property
    def step(self) -> int: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: dict[str, Any]) -> None: ...


def hand_over(group: Group, source: int, training: Stateful) -> int:
    """Send the state of rank `source` to all workers. Returns how many bytes of large tensors were sent."""
    if group.rank == source:
        state = plain(training.state())
        rest, large = outline(state)
        group.broadcast_bytes(to_bytes(rest), source)
    else:
        rest = from_bytes(group.broadcast_bytes(b"", source))
        large = holes(rest)
    for tensor in large:
        _send(group, tensor, source)
    if group.rank != source:
        training.load(filled(rest, large))
    _compare(group, source, training)
    return sum(tensor.nbytes for tensor in large)


def _compare(group: Group, source: int, training: Stateful) -> None:
    mine = torch.tensor([training.step, digest(training.state())], dtype=torch.int64)
    found = [(int(step), int(number)) for step, number in group.all_gather(mine)]
    wrong = [rank for rank, theirs in enumerate(found) if theirs != found[source]]
    if wrong:
        raise TransferError(
            f"the state that rank {source} sent at step {found[source][0]} did not arrive correctly at rank "
            f"{', '.join(map(str, wrong))}: steps or digests differ"
        )


def _send(group: Group, tensor: Tensor, source: int) -> None:
    """Broadcast a tensor through a contiguous view if possible, otherwise through a copy."""
    if tensor.is_contiguous() and not tensor.is_cuda:
        group.broadcast(tensor.detach().reshape(-1).view(torch.uint8), source)
        return
    copy = tensor.detach().cpu().contiguous()
    group.broadcast(copy.reshape(-1).view(torch.uint8), source)
