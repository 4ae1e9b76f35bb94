"""Answers one connection, in a process of its own: checks who calls, and does what the caller has come for.

Purposes: `run` opens a session, `fence` ends whatever is left of a run and says so, `watch` is the daemon's: it asks
whether the node is there, and which runs it has, and prepares interpreters for jobs that wait.
"""

from __future__ import annotations

import hmac
import os
import signal
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.live.agent.node_runs import NodeRuns
from argosy.live.agent.session import Session
from argosy.live.agent.watch import Watch
from argosy.live.backends.base import LaunchError
from argosy.live.supervisor.cluster.lease import Lease, LeaseTimes
from argosy.live.supervisor.cluster.line import PROTOCOL, Line, LineBroken, receive_now, send_now
from argosy.live.supervisor.places import Place
from argosy.live.supervisor.reactor import Reactor

GREETING_S = 5.0
OPENING_S = 20.0
MAX_GREETING = 4096


@dataclass(frozen=True, slots=True)
class AgentNode:
    """What the agent's processes know about their node."""

    node: str
    folder: Path
    secret: str
    context: ssl.SSLContext

    @property
    def runs(self) -> NodeRuns:
        return NodeRuns(self.folder / "runs")

    @property
    def zygotes(self) -> Path:
        return self.folder / "zygotes"


def answer(
    this_node: AgentNode, plain: socket.socket, known: Callable[[], None], on_lease: Callable[[float], None]
) -> None:
    """Answer one connection until it has ended. `known` is called when the caller has proved who it is."""
    plain.settimeout(GREETING_S)
    try:
        stream = this_node.context.wrap_socket(plain, server_side=True)
        greeting = receive_now(stream, MAX_GREETING)
        if not hmac.compare_digest(str(greeting.get("secret")).encode(), this_node.secret.encode()):
            return
        if greeting.get("protocol") != PROTOCOL:
            send_now(stream, {"op": "no", "why": f"it speaks protocol {PROTOCOL}, not {greeting.get('protocol')}"})
            return
        known()
        _serve(this_node, stream, greeting, on_lease)
    except (OSError, ValueError, KeyError, TypeError):  # it hung up, or is not a head of our version
        return


def _serve(
    this_node: AgentNode, stream: ssl.SSLSocket, greeting: Mapping[str, Any], on_lease: Callable[[float], None]
) -> None:
    purpose = greeting["purpose"]
    if purpose == "watch":
        send_now(stream, {"op": "welcome"})
        Watch(this_node.runs, this_node.zygotes, this_node.node, stream).run()
        return
    marker = str(greeting["marker"])
    older = [marker] if purpose == "fence" else {*this_node.runs.of_job(marker), marker}
    if not all(this_node.runs.end(one) for one in older):
        send_now(
            stream, {"op": "no", "why": f"processes of {marker} cannot be killed; look at the node {this_node.node}"}
        )
        return
    times = LeaseTimes(**greeting["times"])
    lease = Lease(times)
    send_now(stream, {"op": "welcome", "beat": lease.beat()})
    if purpose != "run":
        return
    stream.settimeout(OPENING_S)
    _open(this_node, stream, marker, times, lease, on_lease)


def _open(
    this_node: AgentNode,
    stream: ssl.SSLSocket,
    marker: str,
    times: LeaseTimes,
    lease: Lease,
    on_lease: Callable[[float], None],
) -> None:
    message = receive_now(stream)
    run = message["run"]
    lease.renew(message["n"])
    if message["op"] != "open" or run["marker"] != marker or lease.expired:
        raise LineBroken("there is no lease for this session")
    on_lease(lease.deadline)
    address = stream.getsockname()[0]
    reactor = Reactor()
    session = Session(reactor, this_node.runs, this_node.zygotes, this_node.node, address, times, lease, on_lease)
    line = Line(stream, reactor, session.obey, lambda: session.end("the line to the head has ended"))
    signal.signal(signal.SIGTERM, lambda *_: reactor.later(0, lambda: session.end("its agent was stopped")))
    try:
        session.open(line, run, Place(0, int(run["gpus"]), bool(run["cuda"])))
    except (LaunchError, OSError) as problem:
        why = getattr(problem, "what", None) or str(problem)
        line.send({"op": "refused", "why": why})
        line.send({"op": "closed", "why": why})
        this_node.runs.end(marker) if session.lock is None else this_node.runs.bury(this_node.runs.folder(marker))
        reactor.later(1.0, reactor.stop)
    reactor.run()
    line.close()
    os._exit(0)
