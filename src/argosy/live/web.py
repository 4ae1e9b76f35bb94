"""The API's server: uvicorn in the daemon's own loop, on a socket that is open before anybody is told the address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from argosy.errors import InputError
from argosy.live.api import uvicorn_settings


class _Server(uvicorn.Server):
    """Signals belong to the daemon."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Web:
    def __init__(self, app: Any, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as problem:
            raise InputError(
                f"can not listen on {host}:{port}: {problem.strerror}", hint="give another --port, or 0 for any"
            ) from None
        # asyncio does so only for sockets that say they are TCP, which this one does not: answers would wait 40 ms
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        called = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        self.address = f"http://{called}:{self._socket.getsockname()[1]}"
        settings = uvicorn.Config(app, **uvicorn_settings())
        self._server = _Server(settings)
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
