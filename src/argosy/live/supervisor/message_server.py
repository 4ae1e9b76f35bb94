"""A server on a Unix socket that exchanges JSON objects, one per line, and does not interpret them."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from argosy.live.supervisor.reactor import Reactor
from argosy.live.unix_sockets import short_path

MAX_LINE = 1 << 20
MAX_FIRST_LINE = 1 << 12  # the limit for a client that has not yet identified itself
MOST_CONNECTIONS = 512
MOST_COMPLAINTS = 20

Message = dict[str, Any]


def _readable(connection: socket.socket) -> bool:
    poll = select.poll()  # because select() does not support descriptors above 1023
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


class Connection:
    """The server's end of one connection."""

    def __init__(self, stream: socket.socket, server: MessageServer, pid: int) -> None:
        self.socket, self.server, self.pid = stream, server, pid
        self.open = True
        self.worker: int | None = None  # the worker's number, once the client has sent it
        self._bytes = b""
        stream.settimeout(1.0)  # a client that does not read must not hold up the others

    def readable(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        *lines, self._bytes = (self._bytes + data).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue  # ignored
            if isinstance(message, dict) and self.open:
                self._pass_on(message)
        if not data or len(self._bytes) > (MAX_LINE if self.worker is not None else MAX_FIRST_LINE):
            self.server.drop(self)

    def _pass_on(self, message: Message) -> None:
        """Pass the message on. An error that an invalid message causes is printed, and does not end the run."""
        try:
            self.server.on_message(self, message)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            self.server.complain()

    def send(self, message: Message) -> None:
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.server.drop(self)


class MessageServer:
    def __init__(
        self,
        reactor: Reactor,
        path: Path,
        uids: Collection[int],
        on_message: Callable[[Connection, Message], None],
        on_drop: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self.on_drop = on_drop
        self.reactor, self.path, self.uids, self.on_message = reactor, path, uids, on_message
        self.connections: set[Connection] = set()
        self._complaints = 0
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        with short_path(path) as short:
            self._listener.bind(short)
        os.chmod(path, 0o600)
        self._listener.listen(256)
        reactor.watch(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            stream, _ = self._listener.accept()
        except OSError:  # the client has already disconnected
            return
        pid, uid, _ = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        unidentified = [connection for connection in self.connections if connection.worker is None]
        if uid not in self.uids or (len(self.connections) >= MOST_CONNECTIONS and not unidentified):
            stream.close()
            return
        if len(self.connections) >= MOST_CONNECTIONS:
            self.drop(unidentified[0])
        connection = Connection(stream, self, pid)
        self.connections.add(connection)
        self.reactor.watch(stream, connection.readable)

    def catch_up(self) -> None:
        """Read everything sent so far, so that a worker's last messages are handled before its end is."""
        while _readable(self._listener):
            self._accept()
        for connection in list(self.connections):
            for _ in range(100):  # a client that never stops sending must not hold up the others
                if connection.open and _readable(connection.socket):
                    connection.readable()

    def complain(self) -> None:
        """Print the error that a message caused, but only the first few: otherwise a job could fill the disk."""
        self._complaints += 1
        if self._complaints <= MOST_COMPLAINTS:
            traceback.print_exc()

    def drop(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self.reactor.unwatch(connection.socket)
            connection.socket.close()
            connection.open = False
            self.on_drop(connection)

    def close(self) -> None:
        for connection in list(self.connections):
            self.drop(connection)
        self.reactor.unwatch(self._listener)
        self._listener.close()
        self.path.unlink(missing_ok=True)
