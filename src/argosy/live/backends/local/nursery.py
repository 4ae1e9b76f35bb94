"""The supervisor's line to the nursery that forks its workers: warm from a zygote, or cold from the supervisor."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argosy.live.backends.local import zygote
from argosy.live.backends.local.sockets import connect


class Nursery:
    """Passes on what the nursery says: `on_message` gets each message, and {"op": "gone"} when it has died."""

    def __init__(self, connection: socket.socket, *, warm: bool) -> None:
        self.warm = warm
        self.pid = 0  # known once it has said so
        self.door = zygote.Door(connection)
        self.on_message: Callable[[dict[str, Any]], None] = lambda message: None

    @classmethod
    def from_zygote(cls, path: Path) -> Nursery | None:
        """It answers when the zygote is warm. None: there is no zygote."""
        try:
            connection = connect(path)
            connection.sendall(b"nursery\n")
        except OSError:
            return None
        return cls(connection, warm=True)

    @classmethod
    def forked(cls, user: str | None) -> Nursery:
        """A cold one: a child of this process, which must have no threads."""
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            _leave_everything(keep=theirs.fileno())
            if user is not None:
                _switch_to(user)
            zygote.Nursery(theirs).serve()
        theirs.close()
        return cls(ours, warm=False)

    def readable(self) -> None:
        """Called by the event loop."""
        messages: list[dict[str, Any]] | None = self.door.receive()
        if messages is None:
            messages = [{"op": "gone"}]
        for message in messages:
            if message["op"] == "nursery":
                self.pid = message["pid"]
            self.on_message(message)

    def start(self, request: dict[str, Any], output: int) -> None:
        self._send({**request, "op": "start", "fds": 1}, [output])

    def start_store(self, name: int) -> None:
        self._send({"op": "store", "id": name}, [])

    def close(self) -> None:
        """It kills whatever is left below it, and ends."""
        self.door.connection.close()

    def _send(self, message: dict[str, Any], fds: list[int]) -> None:
        data = json.dumps(message).encode() + b"\n"
        try:
            sent = socket.send_fds(self.door.connection, [data], fds) if fds else 0
            self.door.connection.sendall(data[sent:])
        except OSError:
            pass  # it has died: the event loop is about to hear of it


def _leave_everything(keep: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    os.closerange(3, keep)
    os.closerange(keep + 1, 4096)


def _switch_to(user: str) -> None:
    account = pwd.getpwnam(user)
    os.initgroups(user, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
