"""The states of a job and their legal transitions, and the reasons to stop a run.

    PENDING → STARTING → RUNNING → STOPPING → PENDING … or SUCCEEDED, FAILED, CANCELLED

Each start is a new generation. Whatever a generation reports, saves or returns after its end is ignored.
"""

from __future__ import annotations

from enum import StrEnum

from argosy.errors import ArgosyError


class State(StrEnum):
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in ENDED

    @property
    def live(self) -> bool:
        """Return whether the job has a run that may hold devices."""
        return self in LIVE


ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
LIVE = frozenset({State.STARTING, State.RUNNING, State.STOPPING})
ACTIVE = frozenset(State) - ENDED

LEGAL: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.STARTING, State.SUCCEEDED, State.FAILED, State.CANCELLED}),
    State.STARTING: frozenset({State.RUNNING, State.STOPPING, State.PENDING, State.SUCCEEDED, State.FAILED}),
    State.RUNNING: frozenset({State.STOPPING, State.PENDING, State.SUCCEEDED, State.FAILED}),
    State.STOPPING: frozenset({State.PENDING, State.SUCCEEDED, State.FAILED, State.CANCELLED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}


class Stop(StrEnum):
    """Why a run is stopped; a later member overrules an earlier one."""

    PREEMPTED = "preempted"  # the policy gives its place to another
    MOVED = "moved"  # it continues elsewhere or in another size, which needs a restart
    BUDGET = "budget"  # its time budget is used up: ends as succeeded
    LIMIT = "limit"  # its max_duration is used up: ends as failed
    CANCELLED = "cancelled"
    HURRIED = "hurried"  # cancelled a second time: it gets a few seconds, however long its grace is
    KILLED = "killed"  # cancelled with `--now`: it gets no time at all

    @property
    def cancels(self) -> bool:
        return self in (Stop.CANCELLED, Stop.HURRIED, Stop.KILLED)

    def overrules(self, other: Stop | None) -> bool:
        order = list(Stop)
        return other is None or order.index(self) > order.index(other)


class IllegalTransition(ArgosyError):
    """A transition that is not legal: a bug in the daemon, detected before it is written."""


def check(job: int, old: State, new: State) -> None:
    """Raise IllegalTransition unless the job may go from one state to the other."""
    if old is not new and new not in LEGAL[old]:
        raise IllegalTransition(f"job {job} cannot go from {old} to {new}")
