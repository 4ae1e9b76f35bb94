"""The processes of a run: started through the spawner, listened to, stopped, continued and killed."""

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
    reader: int  # the end of its output that we read; -1 once it is closed
    pid: int = 0
    started: int = 0
    connection: Connection | None = None
    lines: Splitter = field(default_factory=Splitter)
    killed: str = ""  # why we killed it
    left: bool = False  # it has said that it hands over and leaves
    done: bool = False  # it has said that the training is complete
    rests: bool = False  # it can make room before it is paused
    rested: int = 0  # the last rest for which it has made room

    @property
    def open_connection(self) -> Connection | None:
        """Its control connection, as long as that is open."""
        return self.connection if self.connection is not None and self.connection.open else None


class WorkerProcesses:
    def __init__(self, reactor: Reactor, spawner: WorkerSpawner, cgroup: Cgroup | None,
                 on_output: Callable[[WorkerProcess, list[bytes]], None]) -> None:
        self.reactor, self.spawner, self.cgroup, self.on_output = reactor, spawner, cgroup, on_output
        self.alive: dict[int, WorkerProcess] = {}  # the living
        self.leaders: list[dict[str, Any]] = []  # every worker there has been: its session may outlive it
        self._readers: dict[int, WorkerProcess] = {}

    def start(self, number: int, slots: tuple[str, ...], request: Mapping[str, Any]) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        member = WorkerProcess(number, slots, reader)
        self.alive[number] = member
        self._readers[reader] = member
        self.reactor.watch(reader, lambda: self._read(member))
        self.spawner.start({**request, "id": number}, writer)
        os.close(writer)

    def started(self, number: int, pid: int) -> bool:
        """The spawner has forked a worker. False: that process is none of its children, so it lies."""
        found = process_table.process(pid)
        if found is None:  # it has died already, and its end is about to be told
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
        """Forget a worker that has died; the rest of its output is still read."""
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
        self.reactor.unwatch(member.reader)
        del self._readers[member.reader]
        os.close(member.reader)
        member.reader = -1

    def drain(self) -> None:
        """Read what is left in the pipes; a process that escaped may hold one open for ever."""
        for member in list(self._readers.values()):
            for _ in range(64):
                if member.reader >= 0:
                    self._read(member)
            if member.reader >= 0:
                self._close(member)

    # -- signals

    def everybody(self) -> set[Process]:
        """All processes of the run, the spawner excepted."""
        found = process_table.descendants([self.spawner.pid]) if self.spawner.pid else set()
        if self.cgroup is not None:
            found |= process_table.numbered(self.cgroup.members())
        return {one for one in found if one.pid not in (self.spawner.pid, os.getpid())}

    def kill_all(self) -> None:
        self._send(self.everybody(), signal.SIGKILL)

    def _send(self, found: set[Process], number: signal.Signals) -> None:
        process_table.send(found, number, self.spawner.uid)

    def kill(self, number: int, why: str) -> None:
        """One whose process is not known yet is killed when it is."""
        if member := self.alive.get(number):
            member.killed = why
            self._send(self._processes_of(member), signal.SIGKILL)

    def ask_to_end(self, member: WorkerProcess, *, group: bool) -> None:
        """SIGTERM: to the whole group for commands, to the program alone where we run it ourselves."""
        found = self._processes_of(member)
        meant = {one for one in found if one.pid == member.pid or (group and one.group == member.pid)}
        self._send(meant, signal.SIGTERM)

    def freeze(self, frozen: bool) -> None:
        for member in self.alive.values():
            self._send(self._processes_of(member), signal.SIGSTOP if frozen else signal.SIGCONT)

    def pin(self, number: int, cpus: list[int] | None) -> None:
        """Give a running worker other cores, with all its threads."""
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
        """A worker with its children; one that was just forked may not have its session yet."""
        if not member.pid:
            return set()
        leader = {one for one in process_table.numbered([member.pid]) if one.started == member.started}
        return leader | process_table.in_sessions([(member.pid, member.started)], self.spawner.uid)


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []
