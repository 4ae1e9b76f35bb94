"""Starts a detached process: it outlives us, and nobody has to wait for it.

The program may be a stranger's, and so may its environment variables (libraries to preload, say). So only the program
itself is started with them, and we never wait for anything that its user could stop.
"""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    uid: int
    gid: int
    groups: Sequence[int]

    @classmethod
    def of(cls, user: str) -> Identity:
        account = pwd.getpwnam(user)
        return cls(account.pw_uid, account.pw_gid, os.getgrouplist(user, account.pw_gid))

    def take_on(self) -> None:
        """Become that user, irrevocably."""
        os.setgroups(self.groups)
        os.setgid(self.gid)
        os.setuid(self.uid)


def start_detached(
    words: Sequence[str], env: Mapping[str, str], keep: int, output: int | None, user: str | None = None
) -> tuple[int, int]:
    """Run the command in a session of its own; return its process number and its session.

    It inherits one descriptor of ours, `keep`, and no other. Its output goes to the descriptor `output`, or nowhere.
    Whether the command can be executed at all shows only later.
    """
    identity = Identity.of(user) if user is not None else None
    said, tell = os.pipe2(os.O_CLOEXEC)
    try:
        leader = os.fork()
        if leader == 0:
            _lead(words, env, keep, output, identity, tell)
        os.waitpid(leader, 0)  # it runs only our own code, and ends at once
        os.set_blocking(said, False)
        pid = int(os.read(said, 32) or b"0")
    except BlockingIOError:
        pid = 0
    finally:
        os.close(said)
        os.close(tell)
    if pid == 0:
        raise OSError(f"{words[0]} could not be started: no process could be made for it")
    return pid, leader


def _lead(
    words: Sequence[str], env: Mapping[str, str], keep: int, output: int | None, identity: Identity | None, tell: int
) -> None:
    """In a child: open the session, start the program in it, and exit."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        program = os.fork()
        if program == 0:
            _become(words, env, keep, output, identity)
        os.write(tell, b"%d" % program)
    finally:
        os._exit(0)


def _become(
    words: Sequence[str], env: Mapping[str, str], keep: int, output: int | None, identity: Identity | None
) -> None:
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        printed = nothing if output is None else output
        os.dup2(nothing, 0)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.closerange(3, keep)
        os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
        os.set_inheritable(keep, True)
        os.chdir("/")
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if identity is not None:
            identity.take_on()
        os.execve(words[0], list(words), dict(env))
    finally:
        os._exit(127)
