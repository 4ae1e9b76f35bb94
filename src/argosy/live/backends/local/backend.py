"""The local backend runs jobs on this machine, each run under a supervisor process that outlives the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pwd
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from argosy.cluster.cluster import Node
from argosy.live.backends.base import LaunchError, NodeStatus, Phase, Run, RunKey, Status
from argosy.live.backends.local import machine
from argosy.live.backends.local.bounded_threads import BoundedThreads, in_thread
from argosy.live.backends.local.command import Command, read_at_start, understand
from argosy.live.backends.local.run_registry import RunRegistry
from argosy.live.backends.local.supervisor_client import call
from argosy.live.backends.local.users import environment_of, hand_over, look_as, must_switch
from argosy.live.backends.local.zygote_pool import ZygotePool
from argosy.live.supervisor import process_table, rendezvous
from argosy.live.supervisor.cleanup import clean_up
from argosy.live.supervisor.detach import start_detached
from argosy.live.supervisor.records import RunFolder, read_record, write_record
from argosy.live.supervisor.worker_spawner import WARM_LIMIT_S

FRESH_S = 1.5  # a supervisor writes at least every second
LAUNCHES, LAUNCH_LIMIT_S = 4, 90.0  # launches of one user at a time, and how long one may take
PREPARATIONS = 4  # of one user at a time; further jobs are not prepared
STOPS, STOP_LIMIT_S = 32, 60.0
DEATH_LIMIT_S = 5.0  # a daemon that starts waits no longer than this for processes that are hard to kill
MOST_PROCESSES = 16384  # of one run, where the system allows us a control group


class LocalBackend:
    """`home` is the daemon's folder. `nodes` default to what the machine has; `cuda` says whether their GPUs are real.

    `settings` are passed to the supervisors: `log_bytes`, `rules` (see `membership_actions.Rules`), and `warm_limit_s`.
    """

    name = "local"
    runs_as_owners = True
    pauses_cold = True  # a command without the SDK can be paused too, where it holds no GPU

    def __init__(
        self,
        home: Path,
        nodes: Sequence[Node] | None = None,
        *,
        cuda: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        zygotes: Path | None = None,
    ) -> None:
        found, real = machine.default_nodes() if nodes is None else (tuple(nodes), bool(machine.real_gpus()))
        self.home, self._nodes = home.resolve(), found
        self.places = machine.places(found, real if cuda is None else cuda)
        self.pauses_cold = not any(place.cuda for place in self.places.values())
        self.settings = dict(settings or {})
        warm_limit_s = float(self.settings.get("warm_limit_s", WARM_LIMIT_S))
        self.zygotes = ZygotePool(zygotes or self.home / "local" / "zygotes", warm_limit_s=warm_limit_s)
        self._registry = RunRegistry(self.home / "local" / "runs")
        self._digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:8]
        self._seen: dict[RunKey, tuple[int, Status]] = {}  # by the time of the file it was read from
        self._call_locks: dict[RunKey, asyncio.Lock] = {}  # one call at a time for each run
        self._launches, self._stops = BoundedThreads(LAUNCHES, LAUNCH_LIMIT_S), BoundedThreads(STOPS, STOP_LIMIT_S)
        self._preparations = BoundedThreads(PREPARATIONS, LAUNCH_LIMIT_S)
        self._polling: asyncio.Future[list[Status]] | None = None
        self._recording_deaths: dict[RunKey, threading.Thread] = {}

    # -- the protocol

    async def nodes(self) -> Sequence[NodeStatus]:
        return [NodeStatus(node, True) for node in self._nodes]

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
        """Return the status of every run without waiting for any; what takes time is done in other threads.

        A poll that hangs all the same is not begun a second time.
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
        for thread in list(self._recording_deaths.values()):  # so that the next poll can tell how these runs ended
            await in_thread(thread.join, DEATH_LIMIT_S)
        return [status for status in await self.poll() if status.key in wanted]

    async def forget(self, key: RunKey) -> None:
        self._registry.remove(key)
        self._seen.pop(key, None)
        self._call_locks.pop(key, None)
        self._recording_deaths.pop(key, None)

    async def close(self) -> None:
        await in_thread(self.zygotes.end)

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
        if folder.supervisor.exists():  # its supervisor has died: the next poll says so
            return
        self._end_older(run.key)
        content = self._describe(run)
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        hand_over(run, self.home)
        lock = folder.take_lock()  # before a poll can find the run and take its supervisor for dead
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
                raise LaunchError(f"this machine has no node {part.node!r} with devices {list(part.devices)}")
        if not run.assignment.parts:
            raise LaunchError(f"run {run.key.job}.{run.key.generation} was assigned no devices and no node")

    def _describe(self, run: Run) -> dict[str, Any]:
        """Describe the run for its supervisor: the content of run.json."""
        spec, user = run.spec, must_switch(run.user)
        base, cwd, command = _read(spec, user)
        cuda = any(self.places[part.node].cuda for part in run.assignment.parts)
        zygote = self._warm(command.interpreter, spec, user, cuda=cuda)
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
            "user": user,
            "uid": pwd.getpwnam(user).pw_uid if user else os.getuid(),
            "env": {**base, **run.env},
            "hot": run.hot,
            "cwd": str(cwd),
            "zygote": str(zygote) if zygote else None,
            "command": {"how": command.how, "argv": command.argv},
            "cold": {"how": command.cold.how, "argv": command.cold.argv},
            "nodes": {name: asdict(place) for name, place in self.places.items()},
            "marker": f"{self._digest}-{run.key.job}-{run.key.generation}",
            "limits": limits,
            "settings": self.settings,
            "asked_at": time.time(),
        }

    def _warm(self, interpreter: str | None, spec: Mapping[str, Any], user: str | None, *, cuda: bool) -> Path | None:
        """Return the socket of a zygote that is warm or warming up; None: the job starts cold."""
        if interpreter is None:
            return None
        base = environment_of(user)
        own: Mapping[str, str] = spec.get("env") or {}
        distinct = read_at_start({**base, **own})
        if not cuda and "OMP_NUM_THREADS" not in own:
            distinct["OMP_NUM_THREADS"] = "1"
        return self.zygotes.ensure(interpreter, distinct, base, user)

    def _prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        """Warm the interpreter of a waiting job. Without a job (at start-up): our own, and those in use before."""
        cuda = any(place.cuda for place in self.places.values())
        if spec is not None:
            user = must_switch(user)
            self._warm(_read(spec, user)[2].interpreter, spec, user, cuda=cuda)
            return
        before = self.zygotes.recall()
        self._warm(sys.executable, {}, None, cuda=cuda)
        for record in before:
            with contextlib.suppress(LaunchError):  # the user no longer has an account
                account = must_switch(record["user"])
                self.zygotes.ensure(record["interpreter"], record["distinct"], environment_of(account), account)

    def _supervise(self, folder: RunFolder, lock: int) -> None:
        """Start the supervisor. It inherits the run's lock, so that a second one can start at no moment."""
        words = [sys.executable, "-m", "argosy.live.supervisor", str(folder.run), str(lock)]
        with folder.complaints.open("ab") as complaints:
            start_detached(words, environment_of(None), lock, complaints.fileno())

    def _end_older(self, key: RunKey) -> None:
        """End older generations of the job: at most one may ever run."""
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
        if not answered:  # it hangs, and can no longer be relied on to stop its workers
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
            if self._status(key, folder).phase is Phase.EXITED:
                return
            time.sleep(0.02)
        if folder is not None:
            self._kill_supervisor(folder)

    # -- poll

    def _poll(self) -> list[Status]:
        self.zygotes.tend()
        found = []
        for key in self._registry.runs():
            folder = self._registry.folder(key)
            if folder is not None:
                found.append(self._status(key, folder))
        return found

    def _status(self, key: RunKey, folder: RunFolder) -> Status:
        """Read the run's newest status file. One that was just written proves that the supervisor lives."""
        seen = self._seen.get(key)
        if seen is not None and seen[1].phase is Phase.EXITED:
            return seen[1]
        path, changed = folder.exit, _changed(folder.exit)
        if not changed:
            path, changed = folder.status, _changed(folder.status)
            fresh = 0 <= time.time() - changed / 1e9 < FRESH_S
            if not fresh and not folder.supervised() and not _changed(folder.exit):
                self._start_recording_death(key, folder)
        if seen is None or seen[0] != changed:
            seen = (changed, _read_status(key, read_record(path) or {}))
            self._seen[key] = seen
        return seen[1]

    def _start_recording_death(self, key: RunKey, folder: RunFolder) -> None:
        """Record the death in another thread: killing what is left may take time. A later poll finds the record."""
        thread = self._recording_deaths.get(key)
        if thread is None or not thread.is_alive():  # again, if the disk was full
            thread = threading.Thread(target=self._record_death, args=(folder,), daemon=True)
            self._recording_deaths[key] = thread
            thread.start()

    def _record_death(self, folder: RunFolder) -> None:
        """Kill what a dead supervisor has left behind, and record that the run has ended."""
        record, last = read_record(folder.supervisor), read_record(folder.status) or {}
        message = "its supervisor was killed" if record else "its supervisor did not start"
        # no exit code: nobody knows how the job itself ended, or whether it began before the daemon died
        ended = {**last, "phase": Phase.EXITED, "exit_code": None, "message": message, "workers": []}
        lock = folder.take_lock()
        if lock is None:  # another process is doing the same
            return
        try:
            run = read_record(folder.run) or {}
            clean_up(record or {}, last.get("workers", []), run.get("marker", "none"), run.get("uid", os.getuid()))
            sockets = Path((record or {}).get("sockets", folder.path))
            if record and "rendezvous" in record:
                rendezvous.remove(Path(record["rendezvous"]), run.get("uid", os.getuid()))
            if sockets != folder.path:
                shutil.rmtree(sockets, ignore_errors=True)
            with contextlib.suppress(OSError):  # a full disk: the next poll finds the supervisor dead again
                write_record(folder.exit, ended, durable=True)
        finally:
            os.close(lock)

    def _call_lock(self, key: RunKey) -> asyncio.Lock:
        return self._call_locks.setdefault(key, asyncio.Lock())


def _read(spec: Mapping[str, Any], user: str | None) -> tuple[dict[str, str], Path, Command]:
    """Return the environment and the folder of a job, and how its command is started."""
    base = environment_of(user)
    cwd = Path(spec.get("workdir") or base.get("HOME") or "/")
    found = look_as(user, lambda: asdict(understand(spec["run"], {**base, **(spec.get("env") or {})}, cwd)))
    return base, cwd, Command(found["how"], tuple(found["argv"]), found["interpreter"], tuple(found["words"]))


def _changed(path: Path) -> int:
    """Return when the file was written, in nanoseconds; 0 if there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def _read_status(key: RunKey, content: Mapping[str, Any]) -> Status:
    return Status(
        key,
        Phase(content.get("phase", Phase.STARTING)),
        content.get("version", 0),
        content.get("exit_code"),
        content.get("message", ""),
        content.get("hot", False),
        content.get("report", {}),
        tuple(content.get("checkpoints", ())),
        tuple(content.get("overheads", ())),
        tuple(content.get("story", ())),
        content.get("restarts", 0),
    )
