"""The supervisor's connection to its spawner, which forks the workers; a zygote or the supervisor has forked it.

A zygote is run by an interpreter of the user's choice, so nothing it sends is trusted: the kernel says which process
sent a message, messages are checked before they are passed on, and descriptors are not accepted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argosy.live.supervisor import zygote
from argosy.live.supervisor.detach import Identity
from argosy.live.unix_sockets import connect

WARM_LIMIT_S = 120.0  # importing torch takes seconds, and much longer on a busy machine or a slow disk
MAX_LINE = 4096  # bytes; the messages of a spawner are a few words and numbers
SEND_S = 5.0  # a spawner that does not read for this long is treated as dead
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_NUMBERS = {"spawner": ("pid",), "started": ("id", "pid"), "ended": ("id", "code")}


class Refused(Exception):
    """The other end of the connection does not behave like a spawner of this user."""


class WorkerSpawner:
    """The connection to a spawner. `on_message` is called with each of its messages.

    It is called with {"op": "gone"} when the spawner has died, and with {"op": "refused", "why": …} when the spawner
    sends something that no spawner of this user would send.
    """

    def __init__(self, connection: socket.socket, *, warm: bool, uid: int) -> None:
        self.warm, self.uid, self.connection = warm, uid, connection
        self.pid = 0  # 0 until its first message arrives
        self.on_message: Callable[[dict[str, Any]], None] = lambda message: None
        self._bytes = b""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        connection.settimeout(SEND_S)

    @classmethod
    def from_zygote(cls, path: Path, uid: int) -> WorkerSpawner | None:
        """Ask a zygote for a spawner, which reports once the zygote is warm; return None if there is no zygote."""
        try:
            spawner = cls(connect(path), warm=True, uid=uid)
            spawner.connection.sendall(b"spawner\n")
        except OSError:
            return None
        return spawner

    @classmethod
    def forked(cls, user: str | None, uid: int) -> WorkerSpawner:
        """Fork a cold spawner from this process, which must have no threads."""
        ours, theirs = socket.socketpair()
        spawner = cls(ours, warm=False, uid=uid)
        if os.fork() == 0:
            _detach(keep=theirs.fileno())
            if user is not None:
                Identity.of(user).take_on()
            zygote.Spawner(theirs).serve()
        theirs.close()
        return spawner

    def readable(self) -> None:
        """Read messages and pass them on; called by the event loop."""
        try:
            messages = self._receive()
        except Refused as problem:
            messages = [{"op": "refused", "why": str(problem)}]
        for message in messages:
            self.on_message(message)

    def _receive(self) -> list[dict[str, Any]]:
        room = socket.CMSG_SPACE(_CREDENTIALS.size)  # no room for descriptors, so the kernel closes them
        try:
            data, ancillary, _, _ = self.connection.recvmsg(1 << 16, room)
        except OSError:
            data, ancillary = b"", []
        if not data:
            return [{"op": "gone"}]
        self._check_sender(ancillary)
        *lines, self._bytes = (self._bytes + data).split(b"\n")
        if len(self._bytes) > MAX_LINE:
            raise Refused("sent a line that is too long")
        return [self._read(line) for line in lines]

    def _check_sender(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        pid, uid = 0, -1
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid, uid, _ = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])
        if uid != self.uid or pid <= 0:
            raise Refused(f"belongs to user {uid}, not to user {self.uid}")
        if self.pid not in (0, pid):
            raise Refused(f"sends messages of process {pid} in the name of process {self.pid}")
        self.pid = pid

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line[:MAX_LINE])
            numbers = [message[name] for name in _NUMBERS[message["op"]]]
        except (ValueError, RecursionError, KeyError, TypeError, IndexError):
            numbers = [None]
        plain = all(type(number) is int and abs(number) < 1 << 31 for number in numbers)
        if not plain or message.get("pid", 1) <= 0:
            raise Refused(f"sent an invalid message: {line[:60]!r}")
        if message["op"] == "spawner" and message["pid"] != self.pid:
            raise Refused(f"claims to be process {message['pid']}, but is process {self.pid}")
        return dict(message)

    def start(self, request: dict[str, Any], output: int) -> None:
        self._send({**request, "op": "start", "fds": 1}, [output])

    def close(self) -> None:
        """Close the connection; the spawner then kills its descendants and exits."""
        self.connection.close()

    def _send(self, message: dict[str, Any], fds: list[int]) -> None:
        data = json.dumps(message).encode() + b"\n"
        try:
            sent = socket.send_fds(self.connection, [data], fds) if fds else 0
            self.connection.sendall(data[sent:])
        except OSError:  # it has died or does not read; the event loop will notice
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


def _detach(keep: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    os.closerange(3, keep)
    os.closerange(keep + 1, 4096)
