"""Opens, reads, makes and removes files in places where jobs can write, safely.

A job may replace its files by a link to anything, a pipe that blocks whoever opens it, or an endless file. So nothing
here follows a link: folders are opened one after the other and everything is done relative to their descriptors; what
is opened must be a plain file with a single name, and is read up to a limit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from argosy.live.errors import NotFound

_FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe without a writer would block
DEEPEST = 100  # levels of nested folders that are removed
MOST_REMOVED = 1_000_000  # entries in one call: a job may fill a folder as fast as it is emptied


@contextmanager
def folder(path: Path | str, within: int | None = None) -> Iterator[int]:
    """Yield a descriptor of a folder; raise OSError if it is a link or anything else."""
    found = os.open(path, _FOLDER, dir_fd=within)
    try:
        yield found
    finally:
        os.close(found)


def open_file(path: Path | str, within: int | None = None) -> int:
    """Return a descriptor of a plain file with a single name; raise OSError for anything else. It never blocks."""
    found = os.open(path, _FILE, dir_fd=within)
    about = os.fstat(found)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        os.close(found)
        raise OSError(f"{path} is not a plain file; something has replaced it")
    return found


def open_below(root: Path, path: Path) -> int:
    """Return a descriptor of the file at `path` below `root`; raise NotFound if there is no such plain file."""
    try:
        *folders, name = path.relative_to(root).parts
        if ".." in (*folders, name):
            raise ValueError
        at = os.open(root, _FOLDER)
        try:
            for one in folders:
                deeper = os.open(one, _FOLDER, dir_fd=at)
                os.close(at)
                at = deeper
            return open_file(name, at)
        finally:
            os.close(at)
    except (OSError, ValueError):
        hint = "it may not have been written yet, or something has replaced it"
        raise NotFound("there is no such file", hint=hint) from None


def read_file(path: Path, most_bytes: int) -> bytes:
    """Return the content of a plain file, at most `most_bytes` of it."""
    with os.fdopen(open_file(path), "rb") as file:
        return file.read(most_bytes)


def make_folder(name: str, within: int, owner: tuple[int, int] | None = None) -> None:
    """Make a folder and give it to `owner` (user and group), or accept an existing one that is the owner's.

    `within` must be a folder that only we can change. Raises OSError if something else has taken the name.
    """
    try:
        os.mkdir(name, 0o700, dir_fd=within)
    except FileExistsError:
        about = os.stat(name, dir_fd=within, follow_symlinks=False)
        if stat.S_ISDIR(about.st_mode) and about.st_uid == (os.geteuid() if owner is None else owner[0]):
            return
        if owner is None or about.st_uid != os.geteuid():
            raise
        os.rmdir(name, dir_fd=within)  # ours and empty: a daemon was killed before it could hand it over
        os.mkdir(name, 0o700, dir_fd=within)
    if owner is not None:
        with folder(name, within) as made:
            os.fchown(made, *owner)


def remove_tree(name: str, within: int, uid: int) -> None:
    """Remove a file, a link, or a folder of this user with its contents. What cannot be removed stays.

    Folders of other users stay too: a user who may move one here must not be able to have it emptied.
    """
    _remove(name, within, uid, DEEPEST, [MOST_REMOVED])


def _remove(name: str, within: int, uid: int, deeper: int, left: list[int]) -> None:
    left[0] -= 1
    if left[0] < 0:
        return
    with suppress(OSError):
        os.unlink(name, dir_fd=within)
        return
    if deeper:
        with suppress(OSError), folder(name, within) as inside, os.scandir(inside) as entries:
            for entry in entries if os.fstat(inside).st_uid == uid else ():
                _remove(entry.name, inside, uid, deeper - 1, left)
        with suppress(OSError):
            os.rmdir(name, dir_fd=within)
