"""The workers of a run on all its nodes, as its supervisor sees them: every order goes to the agent of a node.

It offers what `WorkerProcesses` offers for this machine. The numbers of processes on other hosts are never used here,
where they could be those of strangers.
"""

from __future__ import annotations

import base64
import binascii
import signal
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from argosy.live.supervisor.cluster.node_link import NodeLink
from argosy.live.supervisor.message_server import Message
from argosy.live.supervisor.processes import WorkerProcess


class RelayedConnection:
    """A worker's control connection, which ends at its agent."""

    def __init__(self, link: NodeLink, number: int) -> None:
        self._link, self._number = link, number
        self.open = True
        self.worker: int | None = None
        self.server = self  # one that drops connections is all that its users need

    def send(self, message: Message) -> None:
        if self.open:
            self._link.send({"op": "tell", "c": self._number, "m": message})

    def drop(self, connection: RelayedConnection) -> None:
        connection.open = False
        self._link.send({"op": "drop", "c": self._number})


class ClusterProcesses:
    def __init__(
        self,
        link_of: Callable[[str], NodeLink],
        on_output: Callable[[WorkerProcess, list[bytes]], None],
        on_withdrawn: Callable[[int], None],
    ) -> None:
        self._link_of, self.on_output = link_of, on_output
        self._on_withdrawn = on_withdrawn  # called with a worker that was to end before its node was reached
        self.alive: dict[int, WorkerProcess] = {}  # those that are not known to be dead, by number
        self.cut_off: set[int] = set()  # of these, those whose node cannot be reached
        self.leaders: list[dict[str, Any]] = []  # no process of this machine belongs to the run
        self.connections: dict[tuple[str, int], RelayedConnection] = {}
        # stands for the agents' spawners where one of this machine is expected
        self.spawner = SimpleNamespace(warm=True, pid=1, close=lambda: None)

    def node_of(self, number: int) -> str:
        return self.alive[number].slots[0].rpartition(":")[0]

    def on_node(self, node: str) -> list[int]:
        return [number for number in self.alive if self.node_of(number) == node]

    def cut(self, node: str) -> list[int]:
        """Note that a node cannot be reached; return its workers, except those that it was never asked to start."""
        link = self._link_of(node)
        found = [n for n in self.on_node(node) if n not in self.cut_off and not link.waits(n)]
        self.cut_off.update(found)
        self.forget_connections(node)
        return found

    def start(self, number: int, slots: tuple[str, ...], request: Mapping[str, Any]) -> None:
        self.alive[number] = WorkerProcess(number, slots, reader=-1)
        self._link_of(self.node_of(number)).send({"op": "start", "id": number, "slots": slots, **request})

    def started(self, number: int, pid: int) -> bool:
        """Note that a worker runs; its agent has checked its process."""
        return True

    def ended(self, number: int) -> WorkerProcess | None:
        self.cut_off.discard(number)
        return self.alive.pop(number, None)

    def take_output(self, number: int, data: object) -> None:
        member = self.alive.get(number)
        if member is not None and isinstance(data, str):
            try:
                self.on_output(member, member.lines.feed(base64.b64decode(data)))
            except binascii.Error:
                return

    def flush(self, member: WorkerProcess) -> None:
        """Pass on a last line that has no end."""
        self.on_output(member, member.lines.end())

    def connection(self, link: NodeLink, number: int) -> RelayedConnection:
        return self.connections.setdefault((link.node, number), RelayedConnection(link, number))

    def forget_connections(self, node: str) -> None:
        for key in [key for key in self.connections if key[0] == node]:
            self.connections.pop(key).open = False

    # -- orders

    def everybody(self) -> set[int]:
        return set(self.alive)

    def kill_all(self) -> None:
        for number in list(self.alive):
            self.kill(number, self.alive[number].killed)

    def kill(self, number: int, why: str) -> None:
        if member := self.alive.get(number):
            member.killed = why
            self._end(number, "kill")

    def ask_to_end(self, member: WorkerProcess, *, group: bool) -> None:
        self._end(member.number, "term")

    def warn(self, member: WorkerProcess, number: signal.Signals) -> None:
        self._order(member.number, "warn", signal=int(number))

    def _end(self, number: int, op: str) -> None:
        if self._link_of(self.node_of(number)).withdraw(number):
            self._on_withdrawn(number)
        else:
            self._order(number, op)

    def freeze(self, frozen: bool) -> None:
        for number in list(self.alive):
            self._order(number, "freeze", frozen=frozen)

    def pin(self, number: int, cpus: list[int] | None) -> None:
        """Pin a worker to the cores of its own slot, which its agent knows."""
        if number in self.alive:
            self._order(number, "pin")

    def _order(self, number: int, op: str, **more: Any) -> None:
        self._link_of(self.node_of(number)).send({"op": op, "id": number, **more})

    def drain(self) -> None:
        for member in list(self.alive.values()):
            self.flush(member)

    def records(self) -> list[dict[str, Any]]:
        """Return the workers without the numbers of their processes, which mean nothing on this machine."""
        return [
            {"worker": member.number, "pid": 0, "started": 0, "slot": member.slots[0]} for member in self.alive.values()
        ]
