"""A real daemon that can be killed at a chosen moment; everything it leaves is cleaned up at the end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from argosy.live.backends.local.backend import LocalBackend
from argosy.live.client import Client, ClientError, find_address
from argosy.live.supervisor import process_table
from argosy.live.supervisor.records import read_record

PATIENCE_S = 120.0
HERE = Path(__file__).parent


class Stage:
    def __init__(self, folder: Path, seed: int) -> None:
        self.home, self.work, self.dice = folder / "home", folder / "work", random.Random(seed)
        self.work.mkdir()
        self._errors = (folder / "errors").open("w+")
        self._parent = subprocess.Popen(
            [sys.executable, str(HERE / "whole_daemon_parent.py"), str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self.daemon = 0
        self.client: Client
        self.acknowledged: dict[int, str] = {}  # by number: name
        self.ended: dict[int, tuple[object, ...]] = {}  # as it was first seen
        self.kills = 0  # of the daemon
        self.harmed = {"workers": 0, "supervisors": 0, "spawners": 0, "zygotes": 0}

    # the daemon

    def serve(self, policy: str) -> None:
        assert self._parent.stdin and self._parent.stdout
        (self.home / "address").unlink(missing_ok=True)
        self._parent.stdin.write(policy + "\n")
        self._parent.stdin.flush()
        self.daemon = int(self._parent.stdout.readline())
        self.until(self._answers, "the daemon answers")

    def kill(self) -> None:
        self.end(signal.SIGKILL)
        self.kills += 1
        for number, *how in self.rows("SELECT id, state, exit_code, ended_at FROM jobs WHERE ended_s IS NOT NULL"):
            assert self.ended.setdefault(number, tuple(how)) == tuple(how), f"job {number} ended twice"

    def end(self, how: signal.Signals) -> None:
        assert self._parent.stdout
        os.kill(self.daemon, how)
        assert self._parent.stdout.readline() == "gone\n"
        self.daemon = 0
        self.client.__exit__()

    def submit(self, name: str, script: str, *words: object, gpus: str = "1", **more: Any) -> None:
        command = [sys.executable, str(HERE / script), str(self.work / name), *map(str, words)]
        job = {
            "name": name,
            "run": command,
            "resources": {"gpus": gpus},
            "retry_wait": 0.2,
            "retries": 20,
            "grace": 20,
            "env": {"OMP_NUM_THREADS": "1"},
            "checkpoint": {"every": 2},
            **more,
        }
        answer = self.client.post("/v1/jobs", {"jobs": [job], "workdir": str(self.work)})
        self.acknowledged |= dict.fromkeys(answer["ids"], name)

    # what is

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        database = sqlite3.connect(f"file:{self.home / 'argosy.db'}?mode=ro", uri=True)
        try:
            return database.execute(sql).fetchall()
        finally:
            database.close()

    def until(self, true: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                left = self.rows("SELECT id, name, state, generation, message FROM jobs WHERE ended_s IS NULL")
                raise AssertionError(f"waited in vain until {what}: {left}\n{self.last_words()}")
            time.sleep(0.005)

    def wait_a_little_for(self, sql: str, seconds: float = 6.0) -> bool:
        """Wait for a condition that may never come true, and return whether it did."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.rows(sql):
                return True
            time.sleep(0.002)
        return False

    def last_words(self) -> str:
        self._errors.seek(0)
        log = self.home / "daemon.log"
        return self._errors.read()[-2000:] + (log.read_text()[-3000:] if log.exists() else "")

    def _answers(self) -> bool:
        try:
            self.client = Client(find_address(home=self.home))
        except ClientError:
            return False
        try:
            self.client.get("/v1/health")
        except ClientError:
            self.client.__exit__()
            return False
        return True

    # harm

    def kill_a_worker(self) -> bool:
        return self._kill_one("workers", "status.json", lambda record: [one["pid"] for one in record["workers"]])

    def kill_a_supervisor(self) -> bool:
        return self._kill_one("supervisors", "supervisor.json", lambda record: [record["pid"]])

    def kill_a_spawner(self) -> bool:
        """Kill the process that forks the workers of a run: the parent of one of them."""
        return self._kill_one(
            "spawners",
            "status.json",
            lambda record: [found.parent for one in record["workers"] if (found := process_table.process(one["pid"]))],
        )

    def kill_a_zygote(self) -> bool:
        records = [read_record(path) for path in sorted((self.home / "local" / "zygotes").glob("*.json"))]
        alive = [one for one in records if one and process_table.is_same(one["pid"], one["started"])]
        pids = [record["pid"] for record in alive]
        return self._kill_any("zygotes", pids)

    def _kill_one(self, whom: str, name: str, pids: Callable[[dict[str, Any]], list[int]]) -> bool:
        found = []
        spared = "SELECT id FROM jobs WHERE name = 'fails'"  # how it ends is its own doing
        for job, generation in self.rows(
            f"SELECT job, generation FROM runs WHERE ended_s IS NULL AND job NOT IN ({spared})"
        ):
            path = self.home / "jobs" / str(job) / f"gen-{generation}" / name
            if path.exists() and not path.with_name("exit.json").exists():
                found += [pid for pid in pids(json.loads(path.read_text())) if pid]
        return self._kill_any(whom, [pid for pid in found if pid > 1 and process_table.process(pid) is not None])

    def _kill_any(self, whom: str, pids: list[int]) -> bool:
        if pids:
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.dice.choice(sorted(pids)), signal.SIGKILL)
                self.harmed[whom] += 1
        return bool(pids)

    # the end

    def clear(self) -> None:
        """Clean up, so that nothing is left behind, whatever has happened."""
        os.killpg(self._parent.pid, signal.SIGKILL)
        self._parent.wait()
        for stream in (self._parent.stdin, self._parent.stdout):
            assert stream
            stream.close()
        self._errors.close()
        asyncio.run(self._sweep())

    async def _sweep(self) -> None:
        if self.home.exists():
            backend = LocalBackend(self.home)
            await backend.adopt([])
            await backend.close()

    def processes_left(self) -> list[str]:
        """Return the processes of jobs and zygotes of this home."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in (os.getpid(), self._parent.pid):
                try:
                    told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if os.fsencode(self.home) + b"/" in told:
                    found.append(f"{entry.name}: {told[-300:]!r}")
        return found
