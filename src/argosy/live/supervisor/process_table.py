"""Finds processes in /proc, and sends signals to those of one run only.

A supervisor that runs as root could signal any process. So every call that sends a signal names the user to whom the
processes must belong, and uses a pidfd, which stays correct when a process number is reused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int  # clock ticks since boot; together with the pid it identifies a process uniquely


def process(pid: int) -> Process | None:
    """Return the process with this number, or None if it is dead or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    found = Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))
    return None if found.state in "ZX" else found


def owner(pid: int) -> int | None:
    """Return the real user id of the process, which stays the same when it runs a set-uid program."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration):
        return None


def handles(pid: int, number: signal.Signals) -> bool:
    """Return whether the process has a handler of its own for this signal."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            mask = next(int(line.split()[1], 16) for line in file if line.startswith(b"SigCgt:"))
    except (OSError, StopIteration, ValueError):
        return False
    return bool(mask >> (number - 1) & 1)


def is_same(pid: int, started: int) -> bool:
    """Return whether the process that started then is alive; its number may have been reused since."""
    found = process(pid)
    return found is not None and found.started == started


def numbered(pids: Iterable[int]) -> set[Process]:
    """Return the processes with these numbers, except those that are dead."""
    return {found for pid in pids if (found := process(pid))}


def all_processes() -> set[Process]:
    return numbered(int(name) for name in os.listdir("/proc") if name.isdigit())


def descendants(ancestors: Iterable[int]) -> set[Process]:
    """Return all descendants of these processes, without the processes themselves."""
    children: dict[int, list[Process]] = {}
    for found in all_processes():
        children.setdefault(found.parent, []).append(found)
    below: set[Process] = set()
    todo = list(ancestors)
    while todo:
        for found in children.get(todo.pop(), ()):
            if found not in below:
                below.add(found)
                todo.append(found.pid)
    return below


def in_sessions(leaders: Iterable[tuple[int, int]], uid: int) -> set[Process]:
    """Return this user's processes in the sessions of these leaders (pid, started), even if a leader has died."""
    sessions = set()
    for pid, started in leaders:
        found = process(pid)
        if found is None or found.started == started:  # otherwise the number was reused
            sessions.add(pid)
    return {found for found in all_processes() if found.session in sessions and owner(found.pid) == uid}


def with_variable(assignment: str, uid: int) -> set[Process]:
    """Return this user's processes whose environment has an assignment, such as "ARGOSY_RUN=…"."""
    wanted, found = assignment.encode(), set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0") and owner(int(name)) == uid:
                    found.add(int(name))
    return numbered(found)


def send(found: Iterable[Process], number: signal.Signals, uid: int) -> None:
    """Send a signal to these processes, except those that are dead or belong to another user."""
    for one in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(one.pid)
            try:
                if is_same(one.pid, one.started) and owner(one.pid) == uid:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


def wait_gone(found: Iterable[Process], seconds: float) -> set[Process]:
    """Wait until the processes are dead; return those that are still alive after this many seconds."""
    end, left = time.monotonic() + seconds, set(found)
    while left := {one for one in left if is_same(one.pid, one.started)}:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return left
