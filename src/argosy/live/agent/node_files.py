"""The checkpoints of a session on its node's own disk, where node and head have no common folder.

Checkpoints from which the run continues are brought here before its workers start. Those that it saves are sent to the
head, which counts them as saved only when they have arrived there.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from argosy.live.backends.base import LaunchError
from argosy.live.supervisor.cluster.checkpoint_files import Arrival, read_part


def files_folder(marker: str) -> Path:
    """Return the folder of a run's checkpoints on this node. Users must be able to reach what is in it."""
    return Path(tempfile.gettempdir()) / f"argosy-checkpoints-{os.geteuid()}" / marker


class NodeFiles:
    """The folder of one session. `send` sends a message to the head; `ready` is called when workers may start."""

    def __init__(
        self, marker: str, generation: int, uid: int, send: Callable[[dict[str, Any]], None], ready: Callable[[], None]
    ) -> None:
        self._uid, self._send, self._ready = uid, send, ready
        self._own = f"gen-{generation}"
        self.folder = files_folder(marker)
        top = self.folder.parent
        top.mkdir(mode=0o711, exist_ok=True)
        about = top.lstat()
        if about.st_uid != os.geteuid() or not stat.S_ISDIR(about.st_mode) or about.st_mode & 0o022:
            raise LaunchError(f"{top} is not a folder that only the agent can change; remove it")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.folder.chmod(0o711)
        self._give((self.folder / self._own), make=True)
        self._arrival: Arrival | None = None
        self._restore: list[str] = []
        self.is_ready = False

    def bring(self, restore: Sequence[str]) -> None:
        """Get the first checkpoint of these that can be had."""
        self._restore = list(restore)
        self._bring_next()

    def _bring_next(self) -> None:
        if not self._restore:
            self._end()
            return
        self._arrival = Arrival(self._restore.pop(0), self.folder, self._ask, self._arrived)
        self._arrival.begin()

    def _ask(self, path: str, at: int) -> None:
        self._send({"op": "get", "path": path, "at": at})

    def _arrived(self, why: str) -> None:
        assert self._arrival is not None
        if why:
            self._bring_next()  # the one before it
            return
        self._give((self.folder / self._arrival.checkpoint).parent)
        self._end()

    def _end(self) -> None:
        self.is_ready = True
        self._ready()

    def take(self, message: Mapping[str, Any]) -> None:
        """Take in a part of a checkpoint that the head has sent."""
        if self._arrival is not None:
            self._arrival.take(message)

    def part(self, message: Mapping[str, Any]) -> None:
        """Send a part of a checkpoint that the run has saved."""
        own = f"{self._own}/"
        self._send(read_part(self.folder, message, lambda checkpoint: checkpoint.startswith(own)))

    def _give(self, folder: Path, *, make: bool = False) -> None:
        """Give a folder of ours, and all that is in it, to the user of the run."""
        if make:
            folder.mkdir(mode=0o700)
        for path in [*folder.rglob("*"), folder]:
            os.chown(path, self._uid, -1, follow_symlinks=False)
