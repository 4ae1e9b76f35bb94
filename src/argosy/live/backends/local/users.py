"""Running as the Unix user who submitted the job, where the daemon may."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from argosy.live.backends.base import LaunchError, Run


def must_switch(user: str | None) -> str | None:
    """The user to become, or None if it is us already."""
    if user is None:
        return None
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise LaunchError(f"this machine has no user {user!r}") from None
    if account.pw_uid == os.getuid():
        return None
    if os.getuid() != 0:
        raise LaunchError(f"only a daemon of root can run jobs as {user!r}")
    return user


def environment_of(user: str | None) -> dict[str, str]:
    """What a job finds in its environment beside what its file says: ours for our own user, a login's for others."""
    if user is None:
        return {name: value for name, value in os.environ.items() if not name.startswith("ARGOSY_")}
    account = pwd.getpwnam(user)
    return {
        "HOME": account.pw_dir, "USER": user, "LOGNAME": user, "SHELL": account.pw_shell or "/bin/sh",
        "PATH": os.environ.get("PATH", os.defpath), "LANG": os.environ.get("LANG", "C.UTF-8"),
    }


def hand_over(run: Run, home: Path) -> None:
    """The folder for its checkpoints, which belongs to the run's user and can be reached by that user."""
    checkpoints = run.home / "checkpoints" / f"gen-{run.key.generation}"
    checkpoints.mkdir(mode=0o700, parents=True, exist_ok=True)
    user = must_switch(run.user)
    if user is None:
        return
    account = pwd.getpwnam(user)
    for folder in (run.home / "checkpoints", *(run.home / "checkpoints").iterdir()):
        os.chown(folder, account.pw_uid, account.pw_gid)
    _close_all_beside(run.home, home)


def _close_all_beside(folder: Path, home: Path) -> None:
    """Others may pass through to this folder, but neither look around on the way nor read what lies beside it."""
    path = folder.resolve()
    while path.is_relative_to(home):
        for beside in path.parent.iterdir() if path != home else ():
            if beside != path and not beside.is_symlink() and beside.name != "jobs":
                beside.chmod(beside.stat().st_mode & 0o7711 if beside.is_dir() else beside.stat().st_mode & 0o7700)
        path.chmod((path.stat().st_mode & 0o7700) | 0o011)
        path = path.parent
