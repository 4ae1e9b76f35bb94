"""Opens Unix sockets with paths of any length, and chooses where a run keeps its own."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

TIMEOUT_S = 5.0
LONGEST_PATH = 100  # of a socket that others open by name; the system allows 107 bytes


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path to the same socket that is short enough for the system (107 bytes)."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connect(path: Path, timeout_s: float = TIMEOUT_S) -> socket.socket:
    """Connect to a socket; calls time out after `timeout_s`, and a full backlog is an error at once."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout_s)
    try:
        with short_path(path) as short:
            connection.connect(short)
    except OSError:
        connection.close()
        raise
    return connection


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def socket_folder(folder: Path, user: str | None) -> Path:
    """Return a folder for the workers' socket: its path must be short, and the run's user must be able to reach it.

    The folder belongs to the daemon's user: whoever can change it could replace the socket by a link.
    """
    if user is None and len(os.fsencode(folder)) + len("/control") <= LONGEST_PATH:
        return folder
    made = Path(tempfile.mkdtemp(prefix="argosy-"))
    if user is not None:
        made.chmod(0o711)
    return made
