"""A process of another user is not accepted as a worker of the group."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.sdk.group.peers import strangers
from argosy.sdk.group.process_group import Group, GroupBroken

CONNECT = """
import socket, sys
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
line.sendall(b"connected")
line.recv(1)
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        yield found


def connected(listener: socket.socket, uid: int | None = None) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    python = sys.executable if uid is None else "/usr/bin/python3"
    words = [python, "-c", CONNECT, str(listener.getsockname()[1])]
    other = subprocess.Popen(words, user=uid, extra_groups=None if uid is None else [], cwd="/")
    line, _ = listener.accept()
    assert line.recv(9) == b"connected"
    return line, other


def test_our_own_processes_are_no_strangers(listener: socket.socket) -> None:
    line, other = connected(listener)
    with line, other:
        assert strangers([line.fileno(), listener.fileno(), 0]) == set()
        line.close()


@pytest.mark.skipif(os.getuid() != 0 or not Path("/usr/bin/python3").exists(), reason="needs a second user")
def test_somebody_elses_process_breaks_the_group_before_anything_is_said(listener: socket.socket) -> None:
    group = Group(None, 0, 1)
    with pytest.raises(GroupBroken, match="another user"), group.noting_sockets():
        line, other = connected(listener, 65534)
    assert line.recv(1) == b"", "it was shut"
    line.close()
    assert other.wait(10) == 0
