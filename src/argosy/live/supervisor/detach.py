"""Starts a detached process, which outlives us and which we need not wait for.

The program and its environment variables may come from another user, and LD_PRELOAD, say, can run any code. So only the
program itself gets these variables, and we never wait for a process that the user could stop.
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
        """Become this user; there is no way back."""
        os.setgroups(self.groups)
        os.setgid(self.gid)
        os.setuid(self.uid)


def start_detached(
    words: Sequence[str], env: Mapping[str, str], keep: int, output: int | None, user: str | None = None
) -> tuple[int, int]:
    """Run the command in a session of its own; return the numbers of its process and of its session.

    Of our descriptors it inherits only `keep`. Its output goes to the descriptor `output`, or is dropped. Whether the
    command can be executed is not known when this returns.
    """
    identity = Identity.of(user) if user is not None else None
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        leader = os.fork()
        if leader == 0:
            _start_in_session(words, env, keep, output, identity, writer)
        os.waitpid(leader, 0)  # it runs only our own code, and exits at once
        os.set_blocking(reader, False)
        pid = int(os.read(reader, 32) or b"0")
    except BlockingIOError:
        pid = 0
    finally:
        os.close(reader)
        os.close(writer)
    if pid == 0:
        raise OSError(f"{words[0]} could not be started, because a process could not be forked")
    return pid, leader


def _start_in_session(
    words: Sequence[str], env: Mapping[str, str], keep: int, output: int | None, identity: Identity | None, writer: int
) -> None:
    """Start a session, fork the program in it, and exit. This runs in a child process."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        program = os.fork()
        if program == 0:
            _execute(words, env, keep, output, identity)
        os.write(writer, b"%d" % program)
    finally:
        os._exit(0)


def _execute(
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
