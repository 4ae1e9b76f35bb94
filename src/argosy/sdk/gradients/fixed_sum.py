"""Adds the vectors of virtual ranks so that the bits of the sum do not depend on which worker has which rank.

Floating-point sums depend on their order, so the order is fixed: a binary tree over the virtual ranks. A worker sums
the complete branches that it has. Small vectors are then sent to all workers, and each computes the rest of the tree.
Large ones are cut into one piece per worker: an all-to-all sends each worker its piece of every branch, each sums its
piece, and an all-gather distributes the finished pieces. That sends less, but takes two messages instead of one.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from argosy.sdk.group.process_group import Group

SMALL = 8 << 20  # the most bytes that a worker may receive in one message

Branch = tuple[int, int]  # its first virtual rank, and the one after its last


def block(virtual: int, world: int, rank: int) -> range:
    """Return the virtual ranks of one worker, perhaps none; they are consecutive and evenly distributed."""
    each, more = divmod(virtual, world)
    start = rank * each + min(rank, more)
    return range(start, start + each + (rank < more))


def parting(branch: Branch) -> int:
    """Return where a branch splits in two: the left side is the largest power of two that leaves a right side."""
    low, high = branch
    return int(low + (1 << ((high - low - 1).bit_length() - 1)))


@cache
def branches(virtual: int, mine: range) -> tuple[Branch, ...]:
    """Return the largest branches of the tree that lie within these virtual ranks."""

    def within(branch: Branch) -> list[Branch]:
        low, high = branch
        if high <= mine.start or mine.stop <= low:
            return []
        if mine.start <= low and high <= mine.stop:
            return [branch]
        middle = parting(branch)
        return within((low, middle)) + within((middle, high))

    return tuple(within((0, virtual))) if len(mine) else ()


class FixedSum:
    """Sums vectors of one length over all virtual ranks."""

    def __init__(self, length: int, virtual: int, dtype: torch.dtype, device: torch.device) -> None:
        self.length, self.virtual, self.small = length, virtual, SMALL
        self._dtype, self._device = dtype, device
        self._held: list[tuple[Branch, Tensor]] = []  # branches that this worker has summed so far
        self._spare: list[Tensor] = []  # vectors to reuse, because allocating memory would cost more than the sums

    def clear(self) -> None:
        """Drop all vectors that were added."""
        self._spare += [vector for _, vector in self._held]
        self._held = []

    def vector(self) -> Tensor:
        """Return a vector for the next virtual rank, which the caller overwrites and passes to `add`."""
        return self._spare.pop() if self._spare else self._empty(self.length)

    def add(self, rank: int, vector: Tensor) -> None:
        """Add the vector of this worker's next virtual rank; ranks must come in order."""
        branch = (rank, rank + 1)
        while self._held and self._part_of_one(self._held[-1][0], branch):
            (low, _), left = self._held.pop()
            self._spare.append(vector)
            vector, branch = left.add_(vector), (low, branch[1])
        self._held.append((branch, vector))

    def total(self, group: Group, extra: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the sum over all virtual ranks, and the `extra` bytes of every worker by rank.

        All workers get the same result, and must give equally many extra bytes. The caller may change the sum until
        the next `add`.
        """
        if group.world == 1:
            total = self._held[0][1]
            self.clear()
            return total, [extra]
        holdings = [branches(self.virtual, block(self.virtual, group.world, rank)) for rank in range(group.world)]
        counts = [len(held) for held in holdings]
        order = [branch for held in holdings for branch in held]
        if group.world * max(counts) * self.length * self._dtype.itemsize <= self.small:
            parts, extras = self._all_branches(group, counts, extra)
            total = _along_tree((0, self.virtual), dict(zip(order, parts, strict=True)))
        else:
            pieces = self._exchanged(group, counts)
            piece = _along_tree((0, self.virtual), dict(zip(order, pieces, strict=True)))
            total, extras = self._gathered(group, piece, extra)
        self.clear()
        return total, extras

    def _part_of_one(self, left: Branch, right: Branch) -> bool:
        both = (left[0], right[1])
        return parting(both) == left[1] and branches(self.virtual, range(*both)) == (both,)

    def _empty(self, length: int) -> Tensor:
        return torch.empty(length, dtype=self._dtype, device=self._device)

    def _all_branches(self, group: Group, counts: list[int], extra: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Exchange all branches, in order, and all workers' extra bytes in one message."""
        size = self.length * self._dtype.itemsize
        sent = torch.zeros(max(counts) * size + extra.numel(), dtype=torch.uint8, device=self._device)
        for number, (_, vector) in enumerate(self._held):
            sent[number * size : (number + 1) * size] = vector.view(torch.uint8)
        sent[max(counts) * size :] = extra
        rows = group.all_gather(sent)
        parts = [
            row[number * size : (number + 1) * size].view(self._dtype)
            for row, count in zip(rows, counts)
            for number in range(count)
        ]
        return parts, [row[max(counts) * size :] for row in rows]

    def _exchanged(self, group: Group, counts: list[int]) -> list[Tensor]:
        """Return this worker's piece of every branch, in order."""
        size = -(-self.length // group.world)
        sent = self._empty(group.world * len(self._held) * size)
        for rank, parts in enumerate(sent.view(group.world, len(self._held), size)):
            start, end = min(rank * size, self.length), min((rank + 1) * size, self.length)
            for part, (_, vector) in zip(parts, self._held, strict=True):
                part[: end - start] = vector[start:end]
                part[end - start :] = 0
        received = self._empty(sum(counts) * size)
        each = [len(self._held) * size] * group.world
        group.all_to_all(received, sent, [count * size for count in counts], each)
        return list(received.view(-1, size))

    def _gathered(self, group: Group, piece: Tensor, extra: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the whole sum and all workers' extra bytes, exchanged in one message."""
        rows = group.all_gather(torch.cat([piece.view(torch.uint8), extra]))
        end = piece.numel() * piece.element_size()
        whole = torch.cat([row[:end] for row in rows]).view(piece.dtype)[: self.length]
        return whole, [row[end:] for row in rows]


def _along_tree(branch: Branch, known: dict[Branch, Tensor]) -> Tensor:
    if branch in known:
        return known[branch]
    middle = parting(branch)
    return _along_tree((branch[0], middle), known).add_(_along_tree((middle, branch[1]), known))
