"""What the jobs of this test have in common: they tell when they run, and find out if another generation does too.

A process holds a lock of its own as long as it lives: the kernel takes it back, whatever ends the process. Who starts
takes its own first and then tries all others, so of two generations that meet at least one sees the other.
"""

from __future__ import annotations

import atexit
import fcntl
import os
from pathlib import Path


class Once:
    def __init__(self, folder: Path) -> None:
        self.folder, self.generation = folder, os.environ["ARGOSY_GENERATION"]
        folder.mkdir(parents=True, exist_ok=True)
        self._own = os.open(folder / f"alive-{self.generation}-{os.getpid()}", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._own, fcntl.LOCK_EX)
        self.tell("start")
        self.look()
        atexit.register(self.tell, "end")

    def look(self) -> None:
        """Check whether another generation runs; checks share a lock, so that they do not see each other."""
        for path in self.folder.glob("alive-*"):
            if not path.name.startswith(f"alive-{self.generation}-"):
                other = os.open(path, os.O_RDONLY)
                try:
                    fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.tell(f"meets {path.name}")
                finally:
                    os.close(other)

    def tell(self, what: str) -> None:
        with (self.folder / "story").open("a") as story:
            fcntl.flock(story, fcntl.LOCK_EX)
            story.write(f"{self.generation} {os.getpid()} {what}\n")
