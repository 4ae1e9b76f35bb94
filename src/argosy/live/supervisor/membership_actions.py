"""The workers that membership knows, the actions it decides on, and its rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class WorkerState(IntEnum):
    """How far a worker has come, in this order."""

    STARTING = 0  # the process runs, but its SDK has not connected
    HELLO = 1
    READY = 2  # has reached its first batch
    MEMBER = 3
    LEAVING = 4


@dataclass(slots=True)
class Worker:
    """A worker process, as membership sees it."""

    number: int
    slot: str
    heard: float
    state: WorkerState = WorkerState.STARTING
    step: int = -1
    has_state: bool = False
    waits: bool | None = None  # whether it waits for the others within a step; None: it has not said


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker on a slot."""

    number: int
    slot: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Send a plan to its members, and to those that leave."""

    version: int
    members: tuple[int, ...]  # in rank order
    leavers: tuple[int, ...] = ()  # they must be told of the plan too
    recover: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a worker."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Fail:
    """End the run as failed."""

    why: str


Action = Start | Publish | Kill | Fail


@dataclass(slots=True)
class Rules:
    """Time limits, and how many lost workers are replaced."""

    hang_s: float = 30.0  # a worker without a heartbeat for so long hangs
    stuck_s: float = 7200.0  # a training hangs if no step is completed for so long, although its workers live
    patience_s: float = 20.0  # newcomers that are not ready by then are not waited for
    leave_s: float = 10.0  # a leaver that has not gone by then is killed
    broken_s: float = 1.0  # a broken group in which nobody has died is formed again after so long
    replacements: int = 5  # at most so many lost workers are replaced …
    window_s: float = 600.0  # … within so many seconds
