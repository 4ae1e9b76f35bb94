"""A table of an engine's active jobs, for its hosts, for explanations and for learning.

Policies see a `View`, which shows them only what they declare. This table shows every column, read-only, under the
same names, and a few more (`argosy.mechanism.kernels.layout` lists them). So only the mechanism and the simulator
need to know in which matrix a value is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import Part
from argosy.mechanism.devices import joined
from argosy.mechanism.kernels import layout as L

if TYPE_CHECKING:
    from argosy.sim.engine import Engine


class JobTable:
    """Columns of the active jobs as attributes (`table.state`, `table.held`, …); row r is job `table.index[r]`."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __len__(self) -> int:
        return int(self._engine.world.si[L.ACTIVE])

    def __getattr__(self, name: str) -> NDArray[Any]:
        w = self._engine.world
        if name in L.COLUMNS_F:
            column: NDArray[Any] = w.jf[L.COLUMNS_F[name], : w.si[L.ACTIVE]]
        elif name in L.COLUMNS_I:
            column = w.ji[L.COLUMNS_I[name], : w.si[L.ACTIVE]]
        else:
            columns = ", ".join([*L.COLUMNS_F, *L.COLUMNS_I])
            raise AttributeError(f"there is no column {name!r}; the columns are {columns}")
        column.flags.writeable = False
        return column

    def row_of(self, index: int) -> int:
        """Return the row of the job with this index, or -1 if it is not active."""
        return int(self._engine.world.so[index])

    def rows_of(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of several jobs, -1 for those that are not active."""
        return self._engine.world.so[np.asarray(indices, np.int64)]

    def present(self) -> NDArray[np.bool_]:
        """Return which rows hold a job; a job that has just ended may keep its row until the clock advances."""
        index = self.index
        return np.asarray(self._engine.world.so[index] == np.arange(len(index)))

    def parts(self, row: int) -> list[Part]:
        """Return what the job in this row holds, node by node."""
        en, parts = self._engine.world.en, list[Part]()
        e = int(self._engine.world.ji[L.HEAD, row])
        while e >= 0:
            _, node, word, mask, milli, servers, e, *_ = en[e].tolist()
            devices = joined(word, mask)
            if parts and parts[-1].node == node:  # another word of the same node
                last = parts.pop()
                devices, milli, servers = last.devices | devices, max(last.milli, milli), last.servers + servers
            parts.append(Part(node, devices, milli, servers))
        return parts
