"""Loads the batches a worker trains on, as the user's own loader would: collate function, workers, pinned memory.

One loader runs for the whole life of a worker. It prefetches as far as the user's settings say, assuming that nothing
changes. After a change (a resize, a recovery), prefetched batches are dropped, but the loader's worker processes stay.
Samples are loaded with random numbers of their own, so that augmentations do not depend on which process loads them or
how often, and the random state of the training does not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

from argosy.sdk.data.order import Order, Position
from argosy.sdk.data.seeds import derive, seed_host, untouched


class _Wanted(NamedTuple):
    """A request for one slice of one step. `slots` are all slices of the step that this worker takes, in order."""

    position: Position
    of: int
    slot: int
    slots: tuple[int, ...]


class Feed:
    """Provides the batches of one worker; each call of `take` returns one."""

    def __init__(self, order: Order, epochs: int | None = None) -> None:
        self.order = order
        self._ahead = _LookAhead(order, epochs)
        self._loader = _rebuilt(order.loader, self._ahead, derive(order.seed, "workers"))
        self._batches: Iterator[Any] | None = None

    def take(self, position: Position, of: int, slot: int, slots: Sequence[int] = ()) -> Any:
        """Return a slice of the step that begins at this position, collated as the user's loader does it.

        `slots` are all slices of the step that this worker takes, in order, if there are several.
        """
        wanted = _Wanted(position, of, slot, tuple(slots) or (slot,))
        with untouched():
            while True:
                self._ahead.aim(wanted)
                if self._batches is None:
                    self._batches = iter(self._loader)
                try:
                    batch = next(self._batches)
                except StopIteration:  # prefetching had reached the end of the training before a change
                    self.close()
                    continue
                if self._ahead.given.popleft() == wanted:
                    return batch

    def close(self) -> None:
        """End the loader's worker processes; `take` may be called again."""
        self._batches = None
        self._ahead.given.clear()


def _after(order: Order, wanted: _Wanted) -> _Wanted:
    later = wanted.slots[wanted.slots.index(wanted.slot) + 1 :]
    if later:
        return wanted._replace(slot=later[0])
    return wanted._replace(slot=wanted.slots[0], position=order.after(wanted.position, wanted.of))


class _LookAhead:
    """The sampler of our loader. It runs ahead of training, and can be set to another position."""

    def __init__(self, order: Order, epochs: int | None) -> None:
        self._order, self._epochs = order, epochs
        self._next: _Wanted | None = None
        self.given: deque[_Wanted] = deque()  # slices requested from the loader and not yet returned

    def aim(self, wanted: _Wanted) -> None:
        """Continue from this slice, unless it was already requested."""
        if wanted not in self.given:
            self._next = wanted

    def __iter__(self) -> _LookAhead:
        return self

    def __next__(self) -> Any:
        wanted = self._next
        if wanted is None or (self._epochs is not None and wanted.position.epoch >= self._epochs):
            raise StopIteration
        share = self._order.share(wanted.position, wanted.of, wanted.slot)
        self.given.append(wanted)
        self._next = _after(self._order, wanted)
        number = derive(self._order.seed, "sample", wanted.position.epoch, share.start)
        return [number, *share.indices] if self._order.loader.batch_sampler is not None else (number, share.indices[0])


class _Seeded(Dataset[Any]):
    """Wraps the user's data set; each request begins with the seed for its random numbers."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:  # a worker_init_fn may use attributes of its data set
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __getitem__(self, seeded: tuple[int, Any]) -> Any:
        seed_host(seeded[0])
        return self.inner[seeded[1]]

    def __getitems__(self, seeded: list[Any]) -> list[Any]:
        seed_host(seeded[0])
        many = getattr(self.inner, "__getitems__", None)
        found: list[Any] = many(seeded[1:]) if many else [self.inner[index] for index in seeded[1:]]
        return found


def _rebuilt(loader: DataLoader[Any], ahead: _LookAhead, seed: int) -> DataLoader[Any]:
    """Return a loader with the user's settings and our sampler."""
    settings: dict[str, Any] = {
        name: getattr(loader, name)
        for name in ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    }
    if loader.num_workers:
        settings["prefetch_factor"] = loader.prefetch_factor
    which = "sampler" if loader.batch_sampler is None else "batch_sampler"
    settings |= {which: ahead} | ({"batch_size": None} if which == "sampler" else {})
    return DataLoader(_Seeded(loader.dataset), generator=torch.Generator().manual_seed(seed), **settings)
