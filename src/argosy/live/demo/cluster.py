"""The cluster of the demonstration: a daemon in a folder of its own, of which no process is left afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError
from argosy.live.backends.local.backend import LocalBackend
from argosy.live.client import Client, ClientError, find_address
from argosy.live.home import Home

START_LIMIT_S, END_LIMIT_S = 120.0, 30.0
ENDED = ("succeeded", "failed", "cancelled")


class DemoError(ArgosyError):
    """The demonstration cannot go on."""


class DemoCluster:
    """Starts and ends the daemon. Use it as a context manager: at its end every process that it started is gone."""

    def __init__(self, home: Path, nodes: int = 2, slots: int = 2) -> None:
        self.home, self._size = Home(home), (nodes, slots)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]  # the same for every daemon, so that an open page finds the next one
        self._environment = dict(os.environ)  # a copy: libraries that are loaded later may change it
        self._daemon: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None
        self._handlers: dict[int, Any] = {}  # as they were before

    def __enter__(self) -> DemoCluster:
        self._handle(signal.SIGTERM, _leave)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second signal must not interrupt the cleanup
            self._handle(number, signal.SIG_IGN)
        try:
            self._end()
        finally:
            asyncio.run(self._sweep())
            for taken, handler in self._handlers.items():
                signal.signal(taken, handler)

    def _handle(self, number: int, handler: Any) -> None:
        """Set a signal handler, which only the main thread may; other threads, as in tests, get no signals anyway."""
        if threading.current_thread() is threading.main_thread():
            self._handlers.setdefault(number, signal.getsignal(number))
            signal.signal(number, handler)

    @property
    def client(self) -> Client:
        if self._client is None:
            raise DemoError("no daemon has been started")
        return self._client

    def serve(self, policy: str) -> None:
        """Start a daemon with this policy; it adopts what still runs."""
        nodes, slots = self._size
        words = [sys.executable, "-m", "argosy.cli.main", "serve", "--home", str(self.home.folder), "--policy", policy]
        words += ["--nodes", str(nodes), "--slots", str(slots), "--stop-jobs"]
        words += ["--port", str(self._port)]
        self.home.create()
        with (self.home.folder / "serve.out").open("ab") as out:
            # a session of its own: Ctrl-C reaches only us, and we end the daemon in order
            self._daemon = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._environment,
                start_new_session=True,
            )
        self._await_answer()

    def link(self) -> str:
        """Return a link to the dashboard that signs in once."""
        code = self.client.post("/v1/session/links")["code"]
        return f"{self.home.address.read_text().strip()}/signin#{code}"

    def kill(self) -> None:
        """Kill the daemon without notice, as a failure of the machine would."""
        if self._daemon is not None:
            os.killpg(self._daemon.pid, signal.SIGKILL)
            self._daemon.wait()
        self._close_client()

    def submit(self, job: dict[str, Any]) -> int:
        return int(self.client.post("/v1/jobs", {"jobs": [job]})["ids"][0])

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs, oldest first."""
        page = self.client.get("/v1/jobs", limit=100, oldest_first=True)
        found: list[dict[str, Any]] = page["jobs"]
        return found

    def _await_answer(self) -> None:
        assert self._daemon is not None
        until = time.monotonic() + START_LIMIT_S
        while time.monotonic() < until:
            if self._daemon.poll() is not None:
                break
            with contextlib.suppress(ClientError):
                client = Client(find_address(home=self.home.folder))
                client.get("/v1/health")
                self._client = client
                return
            time.sleep(0.1)
        raise DemoError(f"the daemon does not start:\n{self._last_words()}")

    def _last_words(self) -> str:
        lines: list[str] = []
        for name in ("serve.out", "daemon.log"):
            with contextlib.suppress(OSError):
                lines += (self.home.folder / name).read_text("utf-8", "replace").splitlines()[-15:]
        return "\n".join(f"  {line}" for line in lines)

    def _end(self) -> None:
        """Cancel what still runs, and end the daemon in order; kill it if it does not end."""
        if self._daemon is None or self._daemon.poll() is not None:
            return
        with contextlib.suppress(ClientError):
            left = [job["id"] for job in self.jobs() if job["state"] not in ENDED]
            if left:
                self.client.post("/v1/jobs/cancel", {"ids": left})
        self._close_client()
        self._daemon.send_signal(signal.SIGINT)
        try:
            self._daemon.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.__exit__()
            self._client = None

    async def _sweep(self) -> None:
        """Kill runs and zygotes that the daemon has left."""
        backend = LocalBackend(self.home.folder)
        await backend.adopt([])
        await backend.close()


def _leave(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)
