"""Define what all performance models share: locality levels, their protocol, how a network scales sync times."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from argosy.cluster.cluster import Network

Workers = int | NDArray[np.int64]  # a number of GPUs, or a column of numbers
Floats = NDArray[np.float64]
Unit = Literal["samples", "steps", "relative"]


class Level(IntEnum):
    """The widest boundary that a placement crosses."""

    ISLAND = 0  # GPUs of one socket, switch or NVLink group
    NODE = 1
    RACK = 2  # several nodes of one rack
    CLUSTER = 3  # several racks


@runtime_checkable
class PerfModel(Protocol):
    """A performance model, which gives the throughput of a training job on a placement.

    `throughput` is the total over the job, in `unit` per second: "samples"; "steps" where the source counts
    mini-batches; "relative" where only ratios are known (1.0 = one reference GPU). `batch_size` is the batch
    over all GPUs unless `per_gpu_batch`; None takes the model's own default.
    """

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> Unit: ...

    @property
    def per_gpu_batch(self) -> bool: ...

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Return the GPU types it was measured on; others are estimated from the ratios of type speeds."""
        ...

    def throughput(self, gpu_type: str, workers: Workers, level: int, batch_size: float | None = None) -> Floats: ...

    def max_local_batch(self, gpu_type: str) -> float:
        """Return the largest batch that fits one GPU; infinite where unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Links:
    """Factors for sync times at boundaries other than those measured: inside a node, and across nodes of one rack.

    A factor multiplies a sync time. The cluster default follows `Network`'s default: 100 over 25 Gb/s.
    """

    island: float = 1.0  # for GPUs of one island, relative to the time inside a node; at most 1
    cluster: float = 4.0  # for nodes of different racks, relative to the time across nodes; at least 1

    @classmethod
    def of(cls, network: Network) -> Links:
        """Return the factors of a network; sync time is inverse to bandwidth, and a wider boundary is never faster."""
        inner = network.intra_island_gbps or network.intra_node_gbps
        return cls(
            island=min(1.0, network.intra_node_gbps / inner),
            cluster=max(1.0, network.intra_rack_gbps / network.cross_rack_gbps),
        )


USUAL_LINKS = Links()
