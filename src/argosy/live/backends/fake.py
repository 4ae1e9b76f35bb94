"""A backend without processes, for tests and demonstrations: deterministic, fast, and with failures on request.

It detects calls that the daemon must never make: to run more on a device than fits, or to run two generations of a job
at once. Such a call raises `PlacementBroken` and is recorded in `violations`. With `state`, a file, runs outlive the
process, as real ones would.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from argosy.cluster.cluster import Node
from argosy.errors import ArgosyError
from argosy.live.backends.base import LaunchError, NodeStatus, Run, RunKey, Status
from argosy.live.backends.fake_run import FakeRun, Script
from argosy.slack import TIMER_SLACK_S

__all__ = ["FakeBackend", "MessageLost", "PlacementBroken", "Script"]


class PlacementBroken(ArgosyError):
    """The call would have put more on a device than fits, or run two generations of a job at once."""


class MessageLost(ArgosyError):
    """No answer came, so it is unknown whether the call was carried out."""


class FakeBackend:
    """A backend that computes what its runs would do.

    `latency_s` is how long each call takes. `loss` is the share of calls that get lost: half of these have no effect,
    the others take effect but raise `MessageLost`.
    """

    name = "fake"
    runs_as_owners = False  # nothing really runs

    def __init__(
        self,
        nodes: Sequence[Node],
        script: Callable[[Run], Script] = Script.of,
        *,
        clock: Callable[[], float] = time.monotonic,
        latency_s: float = 0.0,
        loss: float = 0.0,
        seed: int = 0,
        state: Path | None = None,
        logs: bool = True,
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._script, self._clock, self._logs = script, clock, logs
        self.latency_s, self.loss = latency_s, loss
        self._chance = random.Random(seed)
        self.runs: dict[RunKey, FakeRun] = {}
        self._near: dict[tuple[str, int] | int, set[RunKey]] = {}  # by device and by job: its runs
        self.violations: list[str] = []
        self.launch_failures: dict[int, int] = {}  # by job: how many of its next launches fail temporarily
        self._down: dict[str, str] = {}
        self._db: sqlite3.Connection | None = None
        if state is not None:
            self._open(state)

    # -- the protocol

    async def nodes(self) -> Sequence[NodeStatus]:
        return [NodeStatus(n, n.name not in self._down, self._down.get(n.name, "")) for n in self._nodes.values()]

    async def prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        """Do nothing, because a fake run needs no preparation."""

    async def launch(self, run: Run) -> None:
        await self._deliver(lambda now: self._launch(run, now))

    async def stop(self, key: RunKey, grace_s: float) -> None:
        await self._deliver(lambda now: self._stop(key, grace_s, now))

    async def poll(self) -> Sequence[Status]:
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if self.loss and self._chance.random() < self.loss:
            raise MessageLost("the answer to this poll was lost, as the backend's `loss` asks for")
        return self._statuses()

    async def adopt(self, runs: Sequence[Run]) -> Sequence[Status]:
        known = {run.key for run in runs}
        now = self._clock()
        self._settle(now)
        for key, run in list(self.runs.items()):
            if key not in known:
                run.stop(0.0, now)
                run.settle(now + TIMER_SLACK_S)
                self._forget(key)
        return self._statuses()

    async def forget(self, key: RunKey) -> None:
        await self._deliver(lambda now: self._forget(key))

    async def close(self) -> None:
        if self._db is not None:
            self._db.close()

    # -- failures, which tests cause

    def node_down(self, name: str, message: str = "no answer") -> None:
        """Take a node down; all runs on it are lost."""
        self._settle(self._clock())
        self._down[name] = message
        for run in self.runs.values():
            if run.alive and any(part.node == name for part in run.held + run.parts):
                run.lose(f"node {name} is down: {message}")
                self._keep(run)

    def node_up(self, name: str) -> None:
        self._down.pop(name, None)

    def kill(self, key: RunKey, code: int = -9) -> None:
        """Make a run exit with this code."""
        self._settle(self._clock())
        self.runs[key].lose("killed")
        self.runs[key].exit_code = code
        self._keep(self.runs[key])

    def vanish(self, key: RunKey) -> None:
        """Make a run disappear without a trace."""
        self.runs[key].lose("vanished")
        self._forget(key)

    # -- implementation

    async def _deliver(self, effect: Callable[[float], None]) -> None:
        """Carry out a call after a delay. The call or its answer may get lost."""
        if self.latency_s:
            await asyncio.sleep(self.latency_s / 2)
        fate = self._chance.random() if self.loss else 1.0
        if fate < self.loss / 2:
            return
        effect(self._clock())
        if self.latency_s:
            await asyncio.sleep(self.latency_s / 2)
        if fate < self.loss:
            raise MessageLost("the answer to this call was lost, as the backend's `loss` asks for")

    def _launch(self, run: Run, now: float) -> None:
        for part in run.assignment.parts:
            node = self._nodes.get(part.node)
            if node is None or any(not 0 <= device < node.gpus for device in part.devices):
                raise LaunchError(f"there is no node {part.node!r} with devices {list(part.devices)}")
            if part.node in self._down:
                raise ArgosyError(f"node {part.node} does not answer")
        found = self.runs.get(run.key)
        if found is not None:
            found.settle(now)
        if found is not None and (not found.alive or run.assignment.version <= found.version):
            return
        if found is None:
            if self.launch_failures.get(run.key.job, 0) > 0:
                self.launch_failures[run.key.job] -= 1
                raise ArgosyError("the launch failed, as the test asked for")
            script = self._script(run)
            if script.fail_launch:
                raise LaunchError(script.fail_launch)
            found = FakeRun.launch(run, script, now)
        before = found.coming
        found.change(run.assignment, now)
        broken = self._broken(found, now)
        if broken:
            found.coming = before
            self.violations.append(f"job {run.key.job}, generation {run.key.generation}: {broken}")
            self._write("INSERT INTO violations VALUES (?)", (self.violations[-1],))
            raise PlacementBroken(self.violations[-1])
        self._add(found)
        self._keep(found)
        if self._logs:
            folder = run.home / f"gen-{run.key.generation}"
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "log").open("a") as log:
                log.write(f"fake run of {run.spec['name']}: {run.assignment}\n")

    def _stop(self, key: RunKey, grace_s: float, now: float) -> None:
        run = self.runs.get(key)
        if run is not None:
            run.settle(now)
        if run is not None and run.alive:
            run.stop(grace_s, now)
            self._keep(run)

    def _forget(self, key: RunKey) -> None:
        run = self.runs.get(key)
        if run is not None and not run.alive:
            del self.runs[key]
            for keys in self._near.values():
                keys.discard(key)
            if not self._near.get(key.job, True):  # a long demonstration has many jobs
                del self._near[key.job]
            self._write("DELETE FROM runs WHERE job = ? AND generation = ?", (key.job, key.generation))

    def _settle(self, now: float) -> None:
        for run in self.runs.values():
            if run.alive:
                run.settle(now)

    def _statuses(self) -> list[Status]:
        self._settle(self._clock())
        return [run.status() for run in self.runs.values()]

    def _broken(self, new: FakeRun, now: float) -> str:
        """Return why this run must not have the devices that it was given; empty if it may have them."""
        for key in self._near.get(new.key.job, set()) - {new.key}:
            self.runs[key].settle(now)
            if self.runs[key].alive:
                return f"generation {key.generation} of the same job still runs"
        for part in new.held:
            for device in part.devices:
                place, milli = (part.node, device), part.milli
                for key in self._near.get(place, set()) - {new.key}:
                    other = self.runs[key]
                    other.settle(now)
                    held = other.held if other.alive else ()
                    milli += sum(p.milli for p in held if p.node == part.node and device in p.devices)
                if milli > 1000:
                    return f"{part.node}:{device} would be used to {milli} thousandths"
        return ""

    def _add(self, run: FakeRun) -> None:
        self.runs[run.key] = run
        self._near.setdefault(run.key.job, set()).add(run.key)
        for part in run.parts + (run.coming.parts if run.coming else ()):
            for device in part.devices:
                self._near.setdefault((part.node, device), set()).add(run.key)

    # -- the state on the disk

    def _open(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")  # it must survive the process, but not a power failure
        self._db.execute("CREATE TABLE IF NOT EXISTS runs (job, generation, data, PRIMARY KEY (job, generation))")
        self._db.execute("CREATE TABLE IF NOT EXISTS violations (text)")
        for (data,) in self._db.execute("SELECT data FROM runs"):
            self._add(FakeRun.load(json.loads(data)))
        self.violations = [text for (text,) in self._db.execute("SELECT text FROM violations")]

    def _keep(self, run: FakeRun) -> None:
        if self._db is not None:
            values = (run.key.job, run.key.generation, json.dumps(run.dump()))
            self._write("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", values)

    def _write(self, sql: str, values: tuple[object, ...]) -> None:
        if self._db is not None:
            self._db.execute(sql, values)
