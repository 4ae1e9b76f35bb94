"""Allocates what a run needs from the system: its sockets, control group and rendezvous folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from argosy.live.supervisor import process_table
from argosy.live.supervisor.cgroups import Cgroup
from argosy.live.supervisor.message_server import Connection, Message, MessageServer
from argosy.live.supervisor.reactor import Reactor
from argosy.live.supervisor.records import RunFolder, write_record
from argosy.live.supervisor.rendezvous import Rendezvous
from argosy.live.unix_sockets import socket_folder

Listener = Callable[[Connection, Message], None]


class RunResources:
    """The resources of one run. `record` lists them, so that the backend can remove them if the supervisor dies.

    `hear` gets what workers send to the socket `control`, `obey` what the daemon sends to `commands`.
    """

    def __init__(
        self, folder: RunFolder, run: Mapping[str, Any], uid: int, reactor: Reactor, hear: Listener, obey: Listener
    ) -> None:
        user = run.get("user")
        self._folder, self._uid = folder, uid
        self._sockets = socket_folder(folder.path, user)
        self.control = MessageServer(reactor, self._sockets / "control", {os.getuid(), uid}, hear)
        if user:
            os.chown(self.control.path, uid, -1, follow_symlinks=False)
        self.commands = MessageServer(reactor, folder.path / "commands", {0, os.getuid()}, obey)
        self.cgroup = Cgroup.make(f"argosy-{run['marker']}", run.get("limits", {}))
        self.rendezvous = Rendezvous(uid)
        me = process_table.process(os.getpid())
        self.record: dict[str, Any] = {
            "pid": os.getpid(),
            "started": me.started if me else 0,
            "sockets": str(self._sockets),
            "rendezvous": str(self.rendezvous.folder),
            "cgroup": {k: str(v) for k, v in self.cgroup.folders.items()} if self.cgroup else {},
        }

    def write_record(self) -> None:
        """Write the record durably. If the disk is full the run does not begin, and the group is removed at once."""
        try:
            write_record(self._folder.supervisor, self.record, durable=True)
        except OSError:
            self.drop_cgroup()
            raise

    def admit(self, spawner: int) -> None:
        """Put the spawner into the control group and into the record; remove the group if it cannot be used."""
        if self.cgroup is not None and not self.cgroup.add(spawner, self._uid):
            self.drop_cgroup()
        with contextlib.suppress(OSError):  # if the disk is full the old record stays, and the job runs
            write_record(self._folder.supervisor, {**self.record, "spawner": spawner}, durable=False)

    def drop_cgroup(self) -> None:
        if self.cgroup is not None:
            self.cgroup.remove()
            self.cgroup = None

    def close_sockets(self) -> None:
        self.control.close()
        self.commands.close()
        if self._sockets != self._folder.path:
            self._sockets.rmdir()
