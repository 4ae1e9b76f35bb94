"""Finds the user at the other end of a local connection, because gloo does not check who connects.

Every user of this machine can connect to the port on which a worker waits for the others of its group, and so could
pose as one of them. The kernel's table of connections names the owner of each end.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path

TABLE = Path("/proc/net/tcp")
ESTABLISHED = "01"


def strangers(descriptors: Iterable[int], table: Path = TABLE) -> set[int]:
    """Return the ids of other users at the other ends of these sockets."""
    ends = {end for descriptor in descriptors if (end := _other_end(descriptor)) is not None}
    if not ends:
        return set()
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:  # this system has no such table
        return set()
    found = set()
    for line in lines:
        _, local, remote, state, _, _, _, uid, *_ = line.split()
        if (local, remote) in ends and state == ESTABLISHED:
            found.add(int(uid))
    return found - {os.getuid()}


def _other_end(descriptor: int) -> tuple[str, str] | None:
    """Return the peer's address and ours, in the notation of the table; None if it is not an IPv4 connection."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            if copy.family != socket.AF_INET:
                return None
            return _notation(*copy.getpeername()), _notation(*copy.getsockname())
    except OSError:
        return None


def _notation(address: str, port: int) -> str:
    return f"{socket.inet_aton(address)[::-1].hex().upper()}:{port:04X}"
