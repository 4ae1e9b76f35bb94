"""Write files that appear complete or not at all: a temporary file in the same folder is renamed to the target."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.errors import InputError


@contextmanager
def writing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the target's folder; it becomes the target when the block ends without an error.

    The temporary name has the target's suffix, for writers that choose a format by it. An existing file keeps its
    content until the end, and its permissions; a symbolic link keeps pointing to the same file.
    """
    target = Path(path)
    try:
        target = target.resolve()  # a link that points at itself fails here
        mode = _mode_to_keep(target, path)
        handle, name = tempfile.mkstemp(prefix=".tmp-", suffix=f"-{target.name}", dir=target.parent)
        os.close(handle)
    except (OSError, RuntimeError) as problem:
        raise _unwritable(path, problem) from None
    temporary = Path(name)
    try:
        yield temporary
        try:
            temporary.chmod(mode)
            temporary.replace(target)
        except OSError as problem:
            raise _unwritable(path, problem) from None
    finally:
        temporary.unlink(missing_ok=True)


def _mode_to_keep(target: Path, shown: str | Path) -> int:
    """Return the permissions of the existing file, or those that a new file would get."""
    try:
        found = target.stat()
    except FileNotFoundError:
        umask = os.umask(0)  # the only way to read it is to set it
        os.umask(umask)
        return 0o666 & ~umask
    if not stat.S_ISREG(found.st_mode):  # renaming over a device would replace the device
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise InputError(f"cannot be written: it is {what}", where=str(shown), hint="name a file")
    if not os.access(target, os.W_OK):
        raise InputError("cannot be written: it is read-only", where=str(shown), hint="choose another path")
    return stat.S_IMODE(found.st_mode)


def _unwritable(path: str | Path, problem: OSError | RuntimeError) -> InputError:
    reason = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
    hint = "choose a path that you may write to"
    if isinstance(problem, FileNotFoundError):
        hint = f"create the folder {Path(path).parent} first"
    return InputError(f"cannot be written: {reason}", where=str(path), hint=hint)
