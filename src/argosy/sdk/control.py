"""A worker's end of the control socket: it exchanges JSON lines with the supervisor of its run.

It never blocks training. Two threads do the work: one reads the supervisor's messages, the other sends the worker's
messages and a heartbeat twice a second. If the supervisor is gone, a message is printed once, and the job goes on with
the workers it has.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from argosy.sdk.group import sockets

BEAT_S = 0.5
MAX_WAITING = 1000  # unsent messages; if there are more, the oldest are dropped


@dataclass(frozen=True, slots=True)
class Plan:
    """A membership plan: who trains together from now on."""

    version: int
    members: tuple[int, ...]  # numbers of workers, in order of rank
    store: str = ""  # the file for the rendezvous; empty for a plan with one member
    recover: bool = False  # a worker is lost, so members switch at once, not after the step
    batch: int | None = None  # samples of a step, if the policy chooses them


class Control:
    """The connection to the supervisor, and the requests received through it."""

    def __init__(self, path: str, worker: int, hello: Mapping[str, Any]) -> None:
        self.worker = worker
        self.step = 0
        self.busy = True
        self.plans: dict[int, Plan] = {}
        self.suspending = False
        self.saving = False
        self.rest = 0  # the number of the pause for which the job should free its device; 0: none
        self.newest_rest = 0  # the highest number received; the numbers of pauses increase
        self.lost = False
        self.on_shut: Callable[[], None] = lambda: None
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)
        self._sending = False
        self._changed = threading.Condition()
        self._closing = False
        self._socket = connect(path)
        sockets.keep_from_children(
            {n: what for n, what in sockets.open_sockets().items() if n == self._socket.fileno()}
        )
        self.send("hello", worker=worker, pid=os.getpid(), **hello)
        self._threads = [
            threading.Thread(target=work, name=f"argosy-{work.__name__.strip('_')}", daemon=True)
            for work in (self._read, self._write)
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def from_environment(cls, **hello: Any) -> Control | None:
        """Connect to the supervisor that the environment names; return None if there is none."""
        path = os.environ.get("ARGOSY_CONTROL")
        return cls(path, int(os.environ.get("ARGOSY_WORKER", "0")), hello) if path else None

    @property
    def newest(self) -> int:
        """Return the version of the newest plan received so far; 0 if there is none."""
        return max(self.plans, default=0)

    def recovering(self, version: int) -> bool:
        """Return whether a recovery plan newer than this version was received."""
        with self._changed:
            return any(plan.recover for number, plan in self.plans.items() if number > version)

    def drop_plans_before(self, version: int) -> None:
        with self._changed:
            self.plans = {number: plan for number, plan in self.plans.items() if number >= version}

    def suspend(self) -> None:
        """Note that the job should suspend. It takes no lock, so that a signal handler may call it."""
        self.suspending = True

    def send(self, op: str, **fields: Any) -> None:
        line = json.dumps({"op": op, **fields}, allow_nan=False).encode() + b"\n"
        with self._changed:
            self._waiting.append(line)
            self._changed.notify_all()

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the condition is true, the time is up, or the supervisor is gone; return the condition."""
        end = time.monotonic() + timeout_s
        with self._changed:
            while not until() and not self.lost:
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 0.2))  # a signal handler sets its flag without notifying us
            return until()

    def flush(self, timeout_s: float = 5.0) -> None:
        """Wait until all messages are sent, but not longer than the timeout."""
        self.wait(lambda: not self._waiting and not self._sending, timeout_s)

    def close(self) -> None:
        self.flush()
        self._closing = True
        sockets.forget([self._socket.fileno()])
        with self._changed:
            self._changed.notify_all()
        with suppress(OSError):  # the supervisor may have closed it first
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=2)
        self._socket.close()

    def _read(self) -> None:
        buffer = b""
        while True:
            try:
                data = self._socket.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                self._take(line)
        self._lose()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            op = message["op"]
            with self._changed:
                if op == "plan":
                    version = int(message["version"])
                    members, store = tuple(message["members"]), str(message.get("store") or "")
                    recover, batch = bool(message.get("recover")), message.get("batch")
                    self.plans[version] = Plan(version, members, store, recover, batch and int(batch))
                elif op == "suspend":
                    self.suspending = True
                elif op == "checkpoint":
                    self.saving = True
                elif op == "rest":
                    self.rest = self.newest_rest = int(message["number"])
                elif op == "wake":
                    self.rest = 0
                self._changed.notify_all()
            if op == "shut":
                self.on_shut()
        except (ValueError, KeyError, TypeError) as problem:
            print(f"argosy: ignored an invalid message of the supervisor: {problem}", file=sys.stderr, flush=True)

    def _write(self) -> None:
        next_beat = time.monotonic()
        while True:
            with self._changed:
                while not self._waiting and not self._closing and (left := next_beat - time.monotonic()) > 0:
                    self._changed.wait(left)
                lines = b"".join(self._waiting)
                self._waiting.clear()
                self._sending = True
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + BEAT_S
                lines += json.dumps({"op": "beat", "step": self.step, "busy": self.busy}).encode() + b"\n"
            try:
                self._socket.sendall(lines)
            except OSError:
                self._lose()
                return
            with self._changed:
                self._sending = False
                self._changed.notify_all()
            if self._closing:
                return

    def _lose(self) -> None:
        with self._changed:
            known, self.lost = self.lost or self._closing, True
            self._waiting.clear()
            self._changed.notify_all()
        if not known:
            print("argosy: the supervisor is gone; training goes on without it", file=sys.stderr, flush=True)


def connect(path: str) -> socket.socket:
    """Connect to a Unix socket. A path that is too long for the system is reached through its folder's descriptor."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if len(os.fsencode(path)) < 100:
        connection.connect(path)
        return connection
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)
    return connection
