"""What /proc tells of processes, and how to kill all that belongs to a run."""

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
    session: int
    started: int  # clock ticks after boot: with the pid it names a process for good


def process(pid: int) -> Process | None:
    """The living process of this number; a zombie does not live."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    found = Process(pid, fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))
    return None if found.state in "ZX" else found


def is_same(pid: int, started: int) -> bool:
    """Is that process still alive? A number may have been given to another one since."""
    found = process(pid)
    return found is not None and found.started == started


def all_processes() -> list[Process]:
    return [found for name in os.listdir("/proc") if name.isdigit() and (found := process(int(name)))]


def descendants(ancestors: Iterable[int]) -> set[int]:
    """All processes below these, without them."""
    children: dict[int, list[int]] = {}
    for found in all_processes():
        children.setdefault(found.parent, []).append(found.pid)
    below: set[int] = set()
    todo = list(ancestors)
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in below:
                below.add(pid)
                todo.append(pid)
    return below


def in_sessions(leaders: Iterable[tuple[int, int]]) -> set[int]:
    """Processes of the sessions that these leaders (pid, started) opened, also when the leader has died."""
    sessions = set()
    for pid, started in leaders:
        found = process(pid)
        if found is None or found.started == started:  # otherwise the number belongs to somebody else by now
            sessions.add(pid)
    return {found.pid for found in all_processes() if found.session in sessions}


def with_variable(assignment: str) -> set[int]:
    """Processes that were executed with this environment variable, such as "ARGOSY_RUN=…"."""
    wanted, found = assignment.encode(), set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.add(int(name))
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def send_to_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def wait_gone(pids: Iterable[int], seconds: float) -> set[int]:
    """Wait until they are dead; those that are not in time."""
    end, left = time.monotonic() + seconds, set(pids)
    while left := {pid for pid in left if process(pid)}:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return left
