"""Watches the agents of a cluster: which nodes are there, since when, and what is wrong with the others.

One thread keeps a connection to every agent and asks each of them twice a second. It uses the same way as supervisors,
from the head to the node, so that a node counts as up only if jobs can be started there.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.cluster.cluster import Node
from argosy.live.backends.base import NodeStatus
from argosy.live.supervisor.cluster.agent_address import AgentAddress
from argosy.live.supervisor.cluster.lease import LeaseTimes
from argosy.live.supervisor.cluster.line import Line, Message
from argosy.live.supervisor.reactor import Reactor

PING_S = 0.5
DIALS = 16  # at a time
AGAIN_S, LONGEST_WAIT_S = 0.5, 5.0
PREPARED = 64  # nodes on which a waiting job's interpreter is warmed up


@dataclass
class Watched:
    """What is known of one node."""

    node: Node
    address: AgentAddress | None = None
    line: Line | None = None
    dialling: bool = False
    heard: float = float("-inf")
    runs: list[str] = field(default_factory=list)
    problem: str = "no agent has registered; start one there: argosy agent"
    refusal: str = ""  # what the daemon has told an agent of this node
    engine: str = ""  # what the engine says about its agent, if an engine starts it
    shared: bool = False  # it sees the shared folder
    again_at: float = 0.0
    pause_s: float = AGAIN_S


class AgentRegistry:
    def __init__(self, nodes: Sequence[Node], folder: Path, shared: Path | None, times: LeaseTimes) -> None:
        self.folder, self.shared, self.times = folder, shared, times
        self.watched = {node.name: Watched(node) for node in nodes}
        self._orders: deque[Callable[[], None]] = deque()
        self._reactor = Reactor()
        self._dials = ThreadPoolExecutor(DIALS, thread_name_prefix="argosy-dial")
        self._probe = f".argosy-probe-{secrets.token_hex(8)}"
        self._thread = threading.Thread(target=self._run, name="argosy-registry", daemon=True)
        self._ending = False

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ending = True
        self._thread.join(timeout=2.0)
        self._dials.shutdown(wait=False, cancel_futures=True)
        for path in self.shared.glob(f"{self._probe}*") if self.shared is not None else ():
            path.unlink(missing_ok=True)

    def statuses(self) -> list[NodeStatus]:
        return [self._status(watched) for watched in list(self.watched.values())]

    def is_up(self, node: str) -> bool:
        return self._status(self.watched[node]).up

    def enrolled(self, address: AgentAddress) -> None:
        """Note an agent that has just registered, and connect to it at once."""
        watched = self.watched[address.node]
        if watched.address != address:
            watched.address = address
            self._orders.append(lambda: self._renew(watched))
        watched.refusal = ""

    def engine_says(self, node: str, text: str) -> None:
        """Note what an engine says about the agent of a node, which is shown as long as there is none."""
        self.watched[node].engine = text

    def jobs_on(self, node: str) -> bool:
        """Return whether the agent of a node has said that it has runs."""
        return bool(self.watched[node].runs)

    def prepare(self, spec: Mapping[str, Any], user: str | None) -> None:
        """Ask nodes to warm up the interpreter of a job that waits."""
        message = {"op": "prepare", "spec": dict(spec), "user": user, "cuda": False}
        self._orders.append(lambda: self._tell_all(message))

    def _status(self, watched: Watched) -> NodeStatus:
        about = watched.address
        details: dict[str, Any] = {}
        if about is not None:
            details = {
                "host": f"{about.host}:{about.port}",
                "engine": about.engine,
                "agent_started_at": about.started_at,
                "agent_age_s": max(0.0, round(time.time() - about.started_at, 1)),
                "silent_s": max(0.0, round(time.monotonic() - watched.heard, 1)) if watched.line else None,
                "lease_s": self.times.lease,
                "runs": list(watched.runs),
            }
        silent = time.monotonic() - watched.heard > self.times.silence + PING_S
        up = watched.line is not None and watched.shared and not silent
        problem = watched.refusal or (watched.engine if watched.line is None else "") or watched.problem
        return NodeStatus(watched.node, up, "" if up else problem or "its agent does not answer", details)

    # -- in the thread

    def _run(self) -> None:
        if self.shared is not None:
            with suppress(OSError):  # the disk is full: then no node can be probed, which every node's state shows
                (self.shared / self._probe).write_text(self._probe)
                (self.shared / self._probe).chmod(0o644)
        self._reactor.every(PING_S / 5, self._look)
        self._reactor.every(PING_S, self._ping)
        self._reactor.run()

    def _look(self) -> None:
        if self._ending:
            for watched in self.watched.values():
                self._drop(watched)
            self._reactor.stop()
            return
        while self._orders:
            self._orders.popleft()()
        now = time.monotonic()
        for watched in self.watched.values():
            if watched.line is None and not watched.dialling and now >= watched.again_at:
                watched.dialling = True
                self._dials.submit(self._dial, watched)

    def _ping(self) -> None:
        now = time.monotonic()
        for watched in self.watched.values():
            if watched.line is None:
                continue
            if now - watched.heard > 4 * self.times.silence:
                self._lost(watched, f"its agent has been silent for {now - watched.heard:.0f} s")
            else:
                watched.line.send({"op": "ping"})

    def _dial(self, watched: Watched) -> None:
        """Connect to an agent. This runs in a thread of the pool."""
        address: AgentAddress | None = None
        try:
            address = watched.address or AgentAddress.read(self.folder, watched.node.name)
            if address is None:
                raise OSError("no agent has registered; start one there: argosy agent")
            stream, _ = address.dial("watch")
        except Exception as problem:  # whatever an agent answers must not end the thread unnoticed
            text = str(problem) or type(problem).__name__
            if address is not None and getattr(problem, "strerror", None) is not None:
                text = f"its agent cannot be reached at {address.host}:{address.port}: {problem.strerror}"  # type: ignore[attr-defined]
            self._orders.append(lambda: self._failed(watched, text))
            return
        self._orders.append(lambda: self._open(watched, address, stream))

    def _failed(self, watched: Watched, text: str) -> None:
        watched.dialling, watched.problem = False, text
        watched.again_at = time.monotonic() + watched.pause_s
        watched.pause_s = min(2 * watched.pause_s, LONGEST_WAIT_S)

    def _open(self, watched: Watched, address: AgentAddress, stream: Any) -> None:
        watched.dialling = False
        if self._ending or (watched.address is not None and watched.address != address):
            stream.close()
            return
        watched.address, watched.pause_s, watched.heard = address, AGAIN_S, time.monotonic()
        watched.line = Line(
            stream,
            self._reactor,
            lambda message: self._heard(watched, message),
            lambda: self._lost(watched, "its agent has ended"),
        )
        watched.shared = self.shared is None
        self._probe_again(watched)
        watched.line.send({"op": "ping"})

    def _heard(self, watched: Watched, message: Message) -> None:
        watched.heard = time.monotonic()
        if message.get("op") == "pong":
            runs = message.get("runs")
            watched.runs = [str(one)[:64] for one in runs[:10_000]] if isinstance(runs, list) else []
        elif message.get("op") == "probed" and self.shared is not None:
            why = str(message.get("why") or "")[:300]
            beside = self.shared / f"{self._probe}.seen"
            with suppress(OSError):
                if not why and beside.read_text() != self._probe:
                    why = f"what the node writes to {self.shared} does not arrive on the head"
            if not why and not beside.exists():
                why = f"what the node writes to {self.shared} does not arrive on the head"
            watched.shared, watched.problem = not why, f"the shared folder is not common: {why}" if why else ""
            if why and watched.line is not None:  # it may be mounted later
                self._reactor.later(LONGEST_WAIT_S, lambda: self._probe_again(watched))

    def _probe_again(self, watched: Watched) -> None:
        if watched.line is not None and self.shared is not None:
            watched.line.send({"op": "probe", "path": str(self.shared / self._probe), "content": self._probe})

    def _lost(self, watched: Watched, why: str) -> None:
        self._drop(watched)
        watched.problem = why

    def _renew(self, watched: Watched) -> None:
        self._drop(watched)
        watched.again_at, watched.pause_s = 0.0, AGAIN_S

    def _drop(self, watched: Watched) -> None:
        if watched.line is not None:
            watched.line.close()
        watched.line, watched.shared, watched.runs = None, False, []

    def _tell_all(self, message: Message) -> None:
        lines = [watched.line for watched in self.watched.values() if watched.line is not None and watched.shared]
        for line in lines[:PREPARED]:
            line.send(message)
