"""Finds sockets that other code opened in this process, and shuts them down so that blocked calls return.

Children that the script forks (a data loader's processes) close their copies. Otherwise a killed worker's connections
would stay open in its children, and the survivors would wait for a dead process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

_closed_in_children: dict[int, str] = {}  # descriptor → what it is


def open_sockets() -> dict[int, str]:
    """Return the identity of every socket of this process by descriptor; a reused number has another identity."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        identity = _identity(int(name))
        if identity is not None:
            found[int(name)] = identity
    return found


def shut_down(sockets: dict[int, str]) -> None:
    """Make calls that wait on these sockets fail. The descriptors stay open: they belong to other code."""
    for descriptor, identity in sockets.items():
        if _identity(descriptor) != identity:
            continue
        try:
            with socket.socket(fileno=os.dup(descriptor)) as copy:
                # not listening sockets: gloo would end the process if one of them failed
                if not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # not connected, or closed by the other side in the meantime


def keep_from_children(sockets: dict[int, str]) -> None:
    _closed_in_children.update(sockets)


def forget(sockets: Iterable[int]) -> None:
    for descriptor in sockets:
        _closed_in_children.pop(descriptor, None)


def _identity(descriptor: int) -> str | None:
    try:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    return target if target.startswith("socket:") else None


def _in_child() -> None:
    for descriptor, identity in _closed_in_children.items():
        if _identity(descriptor) == identity:
            os.close(descriptor)
    _closed_in_children.clear()


os.register_at_fork(after_in_child=_in_child)
