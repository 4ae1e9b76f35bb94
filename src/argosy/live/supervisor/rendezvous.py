"""Where the workers of a run meet: a file for each plan, in a folder that only the run's user can enter.

A server on the loopback interface would be open to everybody on this machine, and would tell whoever asks all that is
in it. Files need no secret, no port and no process. They are small, and lie in memory where the system has a place
for that, so that a full disk keeps nobody from meeting.
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
        """Of a plan: no other plan's words are there, nor what a worker left half written."""
        return str(self.folder / f"plan-{version}")

    def forget(self, version: int) -> None:
        """All are past this plan."""
        try:
            with folder(self.folder) as inside:
                os.unlink(f"plan-{version}", dir_fd=inside)
        except OSError:
            return  # nobody met there

    def remove(self) -> None:
        remove(self.folder, self.uid)


def remove(path: Path, uid: int) -> None:
    """Take the folder away; its user may have put anything in its place."""
    with folder(path.parent) as parent:
        remove_tree(path.name, parent, uid)
