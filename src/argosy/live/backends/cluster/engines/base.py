"""The interface of an engine adapter: it starts agents, says what has become of them, and ends them.

Everything else (where a job runs, its workers, resizes, leases, fences, logs) is the same for all engines, and happens
between the head and the agents. An adapter keeps nothing itself: it names what it starts, so that the next daemon finds
it again. docs/write-a-backend.md shows a whole adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from argosy.cluster.cluster import Node
from argosy.errors import InputError


class EngineError(InputError):
    """The engine cannot be used, or has refused something: what, and what to do."""


@dataclass(frozen=True, slots=True)
class AgentOrder:
    """An agent that is to be started."""

    node: str
    argv: tuple[str, ...]  # the command
    stdin: str  # for the command's standard input: a secret, which must not be on a command line or in a public file


@dataclass(frozen=True, slots=True)
class AgentState:
    """What an engine knows of the agent of one node."""

    phase: Literal["waiting", "running", "absent"]  # waiting: the engine starts it as soon as it can
    why: str = ""  # what it waits for
    ends_at: float | None = None  # when the engine will end it (Unix time), if it will


class Engine(Protocol):
    """Starts and watches agents. Every call may wait for some seconds, may be repeated, and may raise EngineError."""

    name: str

    def nodes(self) -> Sequence[Node]:
        """Return the nodes for which there may be agents. This is asked once, when the daemon starts."""

    def ensure_agents(self, orders: Sequence[AgentOrder]) -> None:
        """Start these agents, except those that exist already. It need not wait until they run."""

    def agent_states(self) -> Mapping[str, AgentState]:
        """Return what has become of our agents, by node; those that do not exist may be left out."""

    def release(self, nodes: Sequence[str]) -> None:
        """End the agents of these nodes, and give the nodes back."""

    def close(self) -> None:
        """Release what the adapter itself holds; agents go on."""
