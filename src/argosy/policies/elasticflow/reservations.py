"""Plan when a job runs at which size, so that it keeps its deadline with as few GPUs as possible.

What is free of one GPU type is a list of periods. A job's *levels* are the sizes that it can have. Its reservation uses
the smallest level that suffices if the job has it from some period on until the deadline (its minimum satisfactory
share, as far as GPUs are free), and the level below before that period.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from argosy.slack import GPU_SLACK, TIME_SLACK_S, WORK_SLACK_S

NOTHING = -1  # the level of a job that holds no GPU


class Level(NamedTuple):
    """One size of a job on one GPU type."""

    gpus: float
    speed: float  # work per second
    workers: int = 0


class Part(NamedTuple):
    """A part of a reservation: the job holds a level from start to end."""

    start: float
    end: float
    level: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """When a job holds which level; `finish` is when its work is done."""

    parts: tuple[Part, ...]
    finish: float
    gpu_s: float

    def level_at_once(self, now: float) -> int:
        """Return the level that the job holds now."""
        return self.parts[0].level if self.parts and self.parts[0].start <= now + TIME_SLACK_S else NOTHING


@dataclass(slots=True)
class FreeGpus:
    """The GPUs of one type that no reservation holds: `free[k]` from `times[k]` until `times[k + 1]`."""

    times: list[float]
    free: list[float] = field(default_factory=list)

    def copy(self) -> FreeGpus:
        return FreeGpus(self.times.copy(), self.free.copy())

    def take(self, levels: Sequence[Level], reservation: Reservation, sign: int = 1) -> None:
        """Count what is reserved as taken, or with `sign` -1 as free again."""
        for part in reservation.parts:
            first, last = self._cut(part.start), self._cut(part.end)
            for k in range(first, last):
                self.free[k] -= sign * levels[part.level].gpus

    def _cut(self, at: float) -> int:
        """Return the number of the period that begins at a time."""
        k = bisect_left(self.times, at - TIME_SLACK_S)
        if k < len(self.times) and self.times[k] <= at + TIME_SLACK_S:
            return k
        self.times.insert(k, at)
        self.free.insert(k, self.free[k - 1])
        return k


def largest_within(levels: Sequence[Level], free: float, most: int) -> int:
    """Return the largest level up to `most` that fits into what is free."""
    return min(most, bisect_right(levels, free + GPU_SLACK, key=lambda level: level.gpus) - 1)


def reserve(
    free: FreeGpus, levels: Sequence[Level], work: float, deadline: float, slot_s: float, begin: float | None = None
) -> Reservation:
    """Plan a job from `begin` on (default: now); if no level suffices, it holds as much as it can until it is done."""
    now = free.times[0] if begin is None else begin
    periods = [k for k, time in enumerate(free.times) if time < deadline and _end(free, k) > now + TIME_SLACK_S]
    for level in range(len(levels)):
        done, end = 0.0, deadline
        for k in reversed(periods):
            start = max(free.times[k], now)
            fits = largest_within(levels, free.free[k], level)
            done += (end - start) * levels[fits].speed if fits >= 0 else 0.0
            end = start
            if done >= work - WORK_SLACK_S:
                return _forward(free, levels, work, slot_s, now, point=start, level=level)
    return _forward(free, levels, work, slot_s, now, point=now, level=len(levels) - 1)


def raised(
    free: FreeGpus, levels: Sequence[Level], work: float, deadline: float, slot_s: float, level: int
) -> Reservation | None:
    """Plan a job that holds a level for the whole first period, and what it then needs; None if that is not free."""
    if levels[level].gpus > free.free[0] + GPU_SLACK:
        return None
    now, until = free.times[0], _end(free, 0)
    needs = work / levels[level].speed
    if now + needs <= until + TIME_SLACK_S:
        end = now + _whole_slots(needs, slot_s)
        return Reservation((Part(now, end, level),), now + needs, (end - now) * levels[level].gpus)
    done = (until - now) * levels[level].speed
    rest = reserve(free, levels, work - done, deadline, slot_s, begin=until)
    gpu_s = rest.gpu_s + (until - now) * levels[level].gpus
    return Reservation((Part(now, until, level), *rest.parts), rest.finish, gpu_s)


def _end(free: FreeGpus, k: int) -> float:
    return free.times[k + 1] if k + 1 < len(free.times) else math.inf


def _whole_slots(seconds: float, slot_s: float) -> float:
    return math.ceil(seconds / slot_s - TIME_SLACK_S) * slot_s if slot_s else seconds


def _forward(
    free: FreeGpus, levels: Sequence[Level], work: float, slot_s: float, now: float, point: float, level: int
) -> Reservation:
    """Fill periods from now on: with the level below before `point`, with the level from there on."""
    parts, gpu_s = [], 0.0
    for k in range(len(free.times)):
        start, end = max(free.times[k], now), _end(free, k)
        if end <= start + TIME_SLACK_S:
            continue
        fits = largest_within(levels, free.free[k], level if start >= point - TIME_SLACK_S else level - 1)
        if fits < 0:
            continue
        needs = work / levels[fits].speed
        if needs <= end - start + TIME_SLACK_S:
            held = min(_whole_slots(needs, slot_s), end - start)
            parts.append(Part(start, start + held, fits))
            return Reservation(tuple(parts), start + needs, gpu_s + held * levels[fits].gpus)
        parts.append(Part(start, end, fits))
        work -= (end - start) * levels[fits].speed
        gpu_s += (end - start) * levels[fits].gpus
    return Reservation(tuple(parts), math.inf, gpu_s)  # even an empty cluster is too small for it
