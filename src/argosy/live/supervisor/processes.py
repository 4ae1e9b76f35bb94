"""Starts the worker processes of a run through the spawner, reads their output, pauses and kills them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from argosy.live.supervisor import process_table
from argosy.live.supervisor.cgroups import Cgroup
from argosy.live.supervisor.log_writer import Splitter
from argosy.live.supervisor.message_server import Connection
from argosy.live.supervisor.process_table import Process
from argosy.live.supervisor.reactor import Reactor
from argosy.live.supervisor.worker_spawner import WorkerSpawner


@dataclass(slots=True)
class WorkerProcess:
    """One worker process."""

    number: int
    slots: tuple[str, ...]
    reader: int  # our end of its output pipe; -1 after it was closed
    pid: int = 0
    started: int = 0
    connection: Connection | None = None
    lines: Splitter = field(default_factory=Splitter)
    killed: str = ""  # the reason if we killed it
    left: bool = False  # it has announced that it leaves
    done: bool = False  # it has reported that the training is complete
    rests: bool = False  # whether it can free its device before it is paused
    rested: int = 0  # the number of the last pause for which it has freed its device

    @property
    def open_connection(self) -> Connection | None:
        """Return its control connection, or None if that is not open."""
        return self.connection if self.connection is not None and self.connection.open else None


class WorkerProcesses:
    def __init__(
        self,
        reactor: Reactor,
        spawner: WorkerSpawner,
        cgroup: Cgroup | None,
        on_output: Callable[[WorkerProcess, list[bytes]], None],
    ) -> None:
        self.reactor, self.spawner, self.cgroup, self.on_output = reactor, spawner, cgroup, on_output
        self.alive: dict[int, WorkerProcess] = {}  # those that are alive, by number
        self.leaders: list[dict[str, Any]] = []  # of all workers so far, because a session may outlive its leader
        self._readers: dict[int, WorkerProcess] = {}
        self._held = False

    def start(self, number: int, slots: tuple[str, ...], request: Mapping[str, Any]) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        member = WorkerProcess(number, slots, reader)
        self.alive[number] = member
        self._readers[reader] = member
        if not self._held:
            self.reactor.watch(reader, lambda: self._read(member))
        self.spawner.start({**request, "id": number}, writer)
        os.close(writer)

    def started(self, number: int, pid: int) -> bool:
        """Note the process of a worker. Returns False if the spawner lies: that process is not its child."""
        found = process_table.process(pid)
        if found is None:  # it has already died, which the spawner will report
            return True
        if found.parent != self.spawner.pid or process_table.owner(pid) != self.spawner.uid:
            return False
        if member := self.alive.get(number):
            member.pid, member.started = pid, found.started
            self.leaders = [*self.leaders[-999:], {"pid": pid, "started": found.started}]
            if member.killed:
                self.kill(number, member.killed)
        return True

    def ended(self, number: int) -> WorkerProcess | None:
        """Remove a worker that has died, after reading more of its output, and return it."""
        member = self.alive.pop(number, None)
        if member is not None:
            self._read(member)
        return member

    # -- output

    def _read(self, member: WorkerProcess) -> None:
        if member.reader < 0:
            return
        try:
            data = os.read(member.reader, 1 << 16)
        except BlockingIOError:
            return
        if data:
            self.on_output(member, member.lines.feed(data))
            return
        self._close(member)

    def _close(self, member: WorkerProcess) -> None:
        self.on_output(member, member.lines.end())
        if not self._held:
            self.reactor.unwatch(member.reader)
        del self._readers[member.reader]
        os.close(member.reader)
        member.reader = -1

    def hold_output(self, held: bool) -> None:
        """Stop reading what workers print, or go on with it; while it is held, they wait when their pipes are full."""
        for reader, member in self._readers.items():
            if held:
                self.reactor.unwatch(reader)
            else:
                self.reactor.watch(reader, lambda member=member: self._read(member))  # type: ignore[misc]
        self._held = held

    def drain(self) -> None:
        """Read what is left in the pipes, then close them: a process that escaped could keep one open for ever."""
        for member in list(self._readers.values()):
            for _ in range(64):
                if member.reader >= 0:
                    self._read(member)
            if member.reader >= 0:
                self._close(member)

    # -- signals

    def everybody(self) -> set[Process]:
        """Return all processes of the run except the spawner."""
        found = process_table.descendants([self.spawner.pid]) if self.spawner.pid else set()
        if self.cgroup is not None:
            found |= process_table.numbered(self.cgroup.members())
        return {one for one in found if one.pid not in (self.spawner.pid, os.getpid())}

    def kill_all(self) -> None:
        self._send(self.everybody(), signal.SIGKILL)

    def _send(self, found: set[Process], number: signal.Signals) -> None:
        process_table.send(found, number, self.spawner.uid)

    def kill(self, number: int, why: str) -> None:
        """Kill a worker now, or as soon as its process is known."""
        if member := self.alive.get(number):
            member.killed = why
            self._send(self._processes_of(member), signal.SIGKILL)

    def ask_to_end(self, member: WorkerProcess, *, group: bool) -> None:
        """Send SIGTERM to a worker.

        A Python program that was forked gets it alone; with `group`, for commands that a shell may run, the whole
        process group gets it.
        """
        found = self._processes_of(member)
        targets = {one for one in found if one.pid == member.pid or (group and one.group == member.pid)}
        self._send(targets, signal.SIGTERM)

    def warn(self, member: WorkerProcess, number: signal.Signals) -> None:
        """Send a signal to those processes of a worker that handle it; for any other it would mean death."""
        self._send({one for one in self._processes_of(member) if process_table.handles(one.pid, number)}, number)

    def freeze(self, frozen: bool) -> None:
        for member in self.alive.values():
            self.freeze_one(member, frozen)

    def freeze_one(self, member: WorkerProcess, frozen: bool) -> None:
        self._send(self._processes_of(member), signal.SIGSTOP if frozen else signal.SIGCONT)

    def pin(self, number: int, cpus: list[int] | None) -> None:
        """Move a running worker, with all its threads, to other cores."""
        if cpus and (member := self.alive.get(number)) and member.pid:
            for one in self._processes_of(member):
                for thread in _threads(one.pid):
                    try:
                        os.sched_setaffinity(thread, cpus)
                    except OSError:
                        continue

    def records(self) -> list[dict[str, Any]]:
        return [
            {"worker": member.number, "pid": member.pid, "started": member.started, "slot": member.slots[0]}
            for member in self.alive.values()
        ]

    def _processes_of(self, member: WorkerProcess) -> set[Process]:
        """Return a worker's process, which may not have its own session yet, and all processes of its session."""
        if not member.pid:
            return set()
        leader = {one for one in process_table.numbered([member.pid]) if one.started == member.started}
        return leader | process_table.in_sessions([(member.pid, member.started)], self.spawner.uid)


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []
