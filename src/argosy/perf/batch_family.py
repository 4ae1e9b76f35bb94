"""Jobs whose batch size may change: the speed and the statistical efficiency of a network at each batch size.

A *family* is a network with a range of batch sizes. Each of its sizes is a class of the rate tables, whose rates count
a sample as much as a sample at batch M0, on average over the training. In which part of the training a job is decides
by which factor its rate differs from that average:

    rate(placement, M, part) = throughput(placement, M) · E(M)        E(M) = (harmonic) mean of E(M, part) over parts
                               · E(M, part) / E(M)

So the training takes as long as without parts, and policies that know nothing of batch sizes see right speeds. Jobs
that change their batch themselves at certain points (Accordion's rules, or those of the gradient noise scale) have
parts, too: in each of them a class of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from argosy.errors import TraceError
from argosy.perf.base import Floats, Workers
from argosy.perf.goodput import NoiseScale, efficiency
from argosy.slack import RELATIVE_SLACK

Ints = NDArray[np.int64]
STEPS_PER_DOUBLING = 4  # batch sizes that are tried between two powers of two
PARTS = 20  # of a training, if the noise scale comes from fitted parameters
# columns of the table of parts: the share of the work done at its end, the class of the job (-1: what is chosen), the
# class that the first factor is for, and for each batch of the family a factor, then for each φ
UPTO, CLASS, FIRST_CLASS, FACTORS = range(4)


class StepModel(Protocol):
    """Times of a training step by placement and batch: the iteration model, or measurements."""

    def throughput(
        self, gpu_type: str, workers: Workers, level: int, batch_size: float | None = None, *, min_accumulation: int = 0
    ) -> Floats: ...

    def max_local_batch(self, gpu_type: str) -> float: ...

    def step_times(self, gpu_type: str, workers: int, level: int, local_batch: float) -> tuple[float, float]:
        """Return the seconds of a step that synchronises, and of a pass that does not."""
        ...


class Efficiency(Protocol):
    """The statistical efficiency of a network by batch size and part of the training."""

    @property
    def m0(self) -> float: ...

    @property
    def mmax(self) -> float: ...

    def parts(self, batches: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the end of each part as a share of the work, φ [part, batch], and the efficiency [part, batch]."""
        ...


@dataclass(frozen=True, slots=True)
class FittedEfficiency:
    """The efficiency that follows from fitted noise scales."""

    noise: NoiseScale

    @property
    def m0(self) -> float:
        return self.noise.m0

    @property
    def mmax(self) -> float:
        return self.noise.mmax

    def parts(self, batches: Floats) -> tuple[Floats, Floats, Floats]:
        middle = (np.arange(PARTS) + 0.5) / PARTS
        phi = self.noise.phi(middle[:, None], batches[None, :])
        return (np.arange(PARTS) + 1.0) / PARTS, phi, efficiency(batches, phi, self.m0)


@dataclass(frozen=True, slots=True, eq=False)
class BatchFamily:
    """A network at all batch sizes that its jobs may have. Arrays are by batch, from the smallest to the largest."""

    name: str
    m0: float
    batches: Floats
    throughput: Floats  # [batch, GPU type, k, level], in samples per second
    efficiency: Floats  # [batch], mean over the training
    first_class: int  # the row of its smallest batch in the rate tables
    model: StepModel
    largest_local: tuple[float, ...]  # by GPU type: samples that fit one GPU
    profiled: bool = True  # whether its speed is known before it runs

    def nearest(self, batch: Floats) -> Ints:
        """Return the number of the batch size nearest to each given one."""
        middles = np.sqrt(self.batches[1:] * self.batches[:-1])
        return np.asarray(np.searchsorted(middles, batch), np.int64)


def grid(m0: float, mmax: float, requested: Floats) -> Floats:
    """Return the batch sizes from M0 to the largest: four to a doubling, and those that jobs ask for."""
    top = max(mmax, float(requested.max(initial=m0)))
    count = max(int(np.ceil(np.log2(top / m0) * STEPS_PER_DOUBLING)), 1) + 1
    sizes = np.round(np.geomspace(m0, top, count))
    return np.unique(np.concatenate([sizes, requested[requested >= m0], [m0, top]]))


def throughput(model: StepModel, types: tuple[str, ...], size: int, levels: int, batch: float, m0: float) -> Floats:
    """Return samples per second [type, k, level]; a single GPU with more than M0 samples accumulates at least once."""
    k = np.arange(size + 1)
    forced = int(batch > m0 * (1 + RELATIVE_SLACK))
    rates = np.zeros((len(types), size + 1, levels))
    for i, gpu_type in enumerate(types):
        for level in range(levels):
            rates[i, :, level] = model.throughput(gpu_type, k, level, batch)
            if forced and size >= 1:
                one = np.array([1])
                rates[i, 1, level] = model.throughput(gpu_type, one, level, batch, min_accumulation=1)[0]
    return np.asarray(np.minimum.accumulate(rates, axis=2))


def rows_of_parts(upto: Floats, phi: Floats, of_batch: Floats, first_class: int, width: int) -> Floats:
    """Return the table of parts of a family: in each, φ and the factors by which rates differ from the average."""
    rows, count = np.zeros((len(upto), FACTORS + 2 * width)), of_batch.shape[1]
    rows[:, UPTO], rows[:, CLASS], rows[:, FIRST_CLASS] = upto, -1, first_class
    rows[:, FACTORS : FACTORS + count] = of_batch / mean_efficiency(upto, of_batch)
    rows[:, FACTORS + width : FACTORS + width + count] = phi
    rows[-1, UPTO] = 1.0
    return rows


def mean_efficiency(upto: Floats, of_batch: Floats) -> Floats:
    """Return the efficiency by batch over the whole training: that with which its time is right."""
    share = np.diff(np.concatenate([[0.0], upto]))
    return np.asarray(share.sum() / (share[:, None] / of_batch).sum(axis=0))


def read_schedule(text: str, job: str) -> tuple[tuple[float, float], ...]:
    """Return (batch, share of the work from which it applies) of a text such as `32|64@0.3|128@0.6`."""
    steps: list[tuple[float, float]] = []
    for number, step in enumerate(text.split("|")):
        batch, at, since = step.partition("@")
        try:
            found = (float(batch), float(since) if at else 0.0)
        except ValueError:
            found = (-1.0, 0.0)
        if not (0 < found[0] < 1e9 and 0 <= found[1] < 1) or (number == 0) != (found[1] == 0):
            raise TraceError(
                f"job {job!r}: the batch sizes {text!r} cannot be read at {step!r}",
                hint="write them like 32|64@0.3|128@0.6: from 0.3 of the work on, the batch is 64",
            )
        if steps and found[1] <= steps[-1][1]:
            raise TraceError(f"job {job!r}: the batch sizes {text!r} are not in order of the work done")
        steps.append(found)
    return tuple(steps)


def rows_of_schedule(starts: Floats, classes: Ints, width: int) -> Floats:
    """Return the table of parts of a job that changes its batch itself."""
    rows = np.full((len(starts), FACTORS + 2 * width), np.nan)
    rows[:, UPTO], rows[:, CLASS], rows[:, FIRST_CLASS] = np.append(starts[1:], 1.0), classes, classes
    rows[:, FACTORS : FACTORS + width] = 1.0
    return rows
