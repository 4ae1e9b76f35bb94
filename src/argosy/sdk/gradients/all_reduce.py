"""Combines gradients in the default mode: one flat all-reduce, weighted by the number of samples of each worker.

A header precedes the gradients: votes (which plan a worker has received, whether it should suspend), sample counts, and
which parameters have a gradient. So agreement needs no extra message, and all workers act after the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from argosy.errors import InputError
from argosy.sdk.gradients.combine import Piece
from argosy.sdk.group.process_group import Group


class Rider(Protocol):
    """A measurement on gradients whose values are summed together with the gradients."""

    size: int

    def fill(self, gradients: Sequence[Tensor | None], samples: int) -> Tensor:
        """Return this worker's contribution to the sums, from its own gradients: float64[size]."""

    def take(self, summed: Tensor, gradients: Sequence[Tensor | None], samples: int, world: int) -> None:
        """Take the sums over all workers, the mean gradients, and the number of samples of all workers."""

    @property
    def metrics(self) -> dict[str, float]:
        """Return the current values, for reports."""

    def state(self) -> dict[str, Any]:
        """Return the state that new workers need; it is equal on all workers."""

    def load(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""


class FlatReducer:
    """Combines gradients by an all-reduce; each worker has one slice of the batch and gets the mean over all.

    A slice that does not fit a worker's device is worked through in several pieces, whose gradients are added up.
    """

    def __init__(self) -> None:
        self.riders: list[Rider] = []
        self.pieces = 1  # of each worker's slice
        self._sums: list[Tensor | None] | None = None  # of the pieces so far: gradients times samples
        self._counted = 0  # samples in these sums
        self._group = Group(None, 0, 1)
        self._parameters: list[Parameter] = []
        self._buffers: _Buffers | None = None

    def bind(self, modules: Sequence[Module], parameters: Sequence[Parameter]) -> None:
        self._parameters, self._buffers, self._sums = list(parameters), None, None

    def regroup(self, group: Group) -> None:
        self._group, self._sums = group, None

    def slots(self) -> tuple[Sequence[int], int]:
        rank, world, pieces = self._group.rank, self._group.world, self.pieces
        return range(rank * pieces, (rank + 1) * pieces), world * pieces

    def begin(self, piece: Piece, step: int) -> None:
        """Forget the pieces of a step that failed."""
        if piece.slot == self._group.rank * self.pieces:
            self._sums = None

    def combine(self, piece: Piece, votes: Tensor) -> Tensor | None:
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        if self.pieces > 1:
            self._add(trained, piece.samples)
            if not piece.last:
                return None
            piece = replace(piece, samples=self._counted)
            self._set_means(trained)
        local = [_checked(parameter) for parameter in trained]
        riding = [rider.fill(local, piece.samples) for rider in self.riders]
        if self._group.world == 1:
            for rider, summed in zip(self.riders, riding):
                rider.take(summed, local, piece.samples, 1)
            return votes
        present = torch.tensor([float(gradient is not None) for gradient in local], dtype=torch.float64)
        samples = torch.tensor([float(piece.samples)], dtype=torch.float64)
        header = torch.cat([votes, samples, present, *riding])
        buffers = self._buffers_for(trained, len(header))
        header = buffers.sum(self._group, header, local, piece.samples)
        parts = torch.split(header, [len(votes), 1, len(present), *(rider.size for rider in self.riders)])
        total = int(parts[1])
        buffers.spread(max(total, 1), parts[2].tolist())
        means = [parameter.grad for parameter in trained]
        for rider, summed in zip(self.riders, parts[3:]):
            rider.take(summed, means, total, self._group.world)
        return parts[0]

    def state(self) -> dict[str, Any]:
        return {"riders": [rider.state() for rider in self.riders]}

    def load(self, state: dict[str, Any]) -> None:
        for rider, saved in zip(self.riders, state["riders"]):
            rider.load(saved)

    @torch.no_grad()
    def _add(self, trained: Sequence[Parameter], samples: int) -> None:
        """Add the gradients of a piece; a piece without samples is a copy, whose gradients do not count."""
        if self._sums is None:
            self._sums, self._counted = [None] * len(trained), 0
        self._counted += samples
        for number, parameter in enumerate(trained if samples else ()):
            gradient, before = _checked(parameter), self._sums[number]
            if gradient is not None:
                weighted = gradient * samples
                self._sums[number] = weighted if before is None else before.add_(weighted)

    def _set_means(self, trained: Sequence[Parameter]) -> None:
        """Replace the gradients by the means over this worker's pieces."""
        sums, self._sums = self._sums or [], None
        for parameter, total in zip(trained, sums, strict=True):
            parameter.grad = None if total is None else total.div_(max(self._counted, 1))

    def _buffers_for(self, trained: Sequence[Parameter], header: int) -> _Buffers:
        """Return the buffers, which are made again if parameters were frozen or the group has changed."""
        if self._buffers is None or not self._buffers.fit(trained, header):
            self._buffers = _Buffers(trained, header)
        return self._buffers


def _checked(parameter: Parameter) -> Tensor | None:
    if parameter.grad is not None and parameter.grad.is_sparse:
        raise InputError(
            "a gradient is sparse, and sparse gradients cannot be combined",
            hint="create embeddings with sparse=False",
        )
    return parameter.grad


class _Buffers:
    """One flat buffer for each dtype and device, with a view per parameter; half precision is summed in float32."""

    def __init__(self, parameters: Sequence[Parameter], header: int) -> None:
        self._parameters, self._header = list(parameters), header
        carrier = torch.float32, torch.device("cpu")
        self._rides = any(_kind(parameter) == carrier for parameter in parameters)
        sizes = {carrier: header} if self._rides else {}
        places = []
        for parameter in parameters:
            key = _kind(parameter)
            start = sizes.get(key, 0)
            sizes[key] = start + _numel(parameter)
            places.append((key, start))
        self._flats = {key: torch.zeros(size, dtype=key[0], device=key[1]) for key, size in sizes.items()}
        self._gradients = [flat[header if key == carrier else 0 :] for key, flat in self._flats.items()]
        self._front = self._flats[carrier][:header] if self._rides else torch.zeros(0)
        self._views = [
            self._flats[key][start : start + _numel(parameter)].view(_real(parameter).shape)
            for (key, start), parameter in zip(places, parameters)
        ]

    def fit(self, parameters: Sequence[Parameter], header: int) -> bool:
        same = len(parameters) == len(self._parameters) and header == self._header
        return same and all(one is other for one, other in zip(parameters, self._parameters))

    @torch.no_grad()
    def sum(self, group: Group, header: Tensor, gradients: Sequence[Tensor | None], samples: int) -> Tensor:
        """Sum gradients times samples over all workers, and the header, which is the front of one of the buffers."""
        there = [(view, _real(one)) for view, one in zip(self._views, gradients) if one is not None and samples]
        if len(there) < len(self._views):  # a worker without samples adds zeros: its gradient may be infinite
            for flat in self._gradients:
                flat.zero_()
        if there:
            torch._foreach_copy_([view for view, _ in there], [one for _, one in there])
        for flat in self._gradients:
            flat.mul_(samples)
        self._front.copy_(header[: len(self._front)])  # counts are exact in float32 up to 2**24
        for flat in self._flats.values():
            group.all_reduce(flat)
        if not self._rides:
            group.all_reduce(header)
            return header
        return self._front.to(torch.float64)

    @torch.no_grad()
    def spread(self, total: int, present: Sequence[float]) -> None:
        """Write means to the parameters' gradients; a gradient that no worker has stays None."""
        for flat in self._gradients:
            flat.div_(total)
        targets, sources = [], []
        for parameter, view, has_gradient in zip(self._parameters, self._views, present):
            if has_gradient:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                targets.append(_real(parameter.grad))
                sources.append(view)
        if targets:
            torch._foreach_copy_(targets, sources)


def _kind(parameter: Tensor) -> tuple[torch.dtype, torch.device]:
    wide = parameter.dtype in (torch.float64, torch.complex128)
    return torch.float64 if wide else torch.float32, parameter.device


def _numel(parameter: Tensor) -> int:
    return parameter.numel() * (2 if parameter.is_complex() else 1)


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
