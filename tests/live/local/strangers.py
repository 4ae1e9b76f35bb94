"""Real users of this machine without files or jobs, for tests of what one user may do to another."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SYSTEM_PYTHON = "/usr/bin/python3"
as_root = pytest.mark.skipif(
    os.getuid() != 0 or not Path(SYSTEM_PYTHON).exists(), reason="only root may become somebody else"
)
ANN, BEN = "nobody", "daemon"  # every Linux has them


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that all users can reach, other than those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="open-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def do_as(user: str, *words: str) -> subprocess.CompletedProcess[str]:
    account = pwd.getpwnam(user)
    return subprocess.run(
        words,
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )


def owner(path: Path) -> str:
    return pwd.getpwuid(path.lstat().st_uid).pw_name
