"""A replay memory: the newest samples, in a ring of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.algorithms.state import State, need, number

Batch = dict[str, torch.Tensor]


class Replay:
    """Keeps the newest `capacity` samples. The first samples define the columns."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise InputError(f"the capacity of a replay memory must be at least 1 sample, not {capacity}")
        self.capacity = capacity
        self._columns: Batch = {}
        self._next = self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, **columns: NDArray[Any]) -> None:
        """Add samples, by column; they replace the oldest."""
        newest = slice(-self.capacity, None)
        rows = {name: torch.from_numpy(np.ascontiguousarray(column[newest])) for name, column in columns.items()}
        count = len(next(iter(rows.values())))
        if not self._columns:
            self._columns = {
                name: torch.zeros((self.capacity, *new.shape[1:]), dtype=new.dtype) for name, new in rows.items()
            }
        at = (self._next + torch.arange(count)) % self.capacity
        for name, column in self._columns.items():
            if rows[name].shape[1:] != column.shape[1:]:
                raise InputError(
                    f"the column {name} has the shape {tuple(rows[name].shape[1:])} for each sample, "
                    f"but earlier samples have {tuple(column.shape[1:])}"
                )
            column[at] = rows[name]
        self._next = (self._next + count) % self.capacity
        self._size = min(self._size + count, self.capacity)

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        """Draw this many different samples, or all of them if there are fewer."""
        rows = torch.arange(self._size)
        if count < self._size:
            rows = torch.randperm(self._size, generator=generator)[:count]
        return {name: column[rows] for name, column in self._columns.items()}

    def state(self) -> State:
        """Return the samples, and the position at which the next one will be stored."""
        kept: Mapping[str, torch.Tensor] = {f"column/{name}": c[: self._size] for name, c in self._columns.items()}
        return {**kept, "next": number(self._next), "size": number(self._size)}

    def restore(self, state: State) -> None:
        """Replace the samples by saved ones."""
        size, following = int(need(state, "size", "replay memory")), int(need(state, "next", "replay memory"))
        kept = {key.removeprefix("column/"): t for key, t in state.items() if key.startswith("column/")}
        if size > self.capacity or not 0 <= following < self.capacity or any(len(t) != size for t in kept.values()):
            raise InputError(
                f"the saved replay memory has {size} samples, but this one has room for {self.capacity}",
                hint="build the learner as it was when it was saved",
            )
        self._columns = {name: torch.zeros((self.capacity, *t.shape[1:]), dtype=t.dtype) for name, t in kept.items()}
        for name, column in self._columns.items():
            column[:size] = kept[name]
        self._size, self._next = size, following
