"""Keeps a list of the runs that are not forgotten, as links to their folders. It outlives the daemon."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path

from argosy.live.backends.base import RunKey
from argosy.live.daemon_log import note
from argosy.live.supervisor.records import RunFolder

_NAME = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


class RunRegistry:
    def __init__(self, folder: Path) -> None:
        self.path = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folders: dict[RunKey, RunFolder] = {}
        self._strange: set[str] = set()  # names that are not of runs; each is logged once

    def add(self, key: RunKey, folder: RunFolder) -> None:
        with contextlib.suppress(FileExistsError):
            self._link(key).symlink_to(folder.path.resolve())

    def remove(self, key: RunKey) -> None:
        self._link(key).unlink(missing_ok=True)
        self._folders.pop(key, None)

    def runs(self) -> list[RunKey]:
        """Return all runs. Other files in the folder (of NFS, of an editor) are logged and left alone."""
        found = []
        for name in os.listdir(self.path):
            parts = _NAME.fullmatch(name)
            if parts:
                found.append(RunKey(int(parts[1]), int(parts[2])))
            elif name not in self._strange:
                self._strange.add(name)
                note("a file that is not a link to a run is ignored", logging.WARNING, path=str(self.path / name))
        return sorted(found)

    def folder(self, key: RunKey) -> RunFolder | None:
        if key not in self._folders:
            try:
                self._folders[key] = RunFolder(os.readlink(self._link(key)))
            except OSError:
                return None
        return self._folders[key]

    def _link(self, key: RunKey) -> Path:
        return self.path / f"{key.job}-{key.generation}"
