"""Keep the state of a run from before growth, in memory or in a file, to go back to it if growth does harm."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from argosy.grow.errors import GrowError
from argosy.grow.training import checkpoint, workers
from argosy.grow.training.guard import Guard
from argosy.grow.training.run import Run

FILE = "before-growth-{place}-{rank}.safetensors"  # in the guard's folder; each worker has its own
GIB = 2**30


class Kept:
    """A run as it was before growth."""

    def __init__(self, run: Run | None, file: Path | None = None) -> None:
        self._run, self.file = run, file

    @classmethod
    def of(cls, run: Run, guard: Guard, place: int) -> Kept:
        """Keep the present state of a run before decision number `place`.

        Raises GrowError if it is too large for memory and folder.
        """
        size = size_of(run.model, run.optimizer) / GIB
        if size <= guard.memory_gib:
            return cls(run.fork())
        if guard.folder is None or size > guard.folder_gib:
            where = f"{guard.folder_gib:g} in {guard.folder}" if guard.folder is not None else "there is no folder"
            raise GrowError(
                f"the state before growth cannot be kept: it has {size:.3g} GiB, but at most {guard.memory_gib:g} "
                f"may be kept in memory, and {where}",
                hint="allow more: grow.Guard(memory_gib=…, folder=…, folder_gib=…)",
            )
        file = Path(guard.folder) / FILE.format(place=place, rank=workers.rank())
        checkpoint.save(run, file)
        return cls(None, file)

    @property
    def in_memory(self) -> Run | None:
        """Return the kept run if it is in memory; otherwise it is in `file`."""
        return self._run

    def run(self, like: Run, original: nn.Module) -> Run:
        """Return the kept run; `original` is the network of the run `like` before all growth."""
        if self._run is not None:
            return self._run
        assert self.file is not None
        return checkpoint.restored(like, original, self.file)

    def forget(self) -> None:
        """Give up the state; its file is deleted."""
        if self.file is not None:
            checkpoint.remove(self.file)


def size_of(model: nn.Module, optimizer: Optimizer) -> int:
    """Return how many bytes a network and its optimizer's state have."""
    states = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [*model.parameters(), *model.buffers(), *states]
    return sum(tensor.nbytes for tensor in tensors if torch.is_tensor(tensor))
