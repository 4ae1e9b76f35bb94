"""What backends share that run jobs under supervisors: processes of this machine that outlive the daemon.

A subclass says where a run may be placed, what its supervisor must know, and how interpreters are warmed up.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from argosy.live.backends.base import LaunchError, Phase, Run, RunKey, Status
from argosy.live.backends.local.bounded_threads import BoundedThreads, in_thread
from argosy.live.backends.local.run_registry import RunRegistry
from argosy.live.backends.local.status_reader import Fence, StatusReader
from argosy.live.backends.local.supervisor_client import call
from argosy.live.backends.local.users import environment_of
from argosy.live.supervisor import process_table
from argosy.live.supervisor.detach import start_detached
from argosy.live.supervisor.places import Place
from argosy.live.supervisor.records import RunFolder, read_record, write_record

LAUNCHES, LAUNCH_LIMIT_S = 4, 90.0  # how many launches of one user run at a time, and how long one may take
PREPARATIONS = 4  # how many run at a time for one user; further jobs are not prepared
STOPS, STOP_LIMIT_S = 32, 60.0
DEATH_LIMIT_S = 5.0  # how long a starting daemon waits for the processes of a run to be killed
MOST_PROCESSES = 16384  # of one run, if the system lets us make a control group


class SupervisedBackend:
    """Starts supervisors, and reads what they write.

    `home` is the daemon's folder, `places` says what each node has. `settings` are passed to the supervisors:
    `log_bytes`, `rules` (see `membership_actions.Rules`), and `warm_limit_s`. `fence` is called before the end of a run
    is recorded whose supervisor has died.
    """

    def __init__(
        self,
        home: Path,
        places: Mapping[str, Place],
        *,
        folder: str,
        settings: Mapping[str, Any] | None = None,
        fence: Fence | None = None,
    ) -> None:
        self.home, self.places, self.settings = home.resolve(), dict(places), dict(settings or {})
        self.pauses_cold = not any(place.cuda for place in self.places.values())
        self._registry = RunRegistry(self.home / folder / "runs")
        self._digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:8]
        self._call_locks: dict[RunKey, asyncio.Lock] = {}  # one call at a time for each run
        self._launches, self._stops = BoundedThreads(LAUNCHES, LAUNCH_LIMIT_S), BoundedThreads(STOPS, STOP_LIMIT_S)
        self._preparations = BoundedThreads(PREPARATIONS, LAUNCH_LIMIT_S)
        self._polling: asyncio.Future[list[Status]] | None = None
        self._statuses = StatusReader(fence)

    # -- what a subclass provides

    def _prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        raise NotImplementedError

    def _describe(self, run: Run) -> dict[str, Any]:
        """Return what the supervisor must know besides `_common`."""
        raise NotImplementedError

    def _hand_over(self, run: Run) -> None:
        """Make the folder for the checkpoints of a run, which its user owns and can reach."""
        raise NotImplementedError

    def _tend(self) -> None:
        """Do what has to be done with every poll."""

    # -- the protocol

    async def prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        if not self._preparations.busy(user):
            await self._preparations.run(user, self._prepare, spec, user)

    async def launch(self, run: Run) -> None:
        async with self._call_lock(run.key):
            await self._launches.run(run.user, self._launch, run)

    async def stop(self, key: RunKey, grace_s: float) -> None:
        async with self._call_lock(key):
            await self._stops.run(None, self._stop, key, grace_s)

    async def poll(self) -> Sequence[Status]:
        """Return the status of every run without waiting for runs; slow work is done in other threads.

        If a poll hangs all the same, no second one is started.
        """
        if self._polling is None or self._polling.done():
            self._polling = in_thread(self._poll)
        return await asyncio.shield(self._polling)

    async def adopt(self, runs: Sequence[Run]) -> Sequence[Status]:
        wanted = {run.key for run in runs}
        for key in self._registry.runs():
            if key not in wanted:
                await self.stop(key, 0.0)
                await in_thread(self._wait_for_end, key)
                await self.forget(key)
        await self.poll()
        for thread in self._statuses.recording_deaths():  # so that the next poll finds how these runs ended
            await in_thread(thread.join, DEATH_LIMIT_S)
        return [status for status in await self.poll() if status.key in wanted]

    async def forget(self, key: RunKey) -> None:
        self._registry.remove(key)
        self._call_locks.pop(key, None)
        self._statuses.forget(key)

    # -- launch

    def _launch(self, run: Run) -> None:
        self._check_place(run)
        folder = RunFolder(run.home / f"gen-{run.key.generation}")
        if folder.exit.exists():
            self._registry.add(run.key, folder)  # a restored database may ask for a run that was forgotten
            return
        if folder.supervised():
            assignment = asdict(run.assignment)
            call(folder, {"op": "launch", "generation": run.key.generation, "assignment": assignment})
            return
        if folder.supervisor.exists():  # its supervisor has died, which the next poll reports
            return
        self._end_older(run.key)
        content = {**self._common(run), **self._describe(run)}
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._hand_over(run)
        lock = folder.take_lock()  # before a poll finds the run, which would treat its supervisor as dead
        if lock is None:
            return
        try:
            write_record(folder.run, content, durable=True)
            self._registry.add(run.key, folder)
            self._supervise(folder, lock)
        finally:
            os.close(lock)

    def _check_place(self, run: Run) -> None:
        for part in run.assignment.parts:
            place = self.places.get(part.node)
            if place is None or any(not 0 <= device < place.gpus for device in part.devices):
                raise LaunchError(f"there is no node {part.node!r} with devices {list(part.devices)}")
        if not run.assignment.parts:
            raise LaunchError(f"run {run.key.job}.{run.key.generation} was assigned neither devices nor nodes")

    def _common(self, run: Run) -> dict[str, Any]:
        """Return the description of the run for its supervisor, as far as it is the same for all backends."""
        spec = run.spec
        limits: dict[str, float] = {"pids": MOST_PROCESSES}
        resources = spec.get("resources") or {}
        if resources.get("memory_per_gpu_gib"):
            most = max(1.0, (resources.get("gpus") or {}).get("high", 1.0))
            limits["memory"] = resources["memory_per_gpu_gib"] * most * 2**30
        return {
            "job": run.key.job,
            "generation": run.key.generation,
            "assignment": asdict(run.assignment),
            "spec": dict(spec),
            "home": str(run.home.resolve()),
            "restore": list(run.restore),
            "hot": run.hot,
            "nodes": {name: asdict(place) for name, place in self.places.items()},
            "marker": f"{self._digest}-{run.key.job}-{run.key.generation}",
            "limits": limits,
            "settings": self.settings,
            "asked_at": time.time(),
        }

    def _supervise(self, folder: RunFolder, lock: int) -> None:
        """Start the supervisor. It inherits the lock of the run, so that no second one can start at any time."""
        words = [sys.executable, "-m", "argosy.live.supervisor", str(folder.run), str(lock)]
        with folder.complaints.open("ab") as complaints:
            start_detached(words, environment_of(None), lock, complaints.fileno())

    def _end_older(self, key: RunKey) -> None:
        """End older generations of the job, because only one may run at a time."""
        for other in self._registry.runs():
            if other.job == key.job and other.generation < key.generation:
                self._stop(other, 0.0)
                self._wait_for_end(other)

    # -- stop

    def _stop(self, key: RunKey, grace_s: float) -> None:
        folder = self._registry.folder(key)
        if folder is None or folder.exit.exists() or not folder.supervised():
            return
        answered = call(folder, {"op": "stop", "generation": key.generation, "grace_s": grace_s})
        if not answered:  # it hangs, so it would not stop its workers
            self._kill_supervisor(folder)

    def _kill_supervisor(self, folder: RunFolder) -> None:
        record = read_record(folder.supervisor)
        if record is not None:
            found = {one for one in process_table.numbered([record["pid"]]) if one.started == record["started"]}
            process_table.send(found, signal.SIGKILL, os.getuid())

    def _wait_for_end(self, key: RunKey, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        folder = self._registry.folder(key)
        while folder is not None and time.monotonic() < end:
            if self._statuses.read(key, folder).phase is Phase.EXITED:
                return
            time.sleep(0.02)
        if folder is not None:
            self._kill_supervisor(folder)

    # -- poll

    def _poll(self) -> list[Status]:
        self._tend()
        found = []
        for key in self._registry.runs():
            folder = self._registry.folder(key)
            if folder is not None:
                found.append(self._statuses.read(key, folder))
        return found

    def _call_lock(self, key: RunKey) -> asyncio.Lock:
        return self._call_locks.setdefault(key, asyncio.Lock())
