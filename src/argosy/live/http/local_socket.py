"""The socket in the home, over which the commands of the home's owner reach the daemon.

Once the daemon is gone, its port may belong to any program, and a token sent there would be disclosed. Only the owner
can make a socket in the home, and the kernel says who listens on it before anything is sent.
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
    """Listen on a socket. It replaces that of a killed daemon, so the caller must hold the home's lock."""
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
    """Raise PermissionError unless the listening process belongs to root or to the owner of the folder."""
    content = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(content)
    owner = os.stat(path.parent).st_uid
    if user not in (0, owner):
        raise PermissionError(f"user {user} listens on {path}, which should be user {owner}")
