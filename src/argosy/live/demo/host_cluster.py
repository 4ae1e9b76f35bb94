"""A whole cluster on pseudo-hosts: a daemon on this machine, and an agent on every host.

All are started with the commands that an operator uses.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError
from argosy.live.client import Client
from argosy.live.demo.pseudo_hosts import PseudoHost, PseudoHosts, pseudo_hosts
from argosy.live.home import Home
from argosy.live.supervisor.records import read_record

PATIENCE_S = 90.0
ARGOSY = (sys.executable, "-c", "from argosy.cli.main import main; main()")


class HostCluster:
    """The daemon and the agents. `settings` are those of `agents:` in the cluster file."""

    def __init__(self, network: PseudoHosts, *, slots: int = 2, policy: str = "tiresias-las", **settings: Any) -> None:
        self.network, self.policy = network, policy
        self.home, self.file = Home(network.folder / "head"), network.folder / "hosts.yaml"
        self.checkpoints = network.shared / "argosy"
        self.checkpoints.mkdir(mode=0o755, exist_ok=True)
        words = "".join(f", {name}: {value}" for name, value in settings.items())
        names = ", ".join(f"{{name: {host.name}, gpu: cpu, gpus: {slots}}}" for host in network.hosts)
        self.file.write_text(f"name: hosts\nnodes: [{names}]\nagents: {{shared: {self.checkpoints}{words}}}\n")
        self.daemon: subprocess.Popen[bytes] | None = None
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.port = 0

    # -- the daemon

    def serve(self) -> None:
        """Start the daemon, and wait until it serves."""
        network, home = self.network, str(self.home.folder)
        words = ["serve", "--cluster", str(self.file), "--home", home, "--host", network.head, "--tls"]
        with (network.folder / "serve.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [*ARGOSY, *words, "--port", str(self.port), "--policy", self.policy],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(self._serves, "the daemon to serve")
        self.port = int(self.home.address.read_text().rpartition(":")[2])

    def _serves(self) -> bool:
        if self.daemon is None or self.daemon.poll() is not None:
            said = (self.network.folder / "serve.log").read_text(errors="replace").strip()
            raise ArgosyError(f"the daemon has ended; it said: {said[-500:] or 'nothing'}")
        try:
            with self.client() as client:
                return bool(client.get("/v1/health")) and self.home.address.exists()
        except (ArgosyError, OSError):
            return False

    def client(self) -> Client:
        return Client.find(None, self.home.folder)

    def get(self, path: str) -> Any:
        with self.client() as client:
            return client.get(path)

    def kill_daemon(self, number: int = signal.SIGKILL) -> None:
        """Kill the daemon, or end it in order with SIGTERM."""
        if self.daemon is not None:
            self.daemon.send_signal(number)
            self.daemon.wait()
            self.daemon = None

    def supervisors(self) -> list[int]:
        """Return the supervisors that are alive."""
        found = []
        for path in (self.home.folder / "jobs").glob("*/gen-*/supervisor.json"):
            record = read_record(path)
            if record and not (path.parent / "exit.json").exists() and Path(f"/proc/{record['pid']}").exists():
                found.append(int(record["pid"]))
        return found

    # -- agents

    def token(self, name: str) -> Path:
        """Make a token for the agent of a node, and return the file."""
        file = self.network.shared / f"{name}.token"
        if not file.exists():
            with self.client() as client:
                made = client.post("/v1/tokens", {"owner": name, "role": "agent", "expires_s": None})
            authority = (self.home.folder / "tls" / "ca.pem").read_text()
            file.touch(0o600)
            file.write_text(f"{made['secret']}\n{authority}")
        return file

    def start_agent(self, host: PseudoHost) -> None:
        words = ["agent", "--daemon", f"https://{self.network.head}:{self.port}", "--node", host.name]
        words += ["--token-file", str(self.token(host.name)), "--folder", "/tmp/argosy-agent"]
        log = self.network.folder / f"{host.name}.log"
        self.agents[host.name] = host.start([*ARGOSY, *words], log=log)

    def agent(self, host: PseudoHost) -> int:
        """Return the agent's process on a host; 0 if there is none."""
        return next(iter(host.processes("--folder /tmp/argosy-agent")), 0)

    def start_agents(self) -> None:
        for host in self.network.hosts:
            self.start_agent(host)
        self.wait_up()

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["name"]: node for node in self.get("/v1/nodes")["nodes"]}

    def wait_up(self) -> None:
        wait_for(lambda: all(node["state"] == "up" for node in self.nodes().values()), "all nodes to be up")

    # -- jobs

    def submit(self, **job: Any) -> int:
        """Submit a job file; return its number."""
        job = {"workdir": str(self.network.shared), **job}
        with self.client() as client:
            answer = client.post("/v1/jobs", {"jobs": [job]})
        return int(answer["ids"][0])

    def job(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/v1/jobs/{number}")
        return found

    def end(self) -> None:
        """End everything, jobs too."""
        self.kill_daemon()
        for pid in self.supervisors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for host in self.network.hosts:
            host.kill()
        for agent in self.agents.values():
            agent.wait()


@contextlib.contextmanager
def host_cluster(count: int, folder: Path | None = None, **settings: Any) -> Iterator[HostCluster]:
    """Make a cluster of pseudo-hosts with a daemon and agents; end all of it after the block."""
    with pseudo_hosts(count, folder) as network:
        made = HostCluster(network, **settings)
        try:
            made.serve()
            made.start_agents()
            yield made
        finally:
            made.end()


def wait_for(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {patience_s:g} s for {what}")
        time.sleep(0.05)
