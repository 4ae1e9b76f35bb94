"""Exact mode: the final weights are the same, bit by bit, whatever resizes, moves and failures the job had.

Training is divided among a fixed number of *virtual ranks*, which are mapped to the workers that there are; workers
beyond that number contribute nothing. Each virtual rank has its own slice of the batch, its own random numbers
(derived from the seed, the step and its number alone) and its own batch-norm statistics. Gradients are added in a
fixed order. Every worker computes with one thread and deterministic algorithms.

The script's loop runs once for each virtual rank of the worker; the optimizer acts after the last. Whatever else
the script does once per step, such as averaging weights, it should do only if `job.stepped` is true.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from argosy.errors import InputError
from argosy.sdk.data.order import IDLE
from argosy.sdk.data.seeds import derive, seed_all
from argosy.sdk.gradients.all_reduce import Rider
from argosy.sdk.gradients.buffers import VirtualBuffers, places_of
from argosy.sdk.gradients.combine import Piece
from argosy.sdk.gradients.fixed_sum import FixedSum, block
from argosy.sdk.group.process_group import Group

MOST = 1024


def prepare() -> None:
    """Make this process compute deterministically; must be called before the first use of a GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # only costs time


class ExactCombiner:
    """Combines the gradients of all virtual ranks in a fixed order."""

    def __init__(self, virtual: int = 4, seed: int = 0) -> None:
        if not 1 <= virtual <= MOST:
            what = f"virtual={virtual} is not a valid number of virtual ranks"
            raise InputError(what, hint=f"use 1 to {MOST}, such as 4")
        self.virtual, self.seed = virtual, seed
        self._group = Group(None, 0, 1)
        self._begun = False  # whether a step has begun and is not complete; it may have failed
        self._done: list[int] = []  # virtual ranks of this worker that have done their part of the step
        self.riders: list[Rider] = []  # must be added before `bind`
        self.bind((), ())

    def bind(self, modules: Sequence[Module], parameters: Sequence[Parameter]) -> None:
        self._parameters = list(parameters)
        self._places = places_of(modules)
        self._buffers = VirtualBuffers(self._places, self.virtual)
        self._lay_out([parameter for parameter in parameters if parameter.requires_grad])

    def regroup(self, group: Group) -> None:
        self._group = group
        self._restart()
        if self._begun:
            self._buffers.put_back()
        else:
            self._buffers.look_again()
        self._begun = False
        self._buffers.enter(0)

    def slots(self) -> tuple[Sequence[int], int]:
        return self._mine() or (IDLE,), self.virtual

    def begin(self, piece: Piece, step: int) -> None:
        mine = self.slots()[0]
        if piece.slot == mine[0]:
            self._restart()
        elif list(mine[: mine.index(piece.slot)]) != self._done:
            raise InputError(
                "an iteration of the loop made no gradients, which exact mode does not allow",
                hint="call backward() once in every iteration over job.batches, or leave out exact=True",
            )
        self._begun = True
        self._buffers.enter(max(piece.slot, 0))
        seed_all(derive(self.seed, "step", step, piece.slot))

    def combine(self, piece: Piece, votes: Tensor) -> Tensor | None:
        if piece.slot in self._done:
            raise InputError(
                "exact mode allows only one backward() in each iteration of the loop",
                hint="add the losses and call backward() once, or leave out exact=True",
            )
        self._done.append(piece.slot)
        if piece.slot != IDLE:
            self._sum.add(piece.slot, self._vector(piece.samples))
            self._buffers.leave(piece.slot)
        if not piece.last:
            return None
        total, summed_votes = self._exchange(votes)
        self._set_gradients(total)
        self._buffers.enter(0)
        self._begun = False
        return summed_votes

    def state(self) -> dict[str, Any]:
        """Return the state; it must be loaded after the state of the network."""
        return {
            "virtual": self.virtual,
            "changing": list(self._buffers.changing),
            "buffers": self._buffers.kept.clone(),
            "riders": [rider.state() for rider in self.riders],
        }

    def load(self, state: dict[str, Any]) -> None:
        if state["virtual"] != self.virtual:
            raise InputError(
                f"the saved state has {state['virtual']} virtual ranks, the script asks for {self.virtual}",
                hint=f"use argosy.job(exact=True, virtual={state['virtual']})",
            )
        self._buffers = VirtualBuffers(self._places, self.virtual, state["changing"])
        self._buffers.kept.copy_(state["buffers"])
        for rider, saved in zip(self.riders, state["riders"]):
            rider.load(saved)
        self._buffers.enter(0)
        self._restart()

    def _mine(self) -> tuple[int, ...]:
        return tuple(block(self.virtual, self._group.world, self._group.rank))

    def _lay_out(self, trained: list[Parameter]) -> None:
        """Compute where the gradient of each parameter lies in the vectors that are added."""
        self._trained = trained
        kinds = {parameter.dtype for parameter in trained}
        if any(kind.is_complex for kind in kinds):
            raise InputError("exact mode does not support complex gradients", hint="leave out exact=True")
        ends = list(accumulate(parameter.numel() for parameter in trained))
        self._bounds = list(zip([0, *ends], ends))
        self._end = ends[-1] if ends else 0
        # after the gradients come the number of gradients per parameter, the number of samples, and the riders' data
        self._tail = [len(trained), 1, *(rider.size for rider in self.riders)]
        dtype = torch.float64 if torch.float64 in kinds else torch.float32
        device = trained[0].device if trained else torch.device("cpu")
        self._sum = FixedSum(self._end + sum(self._tail), self.virtual, dtype, device)
        self._windows: dict[int, list[Tensor]] = {}  # by the address of a vector, which is reused: its views

    def _restart(self) -> None:
        self._done = []
        self._sum.clear()
        self._buffers.forget()
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        if [id(one) for one in trained] != [id(one) for one in self._trained]:  # parameters were frozen or unfrozen
            self._lay_out(trained)

    def _vector(self, samples: int) -> Tensor:
        """Return the gradients of one virtual rank, weighted by its number of samples."""
        vector = self._sum.vector()
        if not samples:
            return vector.zero_()
        gradients = [parameter.grad for parameter in self._trained]
        there = [gradient.detach() for gradient in gradients if gradient is not None]
        if any(gradient.is_sparse for gradient in there):
            raise InputError("exact mode does not support sparse gradients", hint="create embeddings with sparse=False")
        windows, flat = self._windows_into(vector), vector[: self._end]
        present, count, *riding = torch.split(vector[self._end :], self._tail)
        present.fill_(1)
        if len(there) < len(gradients):
            present.copy_(torch.tensor([float(gradient is not None) for gradient in gradients]))
            flat.zero_()
            windows = [window for window, gradient in zip(windows, gradients) if gradient is not None]
        count.fill_(samples)
        for rider, place in zip(self.riders, riding):
            place.copy_(rider.fill(gradients, samples))
        if there:
            torch._foreach_copy_(windows, there)
        flat.mul_(samples)
        return vector

    def _windows_into(self, vector: Tensor) -> list[Tensor]:
        """Return views of the vector, one for the gradient of each parameter."""
        found = self._windows.get(vector.data_ptr())
        if found is None:
            bounds = zip(self._trained, self._bounds)
            found = [vector[low:high].view(parameter.shape) for parameter, (low, high) in bounds]
            self._windows[vector.data_ptr()] = found
        return found

    def _exchange(self, votes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums of all gradients and votes, and give every worker all sets of buffers."""
        buffers = self._buffers
        head = torch.cat([votes.view(torch.uint8).to(buffers.device), buffers.changed()])
        total, rows = self._sum.total(self._group, torch.cat([head, self._payload(buffers)]))
        all_votes = [row[: votes.nbytes].clone().view(votes.dtype).cpu() for row in rows]
        seen = torch.stack([row[votes.nbytes : head.numel()] for row in rows]).amax(0)
        rows = [row[head.numel() :] for row in rows]
        changing = seen.nonzero().flatten().tolist()
        if changing != buffers.changing:
            buffers = buffers.grown(changing)
            rows = self._group.all_gather(self._payload(buffers))
        for rank, row in enumerate(rows):
            theirs = block(self.virtual, self._group.world, rank)
            sets = row.view(-1, buffers.kept.shape[1]) if row.numel() else row
            buffers.kept[theirs.start : theirs.stop] = sets[: len(theirs)]
        self._buffers = buffers
        return total, torch.stack(all_votes).sum(0)

    def _payload(self, buffers: VirtualBuffers) -> Tensor:
        """Return the new buffers of this worker's virtual ranks, padded to the same length on every worker."""
        mine = self._mine()
        sent = buffers.fresh.new_zeros(-(-self.virtual // self._group.world), buffers.fresh.shape[1])
        if mine:
            sent[: len(mine)] = buffers.fresh[mine[0] : mine[-1] + 1]
        return sent.view(-1)

    def _set_gradients(self, total: Tensor) -> None:
        flat, (present, count, *riding) = total[: self._end], torch.split(total[self._end :], self._tail)
        flat.div_(count)
        to, source = [], []
        for parameter, has_gradient, (low, high) in zip(self._trained, present.tolist(), self._bounds):
            if not has_gradient:
                parameter.grad = None
                continue
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            to.append(parameter.grad)
            source.append(flat[low:high].view(parameter.shape))
        if to:
            with torch.no_grad():
                torch._foreach_copy_(to, source)
        gradients = [parameter.grad for parameter in self._trained]
        for rider, place in zip(self.riders, riding):
            rider.take(place.double().cpu(), gradients, round(float(count)), self.virtual)
