"""The supervisor's line to the spawner that forks its workers: warm from a zygote, or cold from the supervisor.

A zygote is run by an interpreter of the user's choice, so nothing that comes from there is believed: the system says
who writes, messages are checked before they are passed on, and descriptors are not accepted.
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

WARM_LIMIT_S = 120.0  # importing torch takes seconds, on a busy machine or a slow disk much longer
MAX_LINE = 4096  # its messages are a few words and numbers
SEND_S = 5.0  # one that does not read for so long is as good as dead
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_NUMBERS = {"spawner": ("pid",), "started": ("id", "pid"), "ended": ("id", "code")}


class Refused(Exception):
    """What poses as a spawner is none."""


class WorkerSpawner:
    """Passes on what the spawner says: `on_message` gets each message, {"op": "gone"} when it has died, and
    {"op": "refused", "why": …} when it says what no spawner of this user would."""

    def __init__(self, connection: socket.socket, *, warm: bool, uid: int) -> None:
        self.warm, self.uid, self.connection = warm, uid, connection
        self.pid = 0  # known once it has spoken
        self.on_message: Callable[[dict[str, Any]], None] = lambda message: None
        self._bytes = b""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        connection.settimeout(SEND_S)

    @classmethod
    def from_zygote(cls, path: Path, uid: int) -> WorkerSpawner | None:
        """It answers when the zygote is warm. None: there is no zygote."""
        try:
            spawner = cls(connect(path), warm=True, uid=uid)
            spawner.connection.sendall(b"spawner\n")
        except OSError:
            return None
        return spawner

    @classmethod
    def forked(cls, user: str | None, uid: int) -> WorkerSpawner:
        """A cold one: a child of this process, which must have no threads."""
        ours, theirs = socket.socketpair()
        spawner = cls(ours, warm=False, uid=uid)
        if os.fork() == 0:
            _leave_everything(keep=theirs.fileno())
            if user is not None:
                Identity.of(user).take_on()
            zygote.Spawner(theirs).serve()
        theirs.close()
        return spawner

    def readable(self) -> None:
        """Called by the event loop."""
        try:
            messages = self._receive()
        except Refused as problem:
            messages = [{"op": "refused", "why": str(problem)}]
        for message in messages:
            self.on_message(message)

    def _receive(self) -> list[dict[str, Any]]:
        room = socket.CMSG_SPACE(_CREDENTIALS.size)  # and none for descriptors: the system closes them
        try:
            data, beside, _, _ = self.connection.recvmsg(1 << 16, room)
        except OSError:
            data, beside = b"", []
        if not data:
            return [{"op": "gone"}]
        self._check_sender(beside)
        *lines, self._bytes = (self._bytes + data).split(b"\n")
        if len(self._bytes) > MAX_LINE:
            raise Refused("says what nobody can understand: a line without an end")
        return [self._read(line) for line in lines]

    def _check_sender(self, beside: list[tuple[int, int, bytes]]) -> None:
        pid, uid = 0, -1
        for level, kind, content in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid, uid, _ = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])
        if uid != self.uid or pid <= 0:
            raise Refused(f"is of the user {uid} and not of {self.uid}")
        if self.pid not in (0, pid):
            raise Refused(f"lets process {pid} speak for process {self.pid}")
        self.pid = pid

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line[:MAX_LINE])
            numbers = [message[name] for name in _NUMBERS[message["op"]]]
        except (ValueError, RecursionError, KeyError, TypeError, IndexError):
            numbers = [None]
        plain = all(type(number) is int and abs(number) < 1 << 31 for number in numbers)
        if not plain or message.get("pid", 1) <= 0:
            raise Refused(f"says what nobody can understand: {line[:60]!r}")
        if message["op"] == "spawner" and message["pid"] != self.pid:
            raise Refused(f"claims to be process {message['pid']} and is process {self.pid}")
        return dict(message)

    def start(self, request: dict[str, Any], output: int) -> None:
        self._send({**request, "op": "start", "fds": 1}, [output])

    def close(self) -> None:
        """It kills whatever is left below it, and ends."""
        self.connection.close()

    def _send(self, message: dict[str, Any], fds: list[int]) -> None:
        data = json.dumps(message).encode() + b"\n"
        try:
            sent = socket.send_fds(self.connection, [data], fds) if fds else 0
            self.connection.sendall(data[sent:])
        except OSError:  # it has died, or does not read: the event loop is about to hear of it
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


def _leave_everything(keep: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    os.closerange(3, keep)
    os.closerange(keep + 1, 4096)
