"""Reads the status files of supervisors, and records the end of runs whose supervisor has died."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from argosy.live.backends.base import Phase, RunKey, Status
from argosy.live.supervisor import rendezvous
from argosy.live.supervisor.cleanup import clean_up
from argosy.live.supervisor.records import RunFolder, read_record, write_record

FRESH_S = 1.5  # a younger file proves that the supervisor is alive, because it writes at least every second


class Version(NamedTuple):
    """One version of a file. The time alone is not enough: two files written in one tick of the clock have the same."""

    name: str
    inode: int
    written_ns: int


# returns whether all workers that a dead supervisor had on other hosts, by its record and run.json, are certainly dead
Fence = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]


class StatusReader:
    """Reads the status of runs; a file is read again only if it has changed."""

    def __init__(self, fence: Fence | None = None) -> None:
        self._fence = fence
        self._seen: dict[RunKey, tuple[Version | None, Status]] = {}  # and the version of its file
        self._recording_deaths: dict[RunKey, threading.Thread] = {}

    def read(self, key: RunKey, folder: RunFolder) -> Status:
        """Return the newest status of a run; if its supervisor has died, start to record that."""
        seen = self._seen.get(key)
        if seen is not None and seen[1].phase is Phase.EXITED:
            return seen[1]
        path, version = folder.exit, _version(folder.exit)
        if version is None:
            path, version = folder.status, _version(folder.status)
            fresh = version is not None and 0 <= time.time() - version.written_ns / 1e9 < FRESH_S
            if not fresh and not folder.supervised() and _version(folder.exit) is None:
                self._start_recording_death(key, folder)
        if seen is None or seen[0] != version:
            seen = (version, _read_status(key, read_record(path) or {}))
            self._seen[key] = seen
        return seen[1]

    def _start_recording_death(self, key: RunKey, folder: RunFolder) -> None:
        """Record the death in a thread, because killing processes may take time. A later poll finds the record."""
        thread = self._recording_deaths.get(key)
        if thread is None or not thread.is_alive():  # try again if the disk was full
            thread = threading.Thread(target=_record_death, args=(folder, self._fence), daemon=True)
            self._recording_deaths[key] = thread
            thread.start()

    def recording_deaths(self) -> list[threading.Thread]:
        """Return the threads that record the end of runs whose supervisor has died."""
        return list(self._recording_deaths.values())

    def forget(self, key: RunKey) -> None:
        self._seen.pop(key, None)
        self._recording_deaths.pop(key, None)


def _record_death(folder: RunFolder, fence: Fence | None = None) -> None:
    """Kill the processes that a dead supervisor has left, and record that the run has ended."""
    record, last = read_record(folder.supervisor), read_record(folder.status) or {}
    message = "its supervisor was killed" if record else "its supervisor did not start"
    # the exit code is None, because it is unknown how the job ended, or whether it began at all
    ended = {**last, "phase": Phase.EXITED, "exit_code": None, "message": message, "workers": []}
    lock = folder.take_lock()
    if lock is None:  # another thread or process is doing this
        return
    try:
        run = read_record(folder.run) or {}
        if fence is not None and not fence(record or {}, run):  # a later poll asks again
            return
        clean_up(record or {}, last.get("workers", []), run.get("marker", "none"), run.get("uid", os.getuid()))
        sockets = Path((record or {}).get("sockets", folder.path))
        if record and "rendezvous" in record:
            rendezvous.remove(Path(record["rendezvous"]), run.get("uid", os.getuid()))
        if sockets != folder.path:
            shutil.rmtree(sockets, ignore_errors=True)
        with contextlib.suppress(OSError):  # if the disk is full, the next poll tries again
            write_record(folder.exit, ended, durable=True)
    finally:
        os.close(lock)


def _version(path: Path) -> Version | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return Version(path.name, found.st_ino, found.st_mtime_ns)


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
