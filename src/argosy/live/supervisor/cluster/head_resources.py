"""What a run on other hosts needs on the head: the socket for the daemon's requests, the stores, and a record.

The record names every node on which something of the run may be alive, so that whoever finds the supervisor dead knows
which nodes must be fenced first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from argosy.live.supervisor import process_table
from argosy.live.supervisor.cluster.plan_stores import PlanStores
from argosy.live.supervisor.message_server import Connection, Message, MessageServer
from argosy.live.supervisor.reactor import Reactor
from argosy.live.supervisor.records import RunFolder, write_record


class HeadResources:
    """Offers what `RunResources` offers for workers of this machine."""

    cgroup = None  # every agent has its own

    def __init__(
        self, folder: RunFolder, run: Mapping[str, Any], reactor: Reactor, obey: Callable[[Connection, Message], None]
    ) -> None:
        self._folder = folder
        self.commands = MessageServer(reactor, folder.path / "commands", {0, os.getuid()}, obey)
        self.rendezvous = PlanStores()
        self.control = SimpleNamespace(catch_up=lambda: None)  # a line keeps the order of a worker's last messages
        me = process_table.process(os.getpid())
        self.record: dict[str, Any] = {"pid": os.getpid(), "started": me.started if me else 0, "nodes": {}}

    def write_record(self) -> None:
        write_record(self._folder.supervisor, self.record, durable=True)

    def note_node(self, node: str, host_id: str) -> None:
        """Record durably, before anything runs there, that the run is on this machine too."""
        known = self.record["nodes"].setdefault(node, [])
        if host_id not in known:
            known.append(host_id)
            self.write_record()

    def close_sockets(self) -> None:
        self.commands.close()
