"""Leases: an agent may run a session's workers only as long as the head has recently answered one of its beats.

The agent sends numbered beats and notes when it sent each one. The head echoes the number. The agent's lease then lasts
until the time at which *it sent that beat*, plus the lease's length. The echo was written after the beat was sent, so
the lease always ends before the head's time of its last echo plus that length, however late the echo arrives. So the
head needs no answer to know when a host that it cannot reach has stopped: it waits, and adds a margin for the kill.

Both sides measure durations with a clock that only goes forward, and that counts the time in which a host sleeps. The
hosts' dates need not agree.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from argosy.cluster.agent_times import LEASE_S, MARGIN_S, SILENCE_S, check_times


def now() -> float:
    """Return the seconds since this host has started, with those in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times, in seconds, that all hosts of a cluster agree on."""

    silence: float = SILENCE_S  # a node that sends no beat for this long is lost to a run, which goes on without it
    lease: float = LEASE_S  # an agent that gets no echo for this long kills its workers
    margin: float = MARGIN_S  # until all of them are dead

    def __post_init__(self) -> None:
        check_times(self.silence, self.lease, self.margin)

    @property
    def beat(self) -> float:
        return min(self.silence, self.lease) / 8

    @property
    def fence(self) -> float:
        """Return how long after the last echo the workers of an unreachable node are surely dead."""
        return self.lease + self.margin

    def plain(self) -> dict[str, Any]:
        return asdict(self)


class Lease:
    """The agent's side: the lease of one session."""

    def __init__(self, times: LeaseTimes) -> None:
        self._times, self._number = times, 0
        self._sent: dict[int, float] = {}
        self.deadline = float("-inf")  # there is no lease before the first echo

    def beat(self) -> int:
        """Return the number of the next beat, which the caller sends now."""
        self._number += 1
        self._sent[self._number] = now()
        return self._number

    def renew(self, number: object) -> None:
        """Extend the lease, because the head has echoed this beat."""
        if not isinstance(number, int) or number not in self._sent:
            return
        self.deadline = max(self.deadline, self._sent[number] + self._times.lease)
        self._sent = {one: at for one, at in self._sent.items() if one > number}

    @property
    def expired(self) -> bool:
        return now() >= self.deadline


class Echoes:
    """The head's side: when the node was heard last, and when its workers are surely dead if it stays silent."""

    def __init__(self, times: LeaseTimes) -> None:
        self._times = times
        self.heard = self.echoed = now()

    def echo(self) -> None:
        """Note, before it is sent, that a beat is echoed."""
        self.heard = self.echoed = now()

    @property
    def silent(self) -> bool:
        return now() - self.heard > self._times.silence

    @property
    def fenced(self) -> bool:
        """Return whether the lease of a node that was echoed no more has ended, and its workers are dead."""
        return now() >= self.echoed + self._times.fence
