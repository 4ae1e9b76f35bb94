"""A cluster backend with real agents on pseudo-hosts, for tests: a `Yard` whose nodes are h1, h2, …"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from yard import PATIENCE_S, Yard, kill, wait_until

from argosy.cluster.cluster import Node
from argosy.errors import InputError
from argosy.live.backends.cluster.backend import ClusterBackend
from argosy.live.demo.pseudo_hosts import PseudoHost, PseudoHosts
from argosy.live.home import Home
from argosy.live.http.tls import own_tls
from argosy.live.supervisor import process_table
from argosy.live.supervisor.cluster.lease import LeaseTimes

TIMES = LeaseTimes(silence=1.5, lease=4.0, margin=1.0)
ARGOSY = str(Path(sys.executable).with_name("argosy"))


class Door:
    """The daemon's door for agents, without a daemon: it takes in every agent that has the token."""

    def __init__(self, home: Home, address: str, backend: Callable[[], ClusterBackend]) -> None:
        door = self
        self.token, self.closed = "argosy-test", False

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = 200, {"ok": True}
                if self.headers["Authorization"] != f"Bearer {door.token}":
                    status, answer = 401, {"error": {"what": "this token is not valid", "hint": None}}
                elif door.closed:
                    status = 503
                else:
                    try:
                        backend().enrol(body["node"], body, self.client_address[0])
                    except InputError as refused:
                        status, answer = 409, {"error": {"what": refused.what, "hint": refused.hint}}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return

        home.create()
        self.server = ThreadingHTTPServer((address, 0), Handler)
        self.server.socket = own_tls(home, address, []).context.wrap_socket(self.server.socket, server_side=True)
        self.address = f"https://{address}:{self.server.server_address[1]}"
        self.authority = (home.folder / "tls" / "ca.pem").read_text()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Field(Yard):
    def __init__(
        self, network: PseudoHosts, name: str, *, slots: int = 2, common: bool = True, **settings: Any
    ) -> None:
        self.network, self.slots, self.has_common = network, slots, common
        self.hosts = {host.name: host for host in network.hosts}
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.common = network.shared / name / "common"
        self.common.mkdir(parents=True)
        super().__init__(network.shared / name / "home", network.shared / name, **settings)
        self.door = Door(Home(self.home / "door"), network.head, lambda: self.backend)

    def another_backend(self) -> ClusterBackend:  # type: ignore[override]
        common = self.common if self.has_common else None
        nodes = [Node(name, "cpu", self.slots) for name in self.hosts]
        self.backend = ClusterBackend(self.home, nodes, common, times=TIMES, settings=self.settings)
        return self.backend

    backend: ClusterBackend  # type: ignore[assignment]

    def start_agent(self, name: str) -> None:
        token = self.home / "token"
        token.touch(0o600)
        token.write_text(f"{self.door.token}\n{self.door.authority}")
        words = [ARGOSY, "agent", "--daemon", self.door.address, "--token-file", str(token), "--node", name]
        if name in self.agents:
            self.agents[name].wait(timeout=PATIENCE_S)
        host, env = self.hosts[name], {"ARGOSY_HOME": str(self.home)}
        self.agents[name] = host.start(
            [*words, "--folder", f"/tmp/agent-{self.home.parent.name}"], env, self.agent_log(name)
        )

    def agent_log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def agent_pids(self, name: str) -> list[int]:
        """Return the agent of a node (first) and the processes that it has forked."""
        return self.hosts[name].processes(f"/tmp/agent-{self.home.parent.name}")

    def start_agents(self) -> None:
        for name in self.hosts:
            self.start_agent(name)
        self.wait_up(*self.hosts)

    def wait_up(self, *names: str) -> None:
        wait_until(lambda: all(self.backend.registry.is_up(name) for name in names))

    def is_up(self, name: str) -> bool:
        return self.backend.registry.is_up(name)

    def workers_on(self, host: PseudoHost) -> list[int]:
        """Return the worker processes of a host, by their numbers outside it."""
        pids = host.processes("")
        forked = {pid for pid in pids if b"zygote.py" in _about(pid, "cmdline")}
        parents = {pid: found.parent for pid in forked if (found := process_table.process(pid))}
        below = [pid for pid in forked if parents.get(parents.get(pid, 0), 0) in forked]  # of a zygote's spawner
        return sorted({*below, *(pid for pid in pids if b"ARGOSY_WORKER=" in _about(pid, "environ"))})

    def end_field(self) -> None:
        for host in self.hosts.values():
            host.heal()
        if self.runs:
            self.clear()
        for name in self.agents:
            for pid in self.agent_pids(name)[:1]:
                kill(pid, signal.SIGTERM)
        for agent in self.agents.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(timeout=PATIENCE_S)
        self.backend.registry.end()
        self.door.close()


def _about(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
