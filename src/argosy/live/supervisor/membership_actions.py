"""The types that `membership` works with: workers, actions, and rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class WorkerState(IntEnum):
    """The states of a worker, in the order in which it goes through them."""

    STARTING = 0  # the process runs, but its SDK has not connected
    HELLO = 1  # its SDK has connected
    READY = 2  # it has reached its first batch
    MEMBER = 3  # it is in the newest plan
    LEAVING = 4  # it was in a plan, and is not in the newest


@dataclass(slots=True)
class Worker:
    """A worker process, as membership sees it."""

    number: int
    slot: str
    heard: float
    state: WorkerState = WorkerState.STARTING
    step: int = -1
    has_state: bool = False
    waits: bool | None = None  # whether it waits for other workers within a step; None: unknown


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
    leavers: tuple[int, ...] = ()  # members of the former plan that are not in this one
    recover: bool = False
    batch: int | None = None  # samples of a step, if the policy chooses them


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

    hang_s: float = 30.0  # a worker that sends no heartbeat for this long is killed
    stuck_s: float = 7200.0  # the training hangs if no step is completed for this long, although workers are alive
    patience_s: float = 20.0  # new workers that are not ready after this time are not waited for
    leave_s: float = 10.0  # a leaver that has not ended after this time is killed
    broken_s: float = 1.0  # a broken group that has lost no member is formed again after this time
    replacements: int = 5  # the run fails if more lost workers than this must be replaced
    window_s: float = 600.0  # within this time
