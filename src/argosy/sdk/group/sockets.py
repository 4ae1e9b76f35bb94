"""Finds sockets that other code opened in this process, and shuts them down so that blocked calls return.

Processes that the script forks, such as those of a data loader, close their copies of the sockets. Otherwise the
connections of a killed worker would stay open in its children, and the other workers would wait for a dead process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

_closed_in_children: dict[int, str] = {}  # by descriptor: the identity of the socket


def open_sockets() -> dict[int, str]:
    """Return all sockets of this process: by descriptor an identity, which differs when a number is reused."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        identity = _identity(int(name))
        if identity is not None:
            found[int(name)] = identity
    return found


def shut_down(sockets: dict[int, str]) -> None:
    """Make calls that wait on these sockets fail. The descriptors stay open, because they belong to other code."""
    for descriptor, identity in sockets.items():
        if _identity(descriptor) != identity:
            continue
        try:
            with socket.socket(fileno=os.dup(descriptor)) as copy:
                # listening sockets are left alone: gloo would end the process if one of them failed
                if not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # it is not connected, or the other end has closed it


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
