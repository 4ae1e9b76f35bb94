"""Acts as the Unix user who submitted the job, if the daemon runs as root."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argosy.live.backends.base import LaunchError, Run
from argosy.live.supervisor.detach import Identity
from argosy.live.untrusted_files import folder, make_folder

LOOK_S = 10.0


def must_switch(user: str | None) -> str | None:
    """Return the user to switch to; None if the job runs as our own user."""
    if user is None:
        return None
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise LaunchError(f"this machine has no user {user!r}; create the account, or submit as another user") from None
    if account.pw_uid == os.getuid():
        return None
    if os.getuid() != 0:
        raise LaunchError(f"the daemon cannot run jobs as {user!r}, because it does not run as root")
    return user


def environment_of(user: str | None) -> dict[str, str]:
    """Return the basic environment of a job: the daemon's own, or for another user one like that of a login."""
    if user is None:
        return {name: value for name, value in os.environ.items() if not name.startswith("ARGOSY_")}
    account = pwd.getpwnam(user)
    return {
        "HOME": account.pw_dir,
        "USER": user,
        "LOGNAME": user,
        "SHELL": account.pw_shell or "/bin/sh",
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }


def look_as(user: str | None, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Call `look` with the permissions of this user and return its result, which must be plain JSON.

    This keeps users from reading, through the daemon, files that they cannot read themselves. It is done in a child
    process, which can be killed if a file system does not respond.
    """
    if user is None:
        return look()
    identity = Identity.of(user)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _answer(writer, identity, look)
    os.close(writer)
    try:
        data = _read_all(reader, time.monotonic() + LOOK_S)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not data:
        raise LaunchError(f"the files of {user!r} could not be read within {LOOK_S:g} s; is a network disk down?")
    answer: dict[str, Any] = json.loads(data)
    if "refused" in answer:
        raise LaunchError(answer["refused"])
    found: dict[str, Any] = answer["found"]
    return found


def _read_all(reader: int, until: float) -> bytes:
    """Read until the other end is closed; return b"" if that takes too long, as when the user stops the child."""
    data = b""
    ready = select.poll()  # because select() does not support descriptors above 1023
    ready.register(reader, select.POLLIN)
    while ready.poll(max(0.0, until - time.monotonic()) * 1000):
        chunk = os.read(reader, 1 << 16)
        if not chunk:
            return data
        data += chunk
    return b""


def _answer(writer: int, identity: Identity, look: Callable[[], dict[str, Any]]) -> None:
    """Become this user, call `look`, write the answer, and exit. This runs in the child process."""
    try:
        identity.take_on()
        try:
            answer: dict[str, Any] = {"found": look()}
        except (LaunchError, OSError) as refused:
            answer = {"refused": str(refused)}
        with os.fdopen(writer, "wb") as answers:
            answers.write(json.dumps(answer).encode())
    finally:
        os._exit(0)


def hand_over(run: Run, home: Path) -> None:
    """Make the folder for the checkpoints of a run, which its user owns and can reach.

    The folders above it stay ours, so that no user can replace them.
    """
    user = must_switch(run.user)
    account = pwd.getpwnam(user) if user is not None else None
    owner = (account.pw_uid, account.pw_gid) if account else None
    name = f"gen-{run.key.generation}"
    try:
        with folder(run.home) as job:
            with contextlib.suppress(FileExistsError):
                os.mkdir("checkpoints", 0o700, dir_fd=job)
            with folder("checkpoints", job) as checkpoints:
                if owner is not None:
                    os.fchown(checkpoints, os.geteuid(), os.getegid())
                    os.fchmod(checkpoints, 0o711)
                make_folder(name, checkpoints, owner)
    except OSError as problem:
        where, why = run.home / "checkpoints" / name, problem.strerror or problem
        raise LaunchError(f"{where} cannot be made: {why}; remove the file or link that is in its place") from None
    if account is not None:
        _make_reachable(run.home, home)


def _make_reachable(to: Path, home: Path) -> None:
    """Let other users reach this folder without allowing them to list its parents or to read other files in them."""
    path = to.resolve()
    while path.is_relative_to(home):
        with folder(path) as passed:
            os.fchmod(passed, (os.fstat(passed).st_mode & 0o7700) | 0o011)
        path = path.parent
    with folder(home) as top:
        for name in os.listdir(top):  # job folders were private from the start, with all that is in them
            with contextlib.suppress(FileNotFoundError):  # a temporary file that was removed meanwhile
                about = os.stat(name, dir_fd=top, follow_symlinks=False)
                closed = stat.S_IMODE(about.st_mode) & (0o7711 if stat.S_ISDIR(about.st_mode) else 0o7700)
                if not stat.S_ISLNK(about.st_mode) and closed != stat.S_IMODE(about.st_mode):
                    os.chmod(name, closed, dir_fd=top)
