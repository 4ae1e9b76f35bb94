"""The local backend: nodes of this machine, and runs under supervisors that outlive the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from argosy.cluster.cluster import Node
from argosy.live.backends.base import LaunchError, NodeStatus, Phase, Run, RunKey, Status
from argosy.live.backends.local import machine
from argosy.live.backends.local.calls import call
from argosy.live.backends.local.command import read_at_start, understand
from argosy.live.backends.local.detach import start_detached
from argosy.live.backends.local.processes import is_same
from argosy.live.backends.local.records import RunFolder, read_record, write_record
from argosy.live.backends.local.remains import clean_up
from argosy.live.backends.local.users import environment_of, hand_over, must_switch
from argosy.live.backends.local.zygotes import Zygotes

FRESH_S = 1.5  # a supervisor writes at least every second
MOST_PROCESSES = 16384  # of one run, where a control group can be had


class LocalBackend:
    """`home` is the daemon's folder. `nodes` default to what the machine has; `cuda` says whether their GPUs are real.

    `settings` are passed to the supervisors: `log_bytes`, and `rules` (see `plans.Rules`).
    """

    name = "local"
    pauses_cold = True  # a command without the SDK can be paused too, where it holds no GPU

    def __init__(self, home: Path, nodes: Sequence[Node] | None = None, *, cuda: bool | None = None,
                 settings: Mapping[str, Any] | None = None, zygotes: Path | None = None) -> None:
        found, real = machine.default_nodes() if nodes is None else (tuple(nodes), bool(machine.real_gpus()))
        self.home, self._nodes = home.resolve(), found
        self.places = machine.places(found, real if cuda is None else cuda)
        self.pauses_cold = not any(place.cuda for place in self.places.values())
        self.settings = dict(settings or {})
        self.zygotes = Zygotes(zygotes or self.home / "local" / "zygotes")
        self._registry = self.home / "local" / "runs"  # a link to the folder of each run that is not forgotten
        self._registry.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:8]
        self._seen: dict[RunKey, tuple[int, Status]] = {}  # by the time of the file it was read from
        self._folders: dict[RunKey, RunFolder] = {}
        self._doors: dict[RunKey, asyncio.Lock] = {}  # one call at a time for each run

    # -- the protocol

    async def nodes(self) -> Sequence[NodeStatus]:
        return [NodeStatus(node, True) for node in self._nodes]

    async def launch(self, run: Run) -> None:
        async with self._door(run.key):
            await asyncio.to_thread(self._launch, run)

    async def stop(self, key: RunKey, grace_s: float) -> None:
        async with self._door(key):
            await asyncio.to_thread(self._stop, key, grace_s)

    async def poll(self) -> Sequence[Status]:
        return await asyncio.to_thread(self._poll)

    async def adopt(self, runs: Sequence[Run]) -> Sequence[Status]:
        wanted = {run.key for run in runs}
        for key in self._registered():
            if key not in wanted:
                await self.stop(key, 0.0)
                await asyncio.to_thread(self._wait_for_end, key)
                await self.forget(key)
        return [status for status in await self.poll() if status.key in wanted]

    async def forget(self, key: RunKey) -> None:
        self._link(key).unlink(missing_ok=True)
        self._seen.pop(key, None)
        self._folders.pop(key, None)
        self._doors.pop(key, None)

    async def close(self) -> None:
        await asyncio.to_thread(self.zygotes.end)

    # -- launch

    def _launch(self, run: Run) -> None:
        self._check_place(run)
        folder = RunFolder(run.home / f"gen-{run.key.generation}")
        if folder.exit.exists():
            return
        if folder.supervised():
            assignment = asdict(run.assignment)
            call(folder, {"op": "launch", "generation": run.key.generation, "assignment": assignment})
            return
        if folder.supervisor.exists():  # it lived and died: the next poll tells
            return
        self._end_older(run.key)
        content = self._describe(run)
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        hand_over(run, self.home)
        lock = folder.take_lock()  # before anybody can find the run, and think that its supervisor has died
        if lock is None:
            return
        try:
            write_record(folder.run, content, durable=True)
            self._register(run.key, folder)
            self._supervise(folder, lock)
        finally:
            os.close(lock)

    def _check_place(self, run: Run) -> None:
        for part in run.assignment.parts:
            place = self.places.get(part.node)
            if place is None or any(not 0 <= device < place.gpus for device in part.devices):
                raise LaunchError(f"this machine has no node {part.node!r} with devices {list(part.devices)}")
        if not run.assignment.parts:
            raise LaunchError(f"run {run.key.job}.{run.key.generation} was given no place")

    def _describe(self, run: Run) -> dict[str, Any]:
        """All that the supervisor must know."""
        spec, user = run.spec, must_switch(run.user)
        base = environment_of(user)
        own: Mapping[str, str] = spec.get("env") or {}
        cwd = Path(spec.get("workdir") or base.get("HOME") or "/")
        if not cwd.is_dir():
            raise LaunchError(f"there is no folder {cwd}; correct workdir: in the job file")
        command = understand(spec["run"], {**base, **own}, cwd)
        zygote = None
        if command.interpreter is not None:
            distinct = read_at_start({**base, **own})
            if not any(self.places[part.node].cuda for part in run.assignment.parts) and "OMP_NUM_THREADS" not in own:
                distinct["OMP_NUM_THREADS"] = "1"
            zygote = self.zygotes.ensure(command.interpreter, distinct, base, user)
        limits: dict[str, float] = {"pids": MOST_PROCESSES}
        resources = spec.get("resources") or {}
        if resources.get("memory_per_gpu_gib"):
            most = max(1.0, (resources.get("gpus") or {}).get("high", 1.0))
            limits["memory"] = resources["memory_per_gpu_gib"] * most * 2**30
        return {
            "job": run.key.job, "generation": run.key.generation, "assignment": asdict(run.assignment),
            "spec": dict(spec), "home": str(run.home.resolve()), "restore": list(run.restore), "user": user,
            "env": {**base, **run.env}, "hot": run.hot, "cwd": str(cwd), "zygote": str(zygote) if zygote else None,
            "command": {"how": command.how, "argv": command.argv},
            "cold": {"how": command.cold.how, "argv": command.cold.argv},
            "nodes": {name: asdict(place) for name, place in self.places.items()},
            "marker": f"{self._digest}-{run.key.job}-{run.key.generation}", "limits": limits,
            "settings": self.settings, "asked_at": time.time(),
        }

    def _supervise(self, folder: RunFolder, lock: int) -> None:
        """Start the supervisor. It is born with the lock, so there is no moment at which a second one could be."""
        words = [sys.executable, "-m", "argosy.live.backends.local.supervisor", str(folder.run), str(lock)]
        with folder.complaints.open("ab") as complaints:
            start_detached(words, environment_of(None), lock, complaints)

    def _end_older(self, key: RunKey) -> None:
        """At most one generation of a job ever runs."""
        for other in self._registered():
            if other.job == key.job and other.generation < key.generation:
                self._stop(other, 0.0)
                self._wait_for_end(other)

    # -- stop

    def _stop(self, key: RunKey, grace_s: float) -> None:
        folder = self._folder(key)
        if folder is None or folder.exit.exists() or not folder.supervised():
            return
        answered = call(folder, {"op": "stop", "generation": key.generation, "grace_s": grace_s})
        if not answered:  # it does not listen: it hangs, and can not keep its promises any more
            self._kill_supervisor(folder)

    def _kill_supervisor(self, folder: RunFolder) -> None:
        record = read_record(folder.supervisor)
        if record is not None and is_same(record["pid"], record["started"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(record["pid"], signal.SIGKILL)

    def _wait_for_end(self, key: RunKey, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        folder = self._folder(key)
        while folder is not None and time.monotonic() < end:
            if self._status(key, folder).phase is Phase.EXITED:
                return
            time.sleep(0.02)
        if folder is not None:
            self._kill_supervisor(folder)

    # -- poll

    def _poll(self) -> list[Status]:
        self.zygotes.keep_warm()
        found = []
        for key in self._registered():
            folder = self._folder(key)
            if folder is not None:
                found.append(self._status(key, folder))
        return found

    def _status(self, key: RunKey, folder: RunFolder) -> Status:
        """What the newest of its files says. A file that was written a moment ago needs no further sign of life."""
        seen = self._seen.get(key)
        if seen is not None and seen[1].phase is Phase.EXITED:
            return seen[1]
        path, changed = folder.exit, _changed(folder.exit)
        if not changed:
            path, changed = folder.status, _changed(folder.status)
            fresh = 0 <= time.time() - changed / 1e9 < FRESH_S
            if not fresh and not folder.supervised() and not _changed(folder.exit):
                return _read_status(key, self._bury(folder))
        if seen is None or seen[0] != changed:
            seen = (changed, _read_status(key, read_record(path) or {}))
            self._seen[key] = seen
        return seen[1]

    def _bury(self, folder: RunFolder) -> dict[str, Any]:
        """A supervisor has died: kill what it left, and write down that the run has ended."""
        record, last = read_record(folder.supervisor), read_record(folder.status) or {}
        message = "its supervisor was killed" if record else "its supervisor did not start"
        # no exit code: how the job itself ended nobody can say, and a daemon may have died before it could begin
        ended = {**last, "phase": Phase.EXITED, "exit_code": None, "message": message, "workers": []}
        lock = folder.take_lock()
        if lock is None:  # somebody else is at it
            return last
        try:
            clean_up(record or {}, last.get("workers", []), (read_record(folder.run) or {}).get("marker", "none"))
            sockets = Path((record or {}).get("sockets", folder.path))
            if sockets != folder.path:
                shutil.rmtree(sockets, ignore_errors=True)
            with contextlib.suppress(OSError):  # a full disk: the next poll finds it dead again
                write_record(folder.exit, ended, durable=True)
        finally:
            os.close(lock)
        return ended

    # -- the registry

    def _link(self, key: RunKey) -> Path:
        return self._registry / f"{key.job}-{key.generation}"

    def _register(self, key: RunKey, folder: RunFolder) -> None:
        with contextlib.suppress(FileExistsError):
            self._link(key).symlink_to(folder.path.resolve())

    def _registered(self) -> list[RunKey]:
        return sorted(RunKey(*map(int, name.split("-"))) for name in os.listdir(self._registry))

    def _folder(self, key: RunKey) -> RunFolder | None:
        if key not in self._folders:
            try:
                self._folders[key] = RunFolder(os.readlink(self._link(key)))
            except OSError:
                return None
        return self._folders[key]

    def _door(self, key: RunKey) -> asyncio.Lock:
        return self._doors.setdefault(key, asyncio.Lock())


def _changed(path: Path) -> int:
    """When it was written; 0 if it is not there."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def _read_status(key: RunKey, content: Mapping[str, Any]) -> Status:
    return Status(
        key, Phase(content.get("phase", Phase.STARTING)), content.get("version", 0), content.get("exit_code"),
        content.get("message", ""), content.get("hot", False), content.get("report", {}),
        tuple(content.get("checkpoints", ())), tuple(content.get("overheads", ())), tuple(content.get("story", ())),
        content.get("restarts", 0),
    )

