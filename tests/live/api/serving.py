"""A daemon's API without the daemon: the real service, served by the real web server in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx

from argosy.cluster.cluster import Cluster, Node
from argosy.live.api import create_app
from argosy.live.backends.base import Part
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.http.server import Web
from argosy.live.states import State
from argosy.live.store import RunRow, Store

T = TypeVar("T")
NODES = tuple(Node(f"n{i}", gpus=4, gpu_type="v100", cpus=16, memory_gib=64) for i in (1, 2))


@dataclass
class Serving:
    """A listening API, and the tokens of its users."""

    url: str
    home: Home
    service: Service
    loop: asyncio.AbstractEventLoop
    tokens: dict[str, str]

    def do(self, action: Callable[[Service], T]) -> T:
        """Run something in the daemon's own thread, the only one that may touch the database."""
        done: Future[T] = Future()

        def act() -> None:
            try:
                done.set_result(action(self.service))
            except BaseException as problem:
                done.set_exception(problem)

        self.loop.call_soon_threadsafe(act)
        return done.result(60)

    def as_(self, who: str | None, **options: Any) -> httpx.Client:
        """A connection with the token of ann (a user), bob (another) or olga (an operator), or with none."""
        headers = {"authorization": f"Bearer {self.tokens[who]}"} if who else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, **options)

    def submit(self, who: str = "ann", **spec: Any) -> int:
        with self.as_(who) as api:
            answer = api.post("/v1/jobs", json={"jobs": [{"run": "true", **spec}], "workdir": "/"})
        assert answer.status_code == 201, answer.text
        (number,) = answer.json()["ids"]
        return int(number)

    def start(self, number: int) -> str:
        """Record that the job runs on n1:0, as the daemon's loop would, and return the token of the run."""

        def start(service: Service) -> str:
            job = service.store.jobs[number]
            generation = job.generation + 1
            now, wall = service.store.clock.now(), service.store.clock.wall()
            with service.store.transaction() as changes:
                changes.save(replace(job, state=State.STARTING, generation=generation))
                changes.save_run(RunRow(number, generation, 1, (Part("n1", (0,)),), now, wall, now))
            with service.store.transaction() as changes:
                changes.save(replace(service.store.jobs[number], state=State.RUNNING))
            service.home.run(number, generation).mkdir(parents=True, exist_ok=True)
            return service.tokens.for_run(number, generation)

        return self.do(start)

    def end(self, number: int, state: State = State.SUCCEEDED, message: str = "") -> None:
        """Record that the job has ended, as the daemon's loop would."""

        def end(service: Service) -> None:
            job, run = service.store.jobs[number], service.store.runs.get(number)
            now, wall = service.store.clock.now(), service.store.clock.wall()
            with service.store.transaction() as changes:
                changes.save(replace(job, state=state, ended_s=now, ended_at=wall, message=message))
                if run is not None:
                    changes.save_run(replace(run, ended_s=now, ended_at=wall))

        self.do(end)

    def write_log(self, number: int, content: bytes, generation: int = 1) -> Path:
        path = self.home.log(number, generation)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(content)
        return path


@contextmanager
def serving(folder: Path, *, cluster: Cluster | None = None, **options: Any) -> Iterator[Serving]:
    """Serve a fresh home until the block ends; options are those of the application, and tls and limits."""
    ready: Future[Serving] = Future()
    stop = threading.Event()
    thread = threading.Thread(target=_serve, args=(folder, cluster or Cluster(NODES), options, ready, stop))
    thread.start()
    try:
        yield ready.result(60)
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def _serve(
    folder: Path, cluster: Cluster, options: dict[str, Any], ready: Future[Serving], stop: threading.Event
) -> None:
    async def serve() -> None:
        home = Home(folder)
        home.create()
        store = Store(home.database)
        service = Service(store, home, cluster, min_free_bytes=0)
        roles = {"ann": "user", "bob": "user", "olga": "operator"}
        tokens = {owner: service.tokens.add(owner, role)[1] for owner, role in roles.items()}
        of_server = {name: options.pop(name) for name in ("tls", "limits") if name in options}
        web = Web(create_app(service, **options), "127.0.0.1", 0, **of_server)
        home.write_secret(home.token, tokens["olga"])
        home.address.write_text(web.address + "\n")
        await web.start()
        ready.set_result(Serving(web.address, home, service, asyncio.get_running_loop(), tokens))
        while not stop.is_set():
            service.health.last_pass_s = store.clock.now()  # as the daemon's loop would
            await asyncio.sleep(0.02)
        await web.stop()
        store.close()

    try:
        asyncio.run(serve())
    except BaseException as problem:
        if not ready.done():
            ready.set_exception(problem)
        raise
