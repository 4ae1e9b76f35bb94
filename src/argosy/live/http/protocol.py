"""uvicorn's HTTP protocol with limits: on connections, the size of a head, and the time of each step."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from argosy.live.daemon_log import note
from argosy.live.http.connections import Connections, address_of

_FULL = b'{"error":{"what":"too many connections","value":null,"hint":"close some, or try again in a moment"}}'
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. It tells the register whether it waits for its client or is being served."""

    def __init__(self, config: Config, server_state: ServerState, register: Connections) -> None:
        super().__init__(config, server_state, {})
        self._register, self._limits = register, register.limits
        self.address, self.deadline = "", 0.0
        self._early = b""  # data that arrived before `connection_made`, as may happen after a TLS handshake
        self._head_bytes = 0  # of a head that is not complete
        self._receiving = False  # whether a request has begun and is not complete
        self._answering = 0  # requests whose responses are not complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = address_of(transport)
        if not self._register.enter(self):
            note("refused a connection: there are too many", logging.WARNING, address=self.address)
            transport.write(FULL)
            transport.close()
        elif self._early:
            self.data_received(self._early)

    def connection_lost(self, exc: Exception | None) -> None:
        self._register.leave(self)
        if self.transport is not None:
            super().connection_lost(exc)

    def drop(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            self._early += data
            return
        if self.transport.is_closing():
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > self._limits.head_bytes and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving = True
        if not self._answering:
            self._register.wait(self, self._limits.head_s)

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._answering += 1
        self._register.wait(self, self._limits.body_s)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        self.deadline += len(body) / self._limits.body_bytes_per_s
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes, self._receiving = 0, False
        if self._answering:
            self._register.work(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._answering -= 1
        if not self._answering and not self._receiving:
            self._register.wait(self, self._limits.idle_s)
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._register.wait(self, self._limits.unread_s)
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._answering and not self._receiving:
            self._register.work(self)
        super().resume_writing()


class TlsHandshake(asyncio.Protocol):
    """A connection until its TLS handshake is done; it counts like any other, and has the time of a head."""

    def __init__(self, register: Connections, context: ssl.SSLContext, inside: Callable[[], BoundedProtocol]) -> None:
        self._register, self._context, self._inside = register, context, inside
        self.address, self.deadline = "", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = address_of(transport)
        if not self._register.enter(self):
            note("refused a connection: there are too many", logging.WARNING, address=self.address)
            transport.abort()
            return
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(transport))

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        inside, loop = self._inside(), asyncio.get_running_loop()
        try:
            encrypted = await loop.start_tls(
                transport,
                inside,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._register.limits.head_s,
                ssl_shutdown_timeout=self._register.limits.head_s,
            )
        except (OSError, asyncio.CancelledError):  # the client does not trust us, speaks no TLS, or has left
            encrypted = None
        self._register.leave(self)
        if encrypted is None or encrypted.is_closing():
            transport.abort()
        else:
            inside.connection_made(encrypted)

    def drop(self) -> None:
        self._transport.abort()
