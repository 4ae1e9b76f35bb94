"""Opening files that lie where jobs can write, without being led astray.

A job may replace its log by a link to anything the daemon can read, or by a pipe that blocks its reader. So every
step of the way is opened without following links, and the end must be a plain file of one name.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from argosy.live.problems import NotFound

_STEP = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
_END = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe without a writer would block


def open_below(root: Path, path: Path) -> int:
    """A descriptor of the file at `path`, which lies below `root`; `NotFound` if it is not there or not a file."""
    try:
        *folders, name = path.relative_to(root).parts
        if ".." in (*folders, name):
            raise ValueError
        at = os.open(root, _STEP)
        try:
            for folder in folders:
                deeper = os.open(folder, _STEP, dir_fd=at)
                os.close(at)
                at = deeper
            end = os.open(name, _END, dir_fd=at)
        finally:
            os.close(at)
    except (OSError, ValueError):
        raise NotFound("there is no such file", hint="it may not have been written yet") from None
    found = os.fstat(end)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(end)
        raise NotFound("this is not a plain file", hint="something has replaced it")
    return end
