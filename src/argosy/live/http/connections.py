"""Who is connected, and how many may be: the daemon keeps descriptors for its own work, whatever clients do.

A connection either waits for its client (for a request, the rest of one, or for room to send the answer) or is being
worked for. When there are too many, the one that has waited longest gives way; one that is worked for never does.
"""

from __future__ import annotations

import resource
import time
from asyncio import BaseTransport
from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Protocol

DESCRIPTORS = 8192  # as many as the daemon asks for, if it may
OWN_SHARE = 0.5  # of all descriptors: for the database, logs, runs and their processes
MOST_CONNECTIONS = 1000


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be, and how long each may keep the daemon waiting."""

    total: int = MOST_CONNECTIONS
    per_address: int = 250
    head_s: float = 10.0  # until the head of a request is complete, counted from the connection or its first byte
    idle_s: float = 30.0  # between two requests
    body_s: float = 20.0  # until the body is complete …
    body_bytes_per_s: float = 16 * 1024.0  # … and as much longer as it takes at this rate
    unread_s: float = 60.0  # until a client reads on that has stopped to read an answer
    head_bytes: int = 64 * 1024


def raise_descriptor_limit(wanted: int = DESCRIPTORS) -> int:
    """Allow this process as many descriptors as wanted, if the system does; how many it may have now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == unlimited else soft


def most_connections(descriptors: int, asked: int = MOST_CONNECTIONS) -> int:
    """How many connections leave the daemon's own work its share of the descriptors."""
    return max(1, min(asked, int(descriptors * (1 - OWN_SHARE))))


def address_of(transport: BaseTransport) -> str:
    """Whom a connection is counted for: an IPv4 address, the /64 network of an IPv6 one, nobody on a Unix socket."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return ""
    found = ip_address(peer[0].partition("%")[0])
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))


class Connection(Protocol):
    """What is counted. `address` is empty for those that are not counted by address: clients of a Unix socket."""

    address: str
    deadline: float  # on the clock of `Connections`; counts while it waits for its client

    def __hash__(self) -> int: ...

    def drop(self) -> None:
        """End it at once."""


class Connections:
    """All connections of the daemon; those that wait for their clients in the order in which they began to."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.now = time.monotonic
        self._all: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._waiting: dict[Connection, None] = {}
        self._waiting_of: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, connection: Connection) -> bool:
        """Let a connection in, if need be in the place of another; False if all others are being worked for."""
        address = connection.address
        if address and self._by_address[address] >= self.limits.per_address:
            if not self._make_room(self._waiting_of.get(address, {})):
                return False
        elif len(self._all) >= self.limits.total and not self._make_room(self._waiting):
            return False
        self._all.add(connection)
        self._by_address[address] += 1
        self.wait(connection, self.limits.head_s)
        return True

    def wait(self, connection: Connection, seconds: float) -> None:
        """From now on it is its client's turn, for at most so many seconds."""
        if connection in self._all:
            self.work(connection)  # it goes to the end of those who wait
            connection.deadline = self.now() + seconds
            self._waiting[connection] = None
            self._waiting_of.setdefault(connection.address, {})[connection] = None

    def work(self, connection: Connection) -> None:
        """From now on it is the daemon's turn."""
        if connection in self._waiting:
            del self._waiting[connection]
            of_address = self._waiting_of[connection.address]
            del of_address[connection]
            if not of_address:
                del self._waiting_of[connection.address]

    def leave(self, connection: Connection) -> None:
        if connection in self._all:
            self.work(connection)
            self._all.remove(connection)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def drop_late(self) -> None:
        """End those whose clients have kept the daemon waiting for too long."""
        now = self.now()
        for connection in [found for found in self._waiting if found.deadline < now]:
            self._drop(connection)

    def drop_all(self) -> None:
        for connection in list(self._all):
            self._drop(connection)

    def _make_room(self, waiting: dict[Connection, None]) -> bool:
        oldest = next(iter(waiting), None)
        if oldest is not None:
            self._drop(oldest)
        return oldest is not None

    def _drop(self, connection: Connection) -> None:
        self.leave(connection)
        connection.drop()
