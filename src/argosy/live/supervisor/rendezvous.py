"""Provides the files through which a run's workers find each other: one for each plan, in a private folder.

A store that listens on the loopback interface would be open to every user of this machine. Files need no secret, no
port and no process. They are small, and are kept in shared memory where that is available, so that a full disk does
not prevent a rendezvous. `argosy.sdk.group.rendezvous` is the worker's side.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from argosy.live.untrusted_files import folder, remove_tree

IN_MEMORY = Path("/dev/shm")


class Rendezvous:
    def __init__(self, uid: int) -> None:
        base = IN_MEMORY if os.access(IN_MEMORY, os.W_OK | os.X_OK) else None
        self.uid, self.folder = uid, Path(tempfile.mkdtemp(prefix="argosy-", dir=base))
        if uid != os.getuid():
            os.chown(self.folder, uid, -1, follow_symlinks=False)

    def place(self, version: int) -> str:
        """Return the path of a plan's file, which is new, so that it has no entries of former plans or dead workers."""
        return str(self.folder / f"plan-{version}")

    def forget(self, version: int) -> None:
        """Remove the file of a plan after all workers have switched to the next one."""
        try:
            with folder(self.folder) as inside:
                os.unlink(f"plan-{version}", dir_fd=inside)
        except OSError:
            return  # a plan with a single member has no file

    def remove(self) -> None:
        remove(self.folder, self.uid)


def remove(path: Path, uid: int) -> None:
    """Remove the folder, and nothing else even if its user has put a link in its place."""
    with folder(path.parent) as parent:
        remove_tree(path.name, parent, uid)
