"""Keeps the buffers of a network (such as batch-norm's statistics), one set for each virtual rank.

Every worker has all sets after every step, so nothing is lost when a worker leaves. Only buffers that training changes
are kept separately and exchanged; which ones these are is found by comparing them after each step. Between steps the
network holds the set of virtual rank 0, which is the one that is evaluated and saved.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Module

ALIGNED = 16  # every buffer begins at a multiple of this many bytes

Place = tuple[Module, str]  # a module and the name of its buffer


def places_of(modules: Sequence[Module]) -> list[Place]:
    """Return the places of the buffers of these modules, each buffer once."""
    found: dict[int, Place] = {}
    for top in modules:
        for module in top.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    found.setdefault(id(buffer), (module, name))
    return list(found.values())


class VirtualBuffers:
    """One set of changing buffers for each virtual rank, as rows of bytes.

    `kept` holds the values after the last step; `fresh` those that this worker's virtual ranks computed in this step.
    """

    def __init__(self, places: Sequence[Place], virtual: int, changing: Sequence[int] = ()) -> None:
        self._places = list(places)
        self.virtual, self.changing = virtual, sorted(changing)
        self._base = [self._now(number).clone() for number in range(len(places))]
        # by (virtual rank, buffer): new values of buffers that were not known to change
        self._found: dict[tuple[int, int], Tensor] = {}
        self._unchanging = sorted(set(range(len(places))) - set(changing))
        spans, end = [], 0
        for number in self.changing:
            size = self._base[number].numel() * self._base[number].element_size()
            spans.append((end, end + size))
            end += -(-size // ALIGNED) * ALIGNED
        self.kept = torch.zeros(virtual, end, dtype=torch.uint8, device=self.device)
        self.fresh = torch.zeros_like(self.kept)
        self._kept = [self._views(row, spans) for row in self.kept]
        self._fresh = [self._views(row, spans) for row in self.fresh]
        for views in self._kept:
            _copy(views, [self._base[number] for number in self.changing])

    @property
    def device(self) -> torch.device:
        return self._base[0].device if self._base else torch.device("cpu")

    def enter(self, rank: int) -> None:
        """Copy this virtual rank's set into the network."""
        _copy([self._now(number) for number in self.changing], self._kept[rank])

    def leave(self, rank: int) -> None:
        """Store the buffers of the network after a virtual rank has done its part of the step."""
        _copy(self._fresh[rank], [self._now(number) for number in self.changing])
        for number in self._unchanging:
            if not torch.equal(self._now(number), self._base[number]):
                self._found[rank, number] = self._now(number).clone()
                self._now(number).copy_(self._base[number])

    def look_again(self) -> None:
        """Read the unchanging buffers again, because the script may have loaded weights."""
        for number in self._unchanging:
            self._base[number] = self._now(number).clone()

    def put_back(self) -> None:
        """Reset the buffers that are not known to change to their values before the step."""
        for number in self._unchanging:
            self._now(number).copy_(self._base[number])

    def forget(self) -> None:
        """Forget the changes that were seen in a step that will be repeated."""
        self._found = {}

    def changed(self) -> Tensor:
        """Return one byte for each buffer: whether it was seen to change."""
        seen = torch.zeros(len(self._places), dtype=torch.uint8)
        seen[[*self.changing, *(number for _, number in self._found)]] = 1
        return seen.to(self.device)

    def grown(self, changing: Sequence[int]) -> VirtualBuffers:
        """Return the same sets, with more buffers that are kept separately."""
        more = VirtualBuffers(self._places, self.virtual, changing)
        more._base = [one.clone() for one in self._base]
        for rank in range(self.virtual):
            for number, kept, fresh in zip(more.changing, more._kept[rank], more._fresh[rank]):
                if number in self.changing:
                    at = self.changing.index(number)
                    kept.copy_(self._kept[rank][at])
                    fresh.copy_(self._fresh[rank][at])
                else:
                    kept.copy_(self._base[number])
                    fresh.copy_(self._found.get((rank, number), self._base[number]))
        return more

    def _now(self, number: int) -> Tensor:
        module, name = self._places[number]  # looked up each time, because a module may replace the tensor
        buffer = module._buffers[name]
        assert buffer is not None
        return buffer

    def _views(self, row: Tensor, spans: Sequence[tuple[int, int]]) -> list[Tensor]:
        kinds = [self._base[number] for number in self.changing]
        return [row[low:high].view(kind.dtype).view(kind.shape) for (low, high), kind in zip(spans, kinds, strict=True)]


def _copy(to: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    if to:
        with torch.no_grad():
            torch._foreach_copy_(list(to), list(source))
