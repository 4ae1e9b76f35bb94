"""The agent: it listens for the head, answers every connection in a process of its own, and watches these processes.

If the agent is killed, the kernel kills those processes, and their spawners then kill all workers. If one of them hangs
past the end of its lease, the agent kills it and what is left of its run.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import signal
import socket
import stat
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.cluster.agent_times import LATE_S, LOOK_S
from argosy.errors import InputError
from argosy.live.agent.connection import AgentNode, answer
from argosy.live.agent.identity import machine_id, make_identity
from argosy.live.agent.registration import Registration, keep_registered
from argosy.live.agent.session import die_with
from argosy.live.backends.local.machine import real_gpus
from argosy.live.backends.local.zygote_pool import ZygotePool
from argosy.live.supervisor.cluster.lease import now

MOST_CHILDREN, MOST_UNKNOWN = 4096, 64  # connections in all, and from callers that have not proved who they are
STOP_S = 8.0
_SLOT = struct.Struct("d?")  # of each child, in shared memory: when its lease ends, and whether the caller is known


@dataclass(frozen=True, slots=True)
class Child:
    slot: int
    began: float


class Agent:
    """The agent of one node."""

    def __init__(
        self, node: str, folder: Path, registration: Registration, *, listen: str, port: int, address: str, engine: str
    ) -> None:
        self.node, self.registration, self.address, self.engine = node, registration, address, engine
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.lstat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o022 or not stat.S_ISDIR(about.st_mode):
            hint = "remove it, or give another --folder"
            raise InputError("others may write to the agent's folder", where=str(folder), hint=hint)
        self.lock = os.open(folder / "agent.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                "another agent is running with this folder", where=str(folder), hint="stop it, or give another --folder"
            ) from None
        context, self.certificate, secret = make_identity(node)
        self.this_node = AgentNode(node, folder, secret, context)
        family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        try:
            self.listener = socket.create_server((listen, port), family=family, backlog=256)
        except OSError as problem:
            what = f"cannot listen on {listen}:{port}: {problem.strerror}"
            raise InputError(what, hint="give another --listen or --port; 0 is any free port") from None
        self.listener.setblocking(False)
        self.children: dict[int, Child] = {}
        self.slots = mmap.mmap(-1, MOST_CHILDREN * _SLOT.size)
        self.free = list(range(MOST_CHILDREN))
        self.stopping, self.began = False, now()
        self.problem = ""  # why the daemon does not accept us

    def about(self) -> dict[str, Any]:
        """Return what the daemon must know of this agent."""
        return {
            "node": self.node,
            "address": self.address,
            "port": self.listener.getsockname()[1],
            "certificate": self.certificate,
            "secret": self.this_node.secret,
            "host_id": machine_id(),
            "gpus": len(real_gpus()),
            "engine": self.engine,
        }

    def run(self) -> int:
        """Serve until stopped, or until the daemon refuses us; return the exit code."""
        for marker in self.this_node.runs.markers():  # of an agent that was killed
            self.this_node.runs.end(marker)
        wake, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "stopping", True))
        news = self.start_registration()
        while not self.stopping:
            watched: list[Any] = [self.listener, wake, *([news] if news >= 0 else [])]
            ready, _, _ = select.select(watched, [], [], LOOK_S)
            if wake in ready:
                os.read(wake, 4096)
            if news in ready:
                news = self.hear(news)
            if self.listener in ready:
                self.accept()
            self.look()
        self.stop()
        if self.problem:
            print(f"argosy agent: {self.problem}", file=sys.stderr, flush=True)
            return 2
        return 0

    def start_registration(self) -> int:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        about, parent = self.about(), os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with(parent)
            _restore_signals()
            keep_registered(self.registration, about, self.began, writer)
        os.close(writer)
        self.children[pid] = Child(-1, time.monotonic())
        return reader

    def hear(self, news: int) -> int:
        """Read what the registering process reports; -1 if it has ended."""
        text = os.read(news, 4096).decode(errors="replace")
        if text.startswith("+"):
            print(f"argosy agent: {self.node} serves {self.registration.host}", file=sys.stderr, flush=True)
        elif text.startswith("?"):
            where = f"{self.registration.host}:{self.registration.port}"
            told = f"the daemon cannot be reached yet at {where}: {text[1:]}; it is tried again every second"
            print(f"argosy agent: {told}", file=sys.stderr, flush=True)
        elif text.startswith("!"):
            self.problem, self.stopping = f"the daemon refuses this agent: {text[1:]}", True
        else:
            os.close(news)
            return self.start_registration() if not self.stopping else -1
        return news

    # -- connections

    def accept(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        unknown = sum(not self.slot(child.slot)[1] for child in self.children.values() if child.slot >= 0)
        if not self.free or unknown >= MOST_UNKNOWN:
            connection.close()
            return
        slot, parent = self.free.pop(), os.getpid()
        _SLOT.pack_into(self.slots, slot * _SLOT.size, float("inf"), False)
        pid = os.fork()
        if pid == 0:
            self.serve(connection, slot, parent)
        self.children[pid] = Child(slot, time.monotonic())
        connection.close()

    def serve(self, connection: socket.socket, slot: int, parent: int) -> None:
        """Answer a connection. This runs in a child process."""
        code = 1
        try:
            die_with(parent)
            _restore_signals()
            self.listener.close()
            at = slot * _SLOT.size
            connection.setblocking(True)
            answer(
                self.this_node,
                connection,
                lambda: _SLOT.pack_into(self.slots, at, self.slot(slot)[0], True),
                lambda deadline: _SLOT.pack_into(self.slots, at, deadline, True),
            )
            code = 0
        finally:
            os._exit(code)

    def slot(self, number: int) -> tuple[float, bool]:
        deadline, known = _SLOT.unpack_from(self.slots, number * _SLOT.size)
        return deadline, known

    # -- the processes that answer

    def look(self) -> None:
        """Reap children that have ended, and kill those that should have ended with their lease."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            child = self.children.pop(pid, None)
            if child is not None and child.slot >= 0:
                self.free.append(child.slot)
                self.bury()
        for pid, child in self.children.items():
            if child.slot >= 0 and now() > self.slot(child.slot)[0] + LATE_S:
                os.kill(pid, signal.SIGKILL)

    def bury(self) -> None:
        """End, in another process, runs whose session has died without doing so itself."""
        left = [
            marker for marker in self.this_node.runs.markers() if not self.this_node.runs.folder(marker).supervised()
        ]
        if not left:
            return
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                die_with(parent)
                for marker in left:
                    self.this_node.runs.end(marker)
            finally:
                os._exit(0)
        self.children[pid] = Child(-1, time.monotonic())

    def stop(self) -> None:
        """End all sessions, which kill their workers and say so, and then the warm interpreters."""
        self.listener.close()
        for pid in self.children:
            os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + STOP_S
        while self.children and time.monotonic() < end:
            self.look()
            time.sleep(0.02)
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        for marker in self.this_node.runs.markers():
            self.this_node.runs.end(marker)
        ZygotePool(self.this_node.zygotes).end()


def _restore_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
