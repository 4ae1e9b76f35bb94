"""The runs of a node, as folders on its disk: they outlive the agent, so that the next one finds what is left."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from argosy.live.agent.node_files import files_folder
from argosy.live.supervisor import process_table, rendezvous
from argosy.live.supervisor.cleanup import clean_up
from argosy.live.supervisor.records import RunFolder, read_record

MARKER = re.compile(r"([0-9a-f]{8}-\d{1,18})-\d{1,18}")  # home and job, generation
WAIT_S = 8.0  # a killed session's lock is free after this time


class NodeRuns:
    def __init__(self, folder: Path) -> None:
        self.path = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def folder(self, marker: str) -> RunFolder:
        if not MARKER.fullmatch(marker):
            raise ValueError(f"{marker[:60]!r} is not the mark of a run")
        return RunFolder(self.path / marker)

    def markers(self) -> list[str]:
        return sorted(name for name in os.listdir(self.path) if MARKER.fullmatch(name))

    def of_job(self, marker: str) -> list[str]:
        """Return all runs of the job that a run belongs to."""
        job = MARKER.fullmatch(marker)
        assert job is not None
        return [one for one in self.markers() if (found := MARKER.fullmatch(one)) and found[1] == job[1]]

    def end(self, marker: str) -> bool:
        """End a run, whoever serves it, and kill all that is left of it; return whether nothing is."""
        folder = self.folder(marker)
        if not folder.path.exists():
            return True
        end = time.monotonic() + WAIT_S
        while (lock := folder.take_lock()) is None:
            self.kill_session(folder)
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        try:
            return self.bury(folder)
        finally:
            os.close(lock)

    def kill_session(self, folder: RunFolder) -> None:
        record = read_record(folder.run)
        if record is not None:
            found = {one for one in process_table.numbered([record["pid"]]) if one.started == record["started"]}
            process_table.send(found, signal.SIGKILL, os.getuid())

    def bury(self, folder: RunFolder) -> bool:
        """Kill all processes that are left of a run, and remove its folder; the caller holds its lock."""
        run, record = read_record(folder.run), read_record(folder.supervisor) or {}
        workers = (read_record(folder.status) or {}).get("workers", [])
        if run is not None:
            if not clean_up(record, workers, run["marker"], run["uid"]):
                return False  # such as a process in an uninterruptible call
            _remove_places(folder, record, run)
            shutil.rmtree(files_folder(run["marker"]), ignore_errors=True)
        shutil.rmtree(folder.path, ignore_errors=True)
        return True


def _remove_places(folder: RunFolder, record: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    if "rendezvous" in record:
        with contextlib.suppress(OSError):
            rendezvous.remove(Path(record["rendezvous"]), run["uid"])
    sockets = Path(record.get("sockets", folder.path))
    if sockets != folder.path:
        shutil.rmtree(sockets, ignore_errors=True)
