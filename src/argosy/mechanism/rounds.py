"""Rounds: realising shares of time.

A policy that thinks in shares says what fraction of time each job should run on each GPU type. Time is cut into rounds;
in each one the jobs furthest behind their share run, and over many rounds everybody receives what was asked for.

    priority(j, t) = X(j, t) / (time j received on t / time of all on t since shares last changed)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NEW = 1e9  # a job that has received nothing yet comes first, in proportion to its share


@dataclass(frozen=True, slots=True)
class Shares:
    """Fraction of time each job of the view (rows) runs on each GPU type (columns)."""

    fraction: Floats


@dataclass(frozen=True, slots=True)
class Selection:
    """Who runs in the round: a key per job (smaller first), the GPUs it gets, and on which type."""

    key: Floats
    workers: Ints
    types: Ints


class Rounds:
    """Remembers what jobs received, by their index, and selects those that run next."""

    def __init__(self, round_s: float, capacity: Ints) -> None:
        self.round_s = round_s
        self._capacity = capacity  # GPUs per type
        self._received: dict[int, Floats] = {}
        self._running: dict[int, int] = {}  # index → type, in the current round
        self._since = 0.0

    def next_boundary(self, now: float) -> float:
        """The begin of the next round; rounding must not make it the present one."""
        return (math.floor(now / self.round_s + 1e-9) + 1.0) * self.round_s

    def is_boundary(self, now: float) -> bool:
        return abs(now / self.round_s - round(now / self.round_s)) < 1e-9

    def account(self, now: float) -> None:
        """Credit the jobs that were selected with the time since then."""
        span, self._since = now - self._since, now
        for index, gpu_type in self._running.items():
            received = self._received.setdefault(index, np.zeros(len(self._capacity)))
            received[gpu_type] += span

    def forget(self, active: Ints) -> None:
        """Drop jobs that have left, and start counting anew: shares have changed."""
        self._received = {int(i): np.zeros(len(self._capacity)) for i in active if int(i) in self._received}

    def select(self, index: Ints, gpus: Floats, accepts: Ints, shares: Shares) -> Selection:
        """Take (job, type) pairs by priority while the type has GPUs left; each job once."""
        n, types = shares.fraction.shape
        received = np.array([self._received.get(int(i), np.zeros(types)) for i in index]).reshape(n, types)
        total = received.sum(axis=0)
        share_received = received / np.where(total > 0, total, 1.0)
        priority = shares.fraction * np.where(share_received > 0, 1.0 / np.maximum(share_received, 1e-12), NEW)
        left = self._capacity.astype(float).copy()
        workers, chosen = np.zeros(n, np.int64), np.zeros(n, np.int64)
        key = np.full(n, np.inf)
        order = np.lexsort((np.repeat(index, types), -priority.ravel()))
        for place, flat in enumerate(order):
            row, gpu_type = divmod(int(flat), types)
            if priority[row, gpu_type] <= 0:
                break
            if workers[row] or gpus[row] > left[gpu_type] + 1e-9 or not accepts[row] >> gpu_type & 1:
                continue
            left[gpu_type] -= gpus[row]
            workers[row], chosen[row], key[row] = max(1, int(gpus[row])), 1 << gpu_type, place
        self._running = {int(i): int(t).bit_length() - 1 for i, t in zip(index, chosen) if t}
        return Selection(key, workers, chosen)
