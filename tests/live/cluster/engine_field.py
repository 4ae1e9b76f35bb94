"""A cluster backend whose agents a real engine starts on this machine, for tests: a `Yard` with the engine's nodes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from field import TIMES, Door
from yard import Yard, wait_until

from argosy.live.backends.cluster.backend import ClusterBackend
from argosy.live.backends.cluster.engines.base import Engine
from argosy.live.backends.cluster.keeper import Head
from argosy.live.backends.local.zygote_pool import ZygotePool
from argosy.live.home import Home

HERE = "127.0.0.1"


class EngineField(Yard):
    """`make_engine` is called with the mark of what the engine starts, for each backend anew."""

    backend: ClusterBackend  # type: ignore[assignment]

    def __init__(self, home: Path, make_engine: Callable[[str], Engine], **settings: Any) -> None:
        self.make_engine, self.common = make_engine, home / "common"
        self.common.mkdir(parents=True)
        self.door = Door(Home(home / "door"), HERE, lambda: self.backend)
        self.drained: list[tuple[str, bool]] = []
        super().__init__(home, home, **settings)

    def another_backend(self) -> ClusterBackend:  # type: ignore[override]
        engine = self.make_engine(self.mark)
        self.nodes = [node.name for node in engine.nodes()]
        self.backend = ClusterBackend(
            self.home, engine.nodes(), self.common, times=TIMES, settings=self.settings, engine=engine
        )
        drain = self.drained.append
        self.backend.serving(
            Head(self.door.address, self.door.authority, lambda _: self.door.token, lambda *one: drain(one))
        )
        return self.backend

    def restart(self) -> None:
        """End the backend, as a daemon does that ends, and begin another one."""
        asyncio.run(self.backend.close())
        self.another_backend()

    def wait_up(self, *names: str) -> None:
        wait_until(lambda: all(self.backend.registry.is_up(name) for name in names or self.nodes))

    def agents(self) -> dict[str, int]:
        """Return the agents of this machine that are ours, by node."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_bytes().decode().split("\0")
                mark = next((word for word in words if word.startswith(f"/tmp/{self.mark}-")), None)
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if mark is not None and b"--folder" not in _words(parent):
                    found[words[words.index("--node") + 1]] = int(path.name)
        return found

    @property
    def mark(self) -> str:
        return f"argosy-{hashlib.sha256(os.fsencode(self.home.resolve())).hexdigest()[:8]}"

    def end_field(self) -> None:
        if self.runs:
            self.clear()
        self.backend.release()
        self.backend.registry.end()
        self.door.close()
        wait_until(lambda: not self.agents())
        for folder in Path("/tmp").glob(f"{self.mark}-*"):
            ZygotePool(folder / "zygotes").end()


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
