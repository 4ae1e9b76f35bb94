"""Counts and limits connections, so that the daemon keeps descriptors for its own work, whatever clients do.

A connection either waits for its client (for a request, the rest of one, or for room to send the response) or is being
served. When there are too many, the one that has waited longest is dropped; one that is being served never is.
"""

from __future__ import annotations

import resource
import time
from asyncio import BaseTransport
from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Protocol

DESCRIPTORS = 8192  # how many the daemon asks the system for
OWN_SHARE = 0.5  # of all descriptors: for the database, logs, runs and their processes
MOST_CONNECTIONS = 1000


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections there may be, and how long each may keep the daemon waiting."""

    total: int = MOST_CONNECTIONS
    per_address: int = 250
    head_s: float = 10.0  # until the head of a request is complete, from the connection or its first byte
    idle_s: float = 30.0  # between two requests
    body_s: float = 20.0  # until the body is complete …
    body_bytes_per_s: float = 16 * 1024.0  # … and as much longer as it takes at this rate
    unread_s: float = 60.0  # until a client that has stopped reading a response continues
    head_bytes: int = 64 * 1024


def raise_descriptor_limit(wanted: int = DESCRIPTORS) -> int:
    """Raise the limit of descriptors as far as the system allows; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == unlimited else soft


def most_connections(descriptors: int, asked: int = MOST_CONNECTIONS) -> int:
    """Return how many connections leave the daemon's own work its share of the descriptors."""
    return max(1, min(asked, int(descriptors * (1 - OWN_SHARE))))


def address_of(transport: BaseTransport) -> str:
    """Return what a connection is counted for: an IPv4 address, an IPv6 /64 network, or "" for a Unix socket."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return ""
    found = ip_address(peer[0].partition("%")[0])
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))


class Connection(Protocol):
    """A connection that is counted. `address` is empty for clients of a Unix socket."""

    address: str
    deadline: float  # on the clock of `Connections`; valid while it waits for its client

    def __hash__(self) -> int: ...

    def drop(self) -> None:
        """End the connection at once."""


class Connections:
    """All connections of a server; those that wait for their clients are ordered by how long they have waited."""

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
        """Admit a connection, dropping another if need be; return False if all others are being served."""
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
        """Wait for the client, for at most so many seconds."""
        if connection in self._all:
            self.work(connection)  # it goes to the end of the waiting ones
            connection.deadline = self.now() + seconds
            self._waiting[connection] = None
            self._waiting_of.setdefault(connection.address, {})[connection] = None

    def work(self, connection: Connection) -> None:
        """Note that the daemon is serving the connection."""
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
        """Drop connections whose clients have kept the daemon waiting for too long."""
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
