"""The dashboard's demonstration in a thread of this process, with people who sign in: for tests, figures, pictures."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from argosy.dashboard.demo import Demo
from argosy.live.daemon.daemon import Daemon
from argosy.live.daemon.service import Service
from argosy.live.spec import JobSpec
from argosy.live.states import State

T = TypeVar("T")
PEOPLE = {"ann": "user", "bob": "user", "olga": "operator"}


@dataclass
class RunningDemo:
    """A daemon that serves the dashboard, and the tokens of its people."""

    daemon: Daemon
    loop: asyncio.AbstractEventLoop
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return self.daemon.address

    def do(self, action: Callable[[Service], T]) -> T:
        """Run something in the daemon's own thread, the only one that may touch its state."""
        done: Future[T] = Future()

        def act() -> None:
            try:
                done.set_result(action(self.daemon.service))
            except BaseException as problem:
                done.set_exception(problem)

        self.loop.call_soon_threadsafe(act)
        return done.result(60)

    def submit(self, owner: str, **spec: Any) -> int:
        wanted = {"name": "job", "run": "fake seconds=100000 figures=true", "queue": "research"} | spec
        return self.do(lambda service: service.submit([JobSpec.model_validate(wanted)], owner, "/")[0])

    def submit_waiting(self, owner: str, **spec: Any) -> int:
        """Submit a job that waits for one that is held back."""
        blocker = JobSpec.model_validate({"name": "blocker", "run": "true"})

        def submit(service: Service) -> int:
            (first,) = service.submit([blocker], owner, "/")
            service.control.hold([first])
            return first

        return self.submit(owner, after=[self.do(submit)], **spec)

    def write_log(self, number: int, content: str) -> None:
        path = self.do(lambda service: service.home.log(number, 1))
        with path.open("a") as file:
            file.write(content)

    def wait_for(self, number: int, state: State) -> None:
        limit = time.monotonic() + 60
        while self.state(number) is not state:
            assert time.monotonic() < limit, f"job {number} is {self.state(number)}"
            time.sleep(0.05)

    def state(self, number: int) -> State:
        return self.do(lambda service: service.store.job(number).state)

    def cancel_all(self) -> None:
        self.do(lambda service: service.cancel(list(service.store.jobs), at_once=True) if service.store.jobs else None)

    def api(self, who: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens[who]}"}
        return httpx.Client(base_url=self.address, headers=headers, timeout=60, trust_env=False)


@contextmanager
def running(demo: Demo) -> Iterator[RunningDemo]:
    """Run a demonstration until the block ends."""
    found: Future[RunningDemo] = Future()

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        def ready(daemon: Daemon) -> None:
            tokens = {owner: daemon.service.tokens.add(owner, role)[1] for owner, role in PEOPLE.items()}
            found.set_result(RunningDemo(daemon, loop, tokens))

        await demo.run(ready)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as problem:
            if found.done():
                raise
            found.set_exception(problem)

    thread = threading.Thread(target=run)
    thread.start()
    running = None
    try:
        running = found.result(300)
        yield running
    finally:
        if running is not None:
            with suppress(RuntimeError):
                running.loop.call_soon_threadsafe(running.daemon.stop)
        thread.join(120)
        assert not thread.is_alive()
