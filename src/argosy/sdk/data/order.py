"""Decides the order of samples: each is used once per epoch, whatever happens to the workers.

The order of an epoch depends only on the seed and the epoch's number. A `Position` says how far training is; the
samples of a step are divided among the workers that there are at that step. So a resize, a suspension or the loss of a
worker changes which worker loads a sample, but never whether it is loaded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from argosy.errors import InputError
from argosy.sdk.data.seeds import derive, seed_host, untouched

IDLE = -1  # stands for the rank of a worker that gets no part of the batch
BatchMode = Literal["constant", "scaled", "adaptive"]


class Position(NamedTuple):
    """How far training is: the epoch, the samples taken of it, and the steps done in all."""

    epoch: int = 0
    taken: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """The samples of one worker in one step."""

    indices: list[Any]  # of samples in the data set
    count: int  # the weight of its gradient; 0 if the samples are only copies of rank 0's
    start: int  # the position of the first sample in the order of the epoch


class Epoch(NamedTuple):
    """The samples of an epoch in their order, and where each batch ends."""

    indices: Sequence[Any]
    ends: Sequence[int]

    @property
    def size(self) -> int:
        return self.ends[-1]

    def batch_at(self, taken: int) -> int:
        """Return the number of the batch that the next sample belongs to."""
        return bisect_right(self.ends, taken)

    def bounds(self, batch: int, taken: int) -> tuple[int, int]:
        """Return start and end of what is left of a batch after `taken` samples; empty after the last batch."""
        if batch >= len(self.ends):
            return self.size, self.size
        return max(taken, self.ends[batch - 1] if batch else 0), self.ends[batch]


class Order:
    """The order in which a job sees its data, read from the user's own loader.

    `constant`: a step takes one batch of the loader, whatever the number of workers, split evenly among them.
    `scaled`: every worker takes a whole batch of the loader, so that a step takes as many batches as there are workers.
    `adaptive`: a step takes `samples` samples, whatever the loader says, split evenly among the workers.
    """

    def __init__(self, loader: DataLoader[Any], seed: int = 0, mode: BatchMode = "constant") -> None:
        if mode not in ("constant", "scaled", "adaptive"):
            raise InputError(f"unknown batch mode {mode!r}", hint="use constant, scaled or adaptive")
        self.loader, self.seed, self.mode = loader, seed, mode
        self._deal = _order_function(loader, seed)
        self._batch_size: int | None = getattr(loader.batch_sampler, "batch_size", None)
        self._known: dict[int, Epoch] = {}
        self.samples = self.batch_size if mode == "adaptive" else 0  # of a step, where the batch is adaptive

    def epoch(self, number: int) -> Epoch:
        """Return the order of one epoch; the last two are cached."""
        if number not in self._known:
            epoch = self._deal(number)
            if not len(epoch.ends):
                raise InputError(
                    f"epoch {number} has no batch, because the data set has only {len(epoch.indices)} samples",
                    hint="use a smaller batch_size, or drop_last=False",
                )
            while len(self._known) > 1:
                self._known.pop(next(iter(self._known)))
            self._known[number] = epoch
        return self._known[number]

    def size(self, epoch: int) -> int:
        """Return how many samples are used in this epoch."""
        return self.epoch(epoch).size

    def batch(self, position: Position, world: int) -> int:
        """Return how many samples all workers together take in the step that begins here."""
        return self._end(position, world) - position.taken

    def scale(self, position: Position, world: int) -> float:
        """Return how many batches of the loader all workers together take in the step that begins here."""
        return self.batch(position, world) / self.batch_size

    @property
    def batch_size(self) -> int:
        """Return the size of the loader's batches (of the first, if they differ)."""
        return self.epoch(0).ends[0] if self._batch_size is None else self._batch_size

    def after(self, position: Position, world: int) -> Position:
        """Return the position after the step that begins here."""
        end = self._end(position, world)
        if end >= self.size(position.epoch):
            return Position(position.epoch + 1, 0, position.step + 1)
        return Position(position.epoch, end, position.step + 1)

    def share(self, position: Position, world: int, rank: int) -> Share:
        """Return this rank's samples in the step that begins here; rank 0 always has some."""
        start, end = self._slice(position, world, rank) if rank != IDLE else (0, 0)
        count = end - start
        if not count:  # it gets rank 0's samples, without weight, so that the script's loop runs here too
            start, end = self._slice(position, world, 0)
        chosen = self.epoch(position.epoch).indices[start:end]
        return Share(chosen.tolist() if isinstance(chosen, torch.Tensor) else list(chosen), count, start)

    def progress(self, position: Position, epochs: int) -> float:
        """Return the share of the training that is done, from 0 to 1."""
        if position.epoch >= epochs:
            return 1.0
        return (position.epoch + position.taken / self.size(position.epoch)) / epochs

    def _end(self, position: Position, world: int) -> int:
        epoch = self.epoch(position.epoch)
        if self.mode == "adaptive":
            return min(position.taken + self.samples, epoch.size)
        batches = world if self.mode == "scaled" else 1
        return epoch.ends[min(epoch.batch_at(position.taken) + batches, len(epoch.ends)) - 1]

    def _slice(self, position: Position, world: int, rank: int) -> tuple[int, int]:
        epoch = self.epoch(position.epoch)
        batch = epoch.batch_at(position.taken)
        if self.mode == "scaled":
            return epoch.bounds(batch + rank, position.taken)
        first, end = epoch.bounds(batch, position.taken)
        if self.mode == "adaptive":
            first, end = position.taken, self._end(position, world)
        each, more = divmod(end - first, world)
        start = first + rank * each + min(rank, more)
        return start, start + each + (rank < more)


def _order_function(loader: DataLoader[Any], seed: int) -> Callable[[int], Epoch]:
    """Return a function that maps the number of an epoch to its order."""
    if isinstance(loader.dataset, IterableDataset):
        raise InputError(
            "the loader's data set is iterable, so its samples cannot be divided among workers",
            hint="use a data set with __len__ and __getitem__, or iterate over your loader without job.batches",
        )
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise InputError(
            f"{type(loader).__name__} has its own __iter__, so its samples cannot be divided among workers",
            hint="pass a plain torch.utils.data.DataLoader to job.batches",
        )
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return lambda epoch: _of_batches(_drawn(batches, seed, epoch))
    sampler: Any = loader.sampler if batches is None else batches.sampler
    size, drop_last = (1, False) if batches is None else (batches.batch_size, batches.drop_last)

    def deal(epoch: int) -> Epoch:
        indices = _indices(sampler, seed, epoch)
        return Epoch(indices, _ends(len(indices), size, drop_last))

    return deal


def _ends(samples: int, size: int, drop_last: bool) -> Sequence[int]:
    ends = range(size, samples + 1, size)
    if drop_last or samples % size == 0:
        return ends
    return [*ends, samples]


def _indices(sampler: Any, seed: int, epoch: int) -> Any:
    if type(sampler) is SequentialSampler:
        return range(len(sampler.data_source))
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source):
        generator = torch.Generator().manual_seed(derive(seed, "order", epoch))
        return torch.randperm(sampler.num_samples, generator=generator)
    if isinstance(sampler, DistributedSampler):  # only its order is used, because it would divide the samples again
        everything: Any = sampler.dataset
        return _indices((RandomSampler if sampler.shuffle else SequentialSampler)(everything), seed, epoch)
    return _drawn(sampler, seed, epoch)


def _drawn(sampler: Any, seed: int, epoch: int) -> list[Any]:
    """Return what the user's own sampler yields, with the same seed on all workers."""
    number = derive(seed, "order", epoch)
    inner = [sampler]
    while isinstance(getattr(inner[-1], "sampler", None), Sampler):
        inner.append(inner[-1].sampler)
    kept = [(one, one.generator) for one in inner if hasattr(one, "generator")]
    for one in inner:
        if hasattr(one, "set_epoch"):
            one.set_epoch(epoch)
    with untouched():
        seed_host(number)
        for one, _ in kept:
            one.generator = torch.Generator().manual_seed(number)
        try:
            return list(sampler)
        finally:
            for one, generator in kept:
                one.generator = generator


def _of_batches(batches: list[list[Any]]) -> Epoch:
    """Return an epoch made of the batches of the user's own batch sampler, which may differ in length."""
    indices = [index for batch in batches for index in batch]
    ends = [0]
    for batch in batches:
        if len(batch):
            ends.append(ends[-1] + len(batch))
    return Epoch(indices, ends[1:])
