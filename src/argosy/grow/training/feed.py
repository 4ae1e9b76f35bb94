"""Feed batches to training: from tensors in memory, or from the user's own pipelines.

The order of data in memory is a permutation that belongs to the run, so that a copy of the run sees the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from argosy.grow.data import Data
from argosy.grow.errors import GrowError
from argosy.grow.training import workers

Batch: TypeAlias = tuple[Any, Any]
Part: TypeAlias = Literal["train", "validation", "test"]
EVALUATION_BATCH = 500


@dataclass(frozen=True)
class Loaders:
    """Your own pipelines: iterables of (inputs, targets) batches, for instance DataLoaders.

    With several workers each gives its own share of the data, as with a DistributedSampler.
    """

    train: Iterable[Batch]
    validation: Iterable[Batch] | None = None
    test: Iterable[Batch] | None = None


Source: TypeAlias = Data | Loaders


def source(data: Data | Loaders | Iterable[Batch]) -> Source:
    """Return the given data as a source; a single iterable is used for training only."""
    if isinstance(data, Data | Loaders):
        return data
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict | torch.Tensor):
        return Loaders(data)
    raise GrowError(
        f"{type(data).__name__} is not training data",
        hint="give grow.load(...), a DataLoader, or grow.Loaders(train, validation, test)",
    )


def steps(data: Source, batch: int) -> int | None:
    """Return the number of batches in an epoch; None if the pipeline has no length."""
    if isinstance(data, Data):
        n = len(data.train_y)
        whole, rest = divmod(n, batch)
        return max(whole + (rest >= _least()), 1)
    try:
        return len(data.train)  # type: ignore[arg-type]
    except TypeError:
        return None


def training(data: Source, batch: int, generator: torch.Generator) -> Iterator[tuple[Any, Any, float]]:
    """Yield one epoch of batches: inputs, targets, and this worker's weight in the mean over all workers."""
    if isinstance(data, Loaders):
        for x, y in data.train:
            yield x, y, 1.0
        return
    rank, size = workers.rank(), workers.size()
    order = torch.randperm(len(data.train_y), generator=generator)
    for chosen in torch.split(order, batch)[: steps(data, batch)]:
        mine = chosen[rank::size] if size > 1 else chosen
        yield data.train_x[mine], data.train_y[mine], len(mine) * size / len(chosen)


def evaluation(data: Source, part: Part) -> Iterator[Batch]:
    """Yield all of one part, in order."""
    if isinstance(data, Data):
        short = "val" if part == "validation" else part
        x, y = getattr(data, f"{short}_x"), getattr(data, f"{short}_y")
        yield from zip(x.split(EVALUATION_BATCH), y.split(EVALUATION_BATCH), strict=True) if len(y) else ()
        return
    batches = getattr(data, part)
    if batches is None:
        raise GrowError(f"there are no {part} data", hint=f"give grow.Loaders(train, …) with {part}=")
    yield from batches


def example(data: Source) -> Any:
    """Return a calibration batch: a tensor, or a tuple of them."""
    if isinstance(data, Data):
        return data.example()
    with torch.random.fork_rng(devices=[]):  # reading a batch must not change which come next
        for x, _ in data.train:
            return tuple(x) if isinstance(x, list) else x
    raise GrowError("the training data have no batches", hint="an iterator may be exhausted; give a list or DataLoader")


def _least() -> int:
    """Return the smallest last batch that is used: batch-norm needs two examples on each worker."""
    return 2 * workers.size()
