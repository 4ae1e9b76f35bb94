"""The socket in the home, over which the commands of the home's owner reach the daemon.

A port of the machine may be anybody's once the daemon is gone, and a token sent there is given away. Only the owner can
make a socket in the home, and the system says who listens on it before anything is sent.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from argosy.errors import InputError
from argosy.live.unix_sockets import short_path

_CREDENTIALS = struct.Struct("3i")  # process, user, group


def listen(path: Path) -> socket.socket:
    """Listen there; what a daemon that was killed has left is replaced, so the caller must hold the home's lock."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        path.unlink(missing_ok=True)
        with short_path(path) as short:
            listening.bind(short)
        path.chmod(0o600)
        listening.listen(socket.SOMAXCONN)
    except OSError as problem:
        listening.close()
        hint = "put the home on a local disk: --home FOLDER"
        raise InputError(f"cannot listen on {path}: {problem.strerror}", hint=hint) from None
    return listening


def check_peer(connection: socket.socket, path: Path) -> None:
    """Raise `PermissionError` unless who listens at the other end is root or the owner of the socket's folder."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(content)
    owner = os.stat(path.parent).st_uid
    if user not in (0, owner):
        raise PermissionError(f"user {user} listens on {path}, which should be user {owner}")
