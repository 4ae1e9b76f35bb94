"""The cluster backend runs jobs on other hosts: a supervisor here for each run, and an agent on each node.

Engines such as Slurm and Ray only start and watch the agents (`engines`); everything else is the same for all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy import __version__
from argosy.cluster.cluster import Node
from argosy.errors import InputError
from argosy.live.backends.base import NodeStatus, Run
from argosy.live.backends.cluster.agent_registry import AgentRegistry
from argosy.live.backends.cluster.engines.base import Engine
from argosy.live.backends.cluster.fences import Fences
from argosy.live.backends.cluster.keeper import Head, Keeper
from argosy.live.backends.local import machine
from argosy.live.backends.local.bounded_threads import in_thread
from argosy.live.backends.local.users import hand_over, must_switch
from argosy.live.backends.supervised import SupervisedBackend
from argosy.live.errors import Conflict, NotFound
from argosy.live.supervisor.cluster.agent_address import AgentAddress
from argosy.live.supervisor.cluster.lease import LeaseTimes
from argosy.live.supervisor.cluster.line import PROTOCOL

VIRTUAL = "cpu"  # the GPU type of nodes whose slots are CPU cores


class ClusterBackend(SupervisedBackend):
    """Runs jobs on the nodes of a cluster. `shared` is a folder that the head and all nodes see, if there is one.

    Agents are started by `engine`; without one, by whoever runs the hosts.
    """

    name = "cluster"
    runs_as_owners = True

    def __init__(
        self,
        home: Path,
        nodes: Sequence[Node],
        shared: Path | None,
        *,
        times: LeaseTimes | None = None,
        settings: Mapping[str, Any] | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.times, self.shared, self._nodes = times or LeaseTimes(), shared, {node.name: node for node in nodes}
        self.agents = home.resolve() / "agents"
        places = {
            name: replace(place, first=0, cuda=self._nodes[name].gpu_type != VIRTUAL)
            for name, place in machine.places(tuple(nodes), False).items()
        }
        fence = Fences(self.agents, self.times)
        super().__init__(home, places, folder="cluster", settings=settings, fence=fence)
        if shared is not None:
            self._check_shared(shared)
        self.registry = AgentRegistry(nodes, self.agents, shared, self.times)
        self.registry.start()
        self._engine = engine
        self._keeper: Keeper | None = None

    def _check_shared(self, shared: Path) -> None:
        hint = "agents.shared: names a folder that the head and all nodes mount at the same path, such as an NFS export"
        try:
            (shared / "jobs").mkdir(mode=0o711, parents=True, exist_ok=True)
        except OSError as problem:
            what = f"the shared folder cannot be used: {problem.strerror}"
            raise InputError(what, where=str(shared), hint=hint) from None
        if not os.access(shared, os.W_OK | os.X_OK):
            raise InputError("the shared folder cannot be written", where=str(shared), hint=hint)
        if shared.stat().st_mode & 0o022:
            hint = f"chmod go-w {shared}"
            what = "other users may write to the shared folder, and could replace what the daemon keeps there"
            raise InputError(what, where=str(shared), hint=hint)

    async def nodes(self) -> Sequence[NodeStatus]:
        return self.registry.statuses()

    def serving(self, head: Head) -> None:
        """Begin to keep agents on the nodes; called when the daemon answers requests."""
        if self._engine is not None:
            mark = f"argosy-{self._digest}"
            self._keeper = Keeper(self._engine, tuple(self._nodes.values()), self.registry, head, mark)
            self._keeper.start()

    def release(self) -> None:
        """End all agents that the engine has started."""
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            keeper.end(release=True)

    async def close(self) -> None:
        if self._keeper is not None:
            await in_thread(self._keeper.end)
        await in_thread(self.registry.end)

    def enrol(self, node: str, about: Mapping[str, Any], host: str) -> dict[str, Any]:
        """Take in an agent that registers, or say why not. `host` is where its request came from."""
        watched = self.registry.watched.get(node)
        if watched is None:
            raise NotFound(f"the cluster file has no node {node[:64]!r}", hint="correct --node, or the cluster file")
        try:
            self._check(node, about)
            before = watched.address or AgentAddress.read(self.agents, node)
            known = before is not None and before.secret == about["secret"]  # each start of an agent has its own
            address = AgentAddress(
                node,
                str(about["address"] or host),
                int(about["port"]),
                str(about["certificate"]),
                str(about["secret"]),
                str(about["host_id"]),
                before.started_at if before is not None and known else time.time() - float(about["age_s"]),
                str(about["engine"]),
            )
            other = before is not None and before.host_id != address.host_id
            if other and before is not None and self.registry.is_up(node):
                hint = "stop that one first, or give this one another --node"
                raise Conflict(f"{node} already has an agent, on another machine: {before.host}", hint=hint)
        except InputError as refused:
            watched.refusal = f"an agent at {host} was refused: {refused.what}"
            raise
        if before != address:
            address.write(self.agents)
        self.registry.enrolled(address)
        return {"ok": True}

    def _check(self, node: str, about: Mapping[str, Any]) -> None:
        if about["version"] != __version__ or about["protocol"] != PROTOCOL:
            theirs, ours = f"{about['version']} (protocol {about['protocol']})", f"{__version__} (protocol {PROTOCOL})"
            raise Conflict(
                f"the agent of {node} is Argosy {theirs}, but the daemon is {ours}", hint="install the same version"
            )
        wanted, has = self._nodes[node], int(about["gpus"])
        if self.places[node].cuda and has < wanted.gpus:
            hint = f"correct gpus: in the cluster file, or look at nvidia-smi on {node}"
            what = f"{node} has {has} GPUs, but the cluster file says {wanted.gpus} of type {wanted.gpu_type}"
            raise Conflict(what, hint=hint)

    # -- runs

    def _home(self, run: Run) -> Path:
        """Return the folder of a job that nodes see too."""
        assert self.shared is not None
        return self.shared / "jobs" / str(run.key.job)

    def _hand_over(self, run: Run) -> None:
        if self.shared is None:
            (run.home / "checkpoints" / f"gen-{run.key.generation}").mkdir(mode=0o700, parents=True, exist_ok=True)
            return
        home = self._home(run)
        home.mkdir(mode=0o711, exist_ok=True)
        hand_over(replace(run, home=home), self.shared)

    def _describe(self, run: Run) -> dict[str, Any]:
        """Return what only a cluster's supervisor needs; its agents look at commands and folders on their nodes."""
        must_switch(run.user)
        return {
            "user": run.user,
            "uid": os.getuid(),  # of the supervisor: no worker runs here
            "env": dict(run.env),
            "checkpoints": str(self._home(run) / "checkpoints") if self.shared is not None else None,
            "files": str(run.home / "checkpoints") if self.shared is None else None,
            "cluster": {"agents": str(self.agents), "times": self.times.plain()},
        }

    def _prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        if spec is not None:
            self.registry.prepare(spec, user)
