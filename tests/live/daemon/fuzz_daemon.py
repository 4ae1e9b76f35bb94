"""A daemon in this process, for tests that drive it step by step: its clock stands still until it is told to go on,
and it can be killed between any two statements that it sends to its database.

A kill leaves what a kill leaves: files as they are, nothing closed in order, nothing answered. The runs of the fake
backend outlive it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from random_planner import RandomPlanner

from argosy.cluster.cluster import Cluster
from argosy.live.api import create_app
from argosy.live.api.rate_limits import Rate
from argosy.live.backends.fake import FakeBackend
from argosy.live.clock import Clock
from argosy.live.daemon.daemon import Daemon
from argosy.live.daemon.planner_client import Planner
from argosy.live.daemon.service import Service
from argosy.live.home import Home
from argosy.live.planner.messages import Decision, Setup, Snapshot, Told, Update
from argosy.live.planner.planner import Planner as EnginePlanner
from argosy.live.store import restore

ROUNDS = 6  # turns of the loop that let answers and orders arrive
QUICK_TURNS = 100
LIFETIME_S = 60.0  # real seconds after which a request counts as hung
BEGAN_AT = 1_700_000_000.0


SERVICE = object.__new__(Service)  # shows what the service of the living daemon has


@cache
def _app() -> FastAPI:
    """The API of the present daemon; it is made once, because making it takes longer than the rest of a start."""
    return create_app(SERVICE, user_rate=Rate(0.0, 0.0))


class Killed(BaseException):
    """Raised where the daemon is killed; nothing may catch it."""


class Mortal:
    """A connection to a database whose user dies at a chosen statement: before it, or right after it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.dead = connection, False
        self._left: int | None = None
        self._after = False

    def die_at(self, statement: int, after: bool) -> None:
        self._left, self._after = statement, after

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        return self._do(lambda: self.connection.execute(sql, values))

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        return self._do(lambda: self.connection.executemany(sql, rows))

    def _do(self, statement: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        if self.dead:
            raise Killed
        last = False
        if self._left is not None:
            self._left -= 1
            last = self._left <= 0
        if not last:
            return statement()
        self.dead = True
        if self._after:
            statement()
        raise Killed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


class InlinePlanner:
    """The real planner without its process."""

    def __init__(self, setup: Setup, snapshot: Callable[[], Snapshot]) -> None:
        self._setup, self._snapshot = setup, snapshot
        self._inner: EnginePlanner | None = None

    async def plan(self, update: Update) -> Decision:
        if self._inner is None:
            self._inner = EnginePlanner(self._setup, self._snapshot())
            update = Update(update.now_s, remember=update.remember, ask=True)
        try:
            return self._inner.update(update)
        except BaseException:
            self._inner = None
            raise

    async def why(self, jobs: Any) -> dict[int, Told]:
        return self._inner.why(jobs) if self._inner is not None else {}

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    content: bytes


class SteppedDaemon:
    """`ask`, `step` and `advance` return None, or False, if the daemon was killed in the middle of it."""

    def __init__(self, folder: Path, cluster: Cluster, policy: str, seed: int = 0) -> None:
        self.home, self.cluster, self.policy, self.seed = Home(folder / "home"), cluster, policy, seed
        self.time_s = 0.0
        self.kills = 0
        self._state = folder / "fake.db"
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # of tasks that died with their daemon
        self.alive = False

    # life and death

    def start(self) -> None:
        self._run(self._start())

    async def _start(self) -> None:
        clock = Clock(lambda: self.time_s, lambda: BEGAN_AT + self.time_s, "one boot")
        self.backend = FakeBackend(self.cluster.nodes, clock=lambda: self.time_s, state=self._state, seed=self.seed)
        self.daemon = Daemon(
            self.home,
            self.cluster,
            self.policy,
            self.backend,
            planner=self._planner,
            clock=clock,
            switch_users=False,
            min_free_bytes=0,
            poll_s=0.0,
        )
        self._stack = AsyncExitStack()
        await self.daemon._open(self._stack)
        store = self.daemon.service.store
        self.mortal = Mortal(store._db)
        store._db = self.mortal  # type: ignore[assignment]
        SERVICE.__dict__ = self.daemon.service.__dict__
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(_app(), raise_app_exceptions=False), base_url="http://localhost"
        )
        self.alive = True

    def _planner(self, snapshot: Callable[[], Snapshot]) -> Planner:
        if self.policy == "random":
            self.random = RandomPlanner(self.cluster, self.seed + self.kills)
            return self.random.attach(snapshot)
        return InlinePlanner(Setup(self.cluster, self.policy), snapshot)

    def kill(self) -> None:
        """Kill the daemon as `kill -9` would, wherever it is."""
        self._run(self._kill())

    async def _kill(self) -> None:
        store, self.mortal.dead, self.alive = self.daemon.service.store, True, False
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.mortal.connection.close()  # what was not committed is gone
        assert store._watch is not None and self.backend._db is not None
        store._watch.close()
        self.backend._db.close()
        self.home.unlock()
        self.kills += 1

    def end(self) -> None:
        """End the daemon in an orderly way, as after a signal."""
        self._run(self._stack.aclose())
        self.alive = False

    def close(self) -> None:
        with suppress(Killed):
            if self.alive:
                self.end()
        self._run(self._loop.shutdown_default_executor())
        self._loop.close()

    def restore(self, file: Path) -> None:
        """Restore a copy of the database; the daemon must have ended."""
        with restore.prepared(self.home, file) as prepared:
            prepared.carry_out()

    # what it is asked and told

    def ask(self, method: str, path: str, token: str, json: Any = None, **params: Any) -> Answer | None:
        headers = {"authorization": f"Bearer {token}"}
        answer = self._mortally(self._http.request(method, path, json=json, params=params, headers=headers))
        if answer is None:
            return None
        is_json = answer.headers.get("content-type", "").startswith("application/json") and answer.content
        return Answer(answer.status_code, answer.json() if is_json else answer.text, answer.content)

    def step(self) -> bool:
        """Run one pass, and everything that it starts."""
        return self._mortally(self._pass()) is not None

    async def _pass(self) -> bool:
        await self.daemon._pass()
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        return True

    def advance(self, seconds: float) -> bool:
        self.time_s += seconds
        return self.step()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the committed rows."""
        return self.mortal.connection.execute(sql).fetchall()

    def _mortally(self, doing: Awaitable[Any]) -> Any:
        """Return the result, or None if the daemon was killed meanwhile; then clean it up."""
        done = self._run(self._until_dead(doing))
        if self.mortal.dead:
            self.kill()
            return None
        return done

    async def _until_dead(self, doing: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(doing)
        async with asyncio.timeout(LIFETIME_S):
            turns = 0
            while not (task.done() or self.mortal.dead):
                turns += 1
                await asyncio.sleep(0 if turns < QUICK_TURNS else 0.001)  # it waits for a thread
        return None if self.mortal.dead else task.result()

    def _run(self, doing: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(doing)
