"""The API's servers: uvicorn in the daemon's own event loop, on sockets that are opened before they are announced.

One serves a network address, for everybody; one serves a socket in the home, for its owner. Each has limits of its own,
so that a crowd at the first does not shut out the owner.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn

from argosy.errors import InputError
from argosy.live.http.connections import ConnectionLimits, Connections
from argosy.live.http.protocol import BoundedProtocol, TlsHandshake
from argosy.live.http.tls import ServerTls

ACCEPTED = 64  # accepted at once; fewer than one address may have, so that a new client is not dropped again
BACKLOG = 1024  # connections that wait to be accepted
TICKS_PER_S = 10  # of uvicorn's own loop
CERTIFICATE_S = 3600  # how often certificates are checked


class _Server(uvicorn.Server):
    """uvicorn's server with counted connections. Signals are handled by the daemon."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits, tls: ServerTls | None) -> None:
        super().__init__(config)
        self.register = Connections(limits)
        self._tls = tls

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        inside = partial(BoundedProtocol, self.config, self.server_state, self.register)
        tls = self._tls
        make = inside if tls is None else partial(TlsHandshake, self.register, tls.context, inside)
        self.servers = [await loop.create_server(make, sock=found, backlog=ACCEPTED) for found in sockets or ()]
        for found in sockets or ():
            found.listen(BACKLOG)  # asyncio uses one number for both
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_S == 0:
            self.register.drop_late()
        if self._tls is not None and counter % (CERTIFICATE_S * TICKS_PER_S) == 0:
            await asyncio.to_thread(self._tls.refresh)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self.register.drop_all()


class Server:
    """Serves an application on one socket; with `tls`, only encrypted connections."""

    def __init__(
        self,
        app: Any,
        listening: socket.socket,
        *,
        limits: ConnectionLimits | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self._socket, limits = listening, limits or ConnectionLimits()
        self._server = _Server(uvicorn.Config(app, **uvicorn_settings(limits)), limits, tls)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        self._socket.close()


class Web(Server):
    """Serves at a network address."""

    def __init__(
        self, app: Any, host: str, port: int, *, limits: ConnectionLimits | None = None, tls: ServerTls | None = None
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as problem:
            raise InputError(
                f"cannot listen on {host}:{port}: {problem.strerror}", hint="give another --port, or 0 for any"
            ) from None
        # asyncio sets this only for sockets declared as TCP, which this one is not: responses would wait 40 ms
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        called = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        self.address = f"{'https' if tls else 'http'}://{called}:{listening.getsockname()[1]}"
        super().__init__(app, listening, limits=limits, tls=tls)


def uvicorn_settings(limits: ConnectionLimits) -> dict[str, Any]:
    """Return uvicorn's settings."""
    return {
        "lifespan": "off",
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "ws": "none",
        "proxy_headers": False,  # a proxy may not claim where a request came from
        "timeout_keep_alive": int(limits.idle_s) + 1,  # ours ends it first
        "timeout_graceful_shutdown": 2,  # clients that follow a log would hold it up for ever
    }
