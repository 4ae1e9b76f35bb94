"""Model machines whose speeds differ and change over time: a hidden speed for every node and tick.

    log speed = static + drift(t) − log(slow-down of an episode),   static ~ N(0, static_sd)
    drift     = AR(1) with coefficient rho per tick and stationary deviation drift_sd
    episodes  = a Poisson process per node; each slows it by a factor for some hours
    storms    = a Poisson process per rack, where there are storms; each slows most machines of the rack

A synchronous job runs at the speed of its slowest member. Time is divided into blocks with their own random
streams and only the drift at block borders is kept, so that the speeds of any stretch of time can be computed
in any order with the same result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.perf.base import Floats
from argosy.seeding import stream

Ints = NDArray[np.int64]
WEEK_S = 7 * 24 * 3600.0
BLOCK_TICKS = 1008  # a week of ten-minute ticks


@dataclass(frozen=True, slots=True)
class Storms:
    """Slow times that most machines of a rack share, such as a broken fan or a crowded switch."""

    racks: Ints  # of each node
    rate_per_week: float = 10.5  # of each rack
    share: float = 0.75  # chance of each machine of the rack to be slowed
    factor: tuple[float, float] = (2.0, 4.0)
    spread: float = 0.15  # how far a machine's factor lies from that of the storm, at most
    hours: tuple[float, float] = (2.0, 8.0)

    def __post_init__(self) -> None:
        if self.rate_per_week < 0 or not 0 <= self.share <= 1 or not 0 <= self.spread < 1:
            raise InputError(f"storms need a rate ≥ 0, a share of 0..1 and a spread of 0..1: {self}")
        if not 1 <= self.factor[0] <= self.factor[1] or not 0 < self.hours[0] <= self.hours[1]:
            raise InputError(f"a storm has factors ≥ 1 and lasts more than 0 hours: {self.factor}, {self.hours}")


@dataclass(slots=True)
class MachineSpeeds:
    """Multiplicative speeds, around 1.0."""

    nodes: int
    seed: int
    static_sd: float = 0.05
    drift_sd: float = 0.05
    rho: float = 0.95
    tick_s: float = 600.0
    episode_rate_per_week: float = 1.0
    episode_factor: tuple[float, float] = (1.5, 3.0)
    episode_hours: tuple[float, float] = (1.0, 6.0)
    storms: Storms | None = None
    _borders: list[Floats] = field(init=False, repr=False)  # drift just before each block
    _block: tuple[int, Floats] = field(init=False, repr=False)  # the block computed last

    def __post_init__(self) -> None:
        longest_s = BLOCK_TICKS * self.tick_s
        if self.nodes < 1 or not 0 <= self.rho < 1 or min(self.static_sd, self.drift_sd) < 0 or self.tick_s <= 0:
            raise InputError(f"machine speeds need nodes ≥ 1, 0 ≤ rho < 1, deviations ≥ 0 and tick_s > 0: {self}")
        if not 1 <= self.episode_factor[0] <= self.episode_factor[1] or self.episode_rate_per_week < 0:
            raise InputError(f"a slow episode has factors ≥ 1 and a rate ≥ 0: {self.episode_factor}")
        if not 0 < self.episode_hours[0] <= self.episode_hours[1] or self.episode_hours[1] * 3600 > longest_s:
            raise InputError(f"episode_hours must lie in 0..{longest_s / 3600:g}, are {self.episode_hours}")
        if self.storms is not None and (
            len(self.storms.racks) != self.nodes or self.storms.hours[1] * 3600 > longest_s
        ):
            raise InputError(
                f"storms need the rack of each of the {self.nodes} nodes, and last {longest_s:g} s at most"
            )
        self._borders = [stream(self.seed, "speed.drift").normal(0.0, self.drift_sd, self.nodes)]
        self._block = (-1, np.empty((0, self.nodes)))

    def speeds(self, first_tick: int, ticks: int) -> Floats:
        """Return the speeds [tick, node] for `ticks` ticks from `first_tick` on."""
        if first_tick < 0 or ticks < 0:
            raise InputError(f"ticks are counted from 0: first_tick {first_tick}, ticks {ticks}")
        out = np.empty((ticks, self.nodes))
        done = 0
        while done < ticks:
            block, offset = divmod(first_tick + done, BLOCK_TICKS)
            part = self._speeds_of(block)[offset : offset + ticks - done]
            out[done : done + len(part)] = part
            done += len(part)
        return out

    def _speeds_of(self, block: int) -> Floats:
        if self._block[0] != block:
            while len(self._borders) <= block:
                self._borders.append(self._drift(len(self._borders) - 1)[-1])
            static = stream(self.seed, "speed.static").normal(0.0, self.static_sd, self.nodes)
            self._block = (block, np.exp(static + self._drift(block)) / self._slowdown(block))
        return self._block[1]

    def _drift(self, block: int) -> Floats:
        from scipy.signal import lfilter

        noise = stream(self.seed, "speed.drift", 1 + block).normal(
            0.0, self.drift_sd * np.sqrt(1 - self.rho**2), (BLOCK_TICKS, self.nodes)
        )
        filtered, _ = lfilter([1.0], [1.0, -self.rho], noise, axis=0, zi=(self.rho * self._borders[block])[None, :])
        return np.asarray(filtered)

    def _slowdown(self, block: int) -> Floats:
        """Return the slow-down by episodes of this block and of the one before; the strongest counts."""
        slow = np.ones((BLOCK_TICKS, self.nodes))
        for start_block in (block - 1, block):
            if start_block < 0:
                continue
            random = stream(self.seed, "speed.episodes", start_block)
            counts = random.poisson(self.episode_rate_per_week * BLOCK_TICKS * self.tick_s / WEEK_S, self.nodes)
            total = int(counts.sum())
            begin = (random.random(total) + start_block - block) * BLOCK_TICKS
            end = begin + random.uniform(*self.episode_hours, total) * 3600 / self.tick_s
            factor = random.uniform(*self.episode_factor, total)
            for node, first, last, by in zip(np.repeat(np.arange(self.nodes), counts), begin, end, factor):
                span = slow[max(0, int(first)) : max(0, int(np.ceil(last))), node]
                np.maximum(span, by, out=span)
            if self.storms is not None:
                self._add_storms(self.storms, slow, block, start_block)
        return slow

    def _add_storms(self, storms: Storms, slow: Floats, block: int, start_block: int) -> None:
        """Slow machines by the storms that begin in `start_block`; of several slow-downs the strongest counts."""
        random = stream(self.seed, "speed.storms", start_block)
        racks = int(storms.racks.max()) + 1
        for rack, count in enumerate(random.poisson(storms.rate_per_week * BLOCK_TICKS * self.tick_s / WEEK_S, racks)):
            for _ in range(int(count)):
                begin = (random.random() + start_block - block) * BLOCK_TICKS
                end = begin + random.uniform(*storms.hours) * 3600 / self.tick_s
                hit = random.random(self.nodes) < storms.share
                factor = random.uniform(*storms.factor) * random.uniform(
                    1 - storms.spread, 1 + storms.spread, self.nodes
                )
                by = np.where(hit & (storms.racks == rack), np.clip(factor, *storms.factor), 1.0)
                span = slow[max(0, int(begin)) : max(0, int(np.ceil(end)))]
                np.maximum(span, by, out=span)
