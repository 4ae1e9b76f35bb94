"""Keeps the list of runs on the disk, as links to their folders, so that it outlives the daemon."""

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
        self._ignored: set[str] = set()  # names of files that are not links to runs; each is logged once

    def add(self, key: RunKey, folder: RunFolder) -> None:
        with contextlib.suppress(FileExistsError):
            self._link(key).symlink_to(folder.path.resolve())

    def remove(self, key: RunKey) -> None:
        self._link(key).unlink(missing_ok=True)
        self._folders.pop(key, None)

    def runs(self) -> list[RunKey]:
        """Return all runs. Other files in the folder, such as those of NFS or an editor, are logged and ignored."""
        found = []
        for name in os.listdir(self.path):
            parts = _NAME.fullmatch(name)
            if parts:
                found.append(RunKey(int(parts[1]), int(parts[2])))
            elif name not in self._ignored:
                self._ignored.add(name)
                note("ignored a file that is not a link to a run", logging.WARNING, path=str(self.path / name))
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
