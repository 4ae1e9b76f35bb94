"""The daemon's own connection to a node: it shows that the node is there, and what is on it."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Any

from argosy.live.agent.node_runs import NodeRuns
from argosy.live.backends.base import LaunchError
from argosy.live.backends.local.interpreters import read_command, warm
from argosy.live.backends.local.users import must_switch
from argosy.live.backends.local.zygote_pool import ZygotePool
from argosy.live.supervisor.cluster.line import Line, Message
from argosy.live.supervisor.reactor import Reactor

BEAT_S = 0.5
SILENT_S = 30.0  # a daemon that asks nothing for so long is gone
TEND_S = 1.0


class Watch:
    """Answers the daemon's questions until it is gone."""

    def __init__(self, runs: NodeRuns, zygotes: Path, node: str, stream: ssl.SSLSocket) -> None:
        self.runs, self.pool, self.node = runs, ZygotePool(zygotes), node
        self.reactor = Reactor()
        self.line = Line(stream, self.reactor, self.obey, self.reactor.stop)
        self.heard = time.monotonic()

    def run(self) -> None:
        self.reactor.every(TEND_S, self.tend)
        self.reactor.run()

    def tend(self) -> None:
        self.pool.tend()
        if time.monotonic() - self.heard > SILENT_S:
            self.reactor.stop()

    def obey(self, message: Message) -> None:
        self.heard = time.monotonic()
        op = message.get("op")
        if op == "ping":
            self.line.send({"op": "pong", "n": message.get("n"), "runs": self.runs.markers()})
        elif op == "prepare":
            self.prepare(message)
        elif op == "probe":
            self.line.send({"op": "probed", "why": probe(str(message["path"]), str(message["content"]))})

    def prepare(self, message: Message) -> None:
        try:
            spec, user = message["spec"], must_switch(message["user"])
            warm(self.pool, read_command(spec, user)[2].interpreter, spec, user, cuda=bool(message["cuda"]))
        except (LaunchError, OSError, KeyError, TypeError, ValueError):
            return  # nothing depends on it: the start of the job will say what is wrong


def probe(path: str, content: str) -> str:
    """Check that a file which the head has written is here too, and that we can write beside it; "" if so."""
    here = Path(path)
    try:
        if here.read_text() != content:
            return f"{path} has another content here than on the head"
        beside: Any = here.with_name(f"{here.name}.seen")
        beside.write_text(content)
    except OSError as problem:
        return f"{path}, which the head has written, is not here or cannot be used: {problem.strerror or problem}"
    return ""
