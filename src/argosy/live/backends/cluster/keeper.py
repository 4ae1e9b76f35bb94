"""Keeps an agent on every node, with the help of an engine: it starts those that are missing, and drains in time.

It runs in a thread of its own, because an engine may be slow or away: then nothing happens to agents that run.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from argosy.cluster.cluster import Node
from argosy.errors import ArgosyError
from argosy.live.backends.cluster.agent_registry import AgentRegistry
from argosy.live.backends.cluster.engines.base import AgentOrder, AgentState, Engine
from argosy.live.daemon_log import note

LOOK_S = 0.5
WAIT_S, LONGEST_WAIT_S = 5.0, 60.0  # until an agent that has come to nothing is started again
RENEWAL_S = 600.0  # before an engine ends an agent, its jobs move away; at most a tenth of the agent's time


@dataclass(frozen=True, slots=True)
class Head:
    """What an agent needs to reach the daemon, and what the keeper asks the daemon for."""

    address: str
    authority: str  # certificate of the authority that has signed the daemon's (PEM); "" if it is publicly known
    new_token: Callable[[str], str]  # makes a token for the agent of a node, and revokes the older ones
    drain: Callable[[str, bool], None]  # empties a node, or uses it again


@dataclass
class _Kept:
    started_at: float = float("-inf")
    wait_s: float = WAIT_S
    leaving: float | None = None  # when the agent has started because of whose end the node was drained
    seen: AgentState = field(default_factory=lambda: AgentState("absent"))


class Keeper:
    def __init__(self, engine: Engine, nodes: Sequence[Node], registry: AgentRegistry, head: Head, mark: str) -> None:
        self._engine, self._registry, self._head, self._mark = engine, registry, head, mark
        self._kept = {node.name: _Kept() for node in nodes}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="argosy-keeper", daemon=True)
        self.problem = ""  # why the engine cannot be asked

    def start(self) -> None:
        self._thread.start()

    def end(self, *, release: bool = False) -> None:
        """Stop keeping; with `release`, end all agents too."""
        self._ending.set()
        self._thread.join(timeout=60.0)
        try:
            if release:
                self._engine.release(list(self._kept))
        finally:
            self._engine.close()

    def _run(self) -> None:
        while not self._ending.wait(LOOK_S):
            try:
                self.look()
                self._tell("")
            except ArgosyError as problem:
                self._tell(getattr(problem, "what", None) or str(problem))
            except Exception as problem:  # an adapter's mistake must not end the thread unnoticed
                self._tell(f"{type(problem).__name__}: {problem}")

    def _tell(self, problem: str) -> None:
        if problem and problem != self.problem:
            note(f"{self._engine.name} cannot be used", why=problem)
            for name in self._kept:
                self._registry.engine_says(name, f"{self._engine.name} cannot start its agent: {problem}")
        self.problem = problem

    def look(self) -> None:
        """Compare what there is with what there should be, and start what is missing."""
        states, now, orders = self._engine.agent_states(), time.monotonic(), []
        for name, kept in self._kept.items():
            kept.seen = states.get(name, AgentState("absent"))
            up = self._registry.is_up(name)
            if up:
                kept.wait_s = WAIT_S
            if kept.seen.phase == "absent" and not up and now - kept.started_at > kept.wait_s:
                kept.wait_s = min(2 * kept.wait_s, LONGEST_WAIT_S) if kept.started_at > 0 else WAIT_S
                kept.started_at = now
                orders.append(self._order(name))
            self._registry.engine_says(name, self._words(kept))
            self._renew(name, kept, up)
        if orders:
            self._engine.ensure_agents(orders)

    def _words(self, kept: _Kept) -> str:
        if kept.seen.phase == "waiting":
            return kept.seen.why or f"{self._engine.name} is starting its agent"
        if kept.seen.phase == "running":
            return "its agent was started, and has not registered yet"
        return kept.seen.why or f"it has no agent yet; {self._engine.name} starts one"

    def _order(self, name: str) -> AgentOrder:
        folder = f"/tmp/{self._mark}-{os.getuid()}-{name}"
        words = [sys.executable, "-m", "argosy.cli.main", "agent", "--daemon", self._head.address, "--node", name]
        words += ["--token-file", "/dev/stdin", "--folder", folder, "--engine", self._engine.name]
        return AgentOrder(name, tuple(words), f"{self._head.new_token(name)}\n{self._head.authority}".strip())

    def _renew(self, name: str, kept: _Kept, up: bool) -> None:
        """Have jobs move away before the engine ends an agent, and use the node again when there is another."""
        address, ends_at = self._registry.watched[name].address, kept.seen.ends_at
        if not up or address is None:
            return
        if kept.leaving is None:
            if ends_at is not None and ends_at - time.time() < min(RENEWAL_S, (ends_at - address.started_at) / 10):
                kept.leaving = address.started_at
                self._head.drain(name, True)
        elif address.started_at != kept.leaving:
            kept.leaving = None
            self._head.drain(name, False)
        elif not self._registry.jobs_on(name):
            self._engine.release([name])  # it is empty, so another can begin at once
