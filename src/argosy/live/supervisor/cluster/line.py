"""A line between the head and an agent: JSON messages over TLS, each after its length, in a reactor.

Nothing here ever waits, so that a host that cannot be reached holds up nobody: what cannot be sent yet is kept, and
`backlog` says how much that is. Only `send_now` and `receive_now`, for the first words on a new connection, wait.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

from argosy.live.supervisor.reactor import Reactor

MAX_MESSAGE = 8 << 20
MAX_BACKLOG = 32 << 20  # a peer that is so far behind is treated as gone
PROTOCOL = 1
_LENGTH = struct.Struct(">I")

Message = dict[str, Any]


class LineBroken(OSError):
    """The other end is gone, or sends something that is not a message."""


class Line:
    """One end of a connection. `on_message` gets every message, `on_end` is called once when the other end is gone."""

    def __init__(
        self,
        stream: ssl.SSLSocket,
        reactor: Reactor,
        on_message: Callable[[Message], None],
        on_end: Callable[[], None],
    ) -> None:
        self._stream, self._reactor, self._on_message, self._on_end = stream, reactor, on_message, on_end
        self._received, self._unsent = bytearray(), bytearray()
        self.open = True
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reactor.watch(stream, self._ready)
        reactor.later(0, self._ready)  # TLS may already hold bytes that arrived with the first words

    @property
    def backlog(self) -> int:
        """Return how many bytes wait to be sent."""
        return len(self._unsent)

    def send(self, message: Message) -> None:
        if not self.open:
            return
        self._unsent += pack(message)
        if len(self._unsent) > MAX_BACKLOG:
            self._end()
            return
        self._flush()

    def close(self) -> None:
        """Close the line; `on_end` is not called."""
        if self.open:
            self.open = False
            self._reactor.unwatch(self._stream)
            self._stream.close()

    def _ready(self) -> None:
        if self.open and self._unsent:
            self._flush()
        while self.open:
            try:
                data = self._stream.recv(1 << 16)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                break
            except OSError:
                data = b""
            if not data:
                self._take()
                self._end()
                return
            self._received += data
            self._take()

    def _take(self) -> None:
        while self.open and len(self._received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received)
            if length > MAX_MESSAGE:
                self._end()
                return
            if len(self._received) < _LENGTH.size + length:
                return
            data = bytes(self._received[_LENGTH.size : _LENGTH.size + length])
            del self._received[: _LENGTH.size + length]
            try:
                message = unpack(data)
            except LineBroken:
                self._end()
                return
            self._on_message(message)

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._stream.send(self._unsent[: 1 << 16])]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            pass
        except OSError:
            self._reactor.later(0, self._end)  # not at once, because the caller may be in the middle of something
            return
        self._reactor.watch_room(self._stream, bool(self._unsent))

    def _end(self) -> None:
        if self.open:
            self.close()
            self._on_end()


def pack(message: Message) -> bytes:
    data = json.dumps(message).encode()
    return _LENGTH.pack(len(data)) + data


def unpack(data: bytes) -> Message:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise LineBroken("the other end sent something that is not JSON") from None
    if not isinstance(message, dict):
        raise LineBroken("the other end sent something that is not a message")
    return message


def send_now(stream: ssl.SSLSocket, message: Message) -> None:
    """Send a message, and wait until it is sent or the socket's timeout is over."""
    stream.sendall(pack(message))


def receive_now(stream: ssl.SSLSocket, most: int = MAX_MESSAGE) -> Message:
    """Wait for a message of at most `most` bytes."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    if length > most:
        raise LineBroken(f"the other end sent a message of {length} bytes")
    return unpack(_exactly(stream, length))


def _exactly(stream: ssl.SSLSocket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise LineBroken("the other end has closed the connection")
        data += more
    return data
