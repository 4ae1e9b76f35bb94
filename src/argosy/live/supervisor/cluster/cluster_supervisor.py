"""The supervisor of a run on other hosts: a `Supervisor` whose workers are started, watched and killed by agents.

Two things differ. Workers of a node that cannot be reached are lost to the group at once, but count as alive until the
node is fenced, so that neither an assignment nor the end of the run is reported before. And the run ends only when
every node on which it ever was is fenced.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from argosy.live.backends.base import Phase
from argosy.live.supervisor.cluster.cluster_processes import ClusterProcesses, RelayedConnection
from argosy.live.supervisor.cluster.head_checkpoints import HeadCheckpoints
from argosy.live.supervisor.cluster.head_resources import HeadResources
from argosy.live.supervisor.cluster.lease import LeaseTimes
from argosy.live.supervisor.cluster.node_link import NodeLink
from argosy.live.supervisor.message_server import Connection, Message
from argosy.live.supervisor.places import rank_variables, slots
from argosy.live.supervisor.records import RunFolder
from argosy.live.supervisor.supervisor import TICK_S, Supervisor

REACH_S = 20.0  # a run whose nodes cannot be reached for so long at its start is lost
MOST_COMPLAINTS = 20


class ClusterSupervisor(Supervisor):
    """Supervises one run on the nodes of a cluster. `run["cluster"]` has the agents' folder and the lease."""

    resources: HeadResources  # type: ignore[assignment]
    processes: ClusterProcesses  # type: ignore[assignment]

    def __init__(self, folder: RunFolder, run: dict[str, Any]) -> None:
        super().__init__(folder, run)
        about = run["cluster"]
        self.agents, self.times = Path(about["agents"]), LeaseTimes(**about["times"])
        self.links: dict[str, NodeLink] = {}
        self.begun = False  # whether workers were started
        self.began_at = time.monotonic()
        self.ending: tuple[int | None, str] | None = None  # how the run has ended, while nodes are not fenced yet
        self.complaints = 0
        self.put_off: tuple[int | None, str] | None = None  # the end, while it waits for a checkpoint
        self.checkpoints = HeadCheckpoints(Path(run["files"]), self.arrived) if run.get("files") else None

    def begin(self) -> None:
        self.resources = HeadResources(self.folder, self.run, self.reactor, self.obey)
        self.resources.write_record()
        self.processes = ClusterProcesses(self.link, self.output.take, self.withdrawn)
        self.direct_workers()
        for slot in slots(self.target):
            self.link(slot.rpartition(":")[0]).connect()
        self.reactor.every(TICK_S, self.tick)
        self.status.write()

    def link(self, node: str) -> NodeLink:
        if node not in self.links:
            self.links[node] = NodeLink(
                node,
                self.agents,
                self.times,
                self.reactor,
                self.describe,
                before_open=self.resources.note_node,
                on_message=self.from_agent,
                on_cut=self.cut,
                on_fenced=self.fenced,
            )
        return self.links[node]

    def describe(self, node: str) -> dict[str, Any]:
        """Return what the agent of a node must know of the run."""
        kept = ("job", "generation", "marker", "spec", "user", "env", "restore", "checkpoints", "limits", "settings")
        place = self.places.nodes[node]
        found = {**{name: self.run.get(name) for name in kept}, "gpus": place.gpus, "cuda": place.cuda}
        if self.checkpoints is not None and self.coordinator.membership.version:
            found["restore"] = []  # it gets its state from the others
        return found

    # -- start

    def start_workers(self) -> None:
        self.begun = True
        super().start_workers()

    def start_worker(self, number: int, of: tuple[str, ...], world: int = 1) -> None:
        """Start a worker on the node of its first slot.

        It gets those of its slots that are on this node: a command without the SDK cannot use others.
        """
        self.output.several = self.output.several or number > 0
        node = of[0].rpartition(":")[0]
        here = tuple(slot for slot in of if slot.rpartition(":")[0] == node)
        self.link(node).connect()
        self.processes.start(number, here, {"rank": self.rank(number, node, world)})

    def rank(self, number: int, node: str, world: int) -> dict[str, str]:
        """Return torchrun's variables; the first node has chosen a port for the others."""
        first = (self.link(slots(self.target)[0].rpartition(":")[0]).opened) or {}
        found = rank_variables(number if world > 1 else 0, world, int(first.get("port") or self.master_port))
        found["MASTER_ADDR"] = str(first.get("address") or found["MASTER_ADDR"])
        if world > 1:
            nodes = [slot.rpartition(":")[0] for slot in slots(self.target)]
            found["LOCAL_WORLD_SIZE"] = str(Counter(nodes)[node])
            found["LOCAL_RANK"] = str(nodes[:number].count(node))
        return found

    # -- messages of agents

    def from_agent(self, link: NodeLink, message: Message) -> None:
        try:
            self.take(link, message)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
            self.complaints += 1
            if self.complaints <= MOST_COMPLAINTS:
                print(f"ignored a message of {link.node}: {type(problem).__name__}: {problem}", flush=True)

    def take(self, link: NodeLink, message: Message) -> None:
        op, number = message["op"], message.get("id")
        if op == "opened":
            self.processes.spawner.warm = self.processes.spawner.warm and message.get("warm") is True
            if not self.begun and self.stopping_since is None and link.node == slots(self.target)[0].rpartition(":")[0]:
                self.start_workers()
        elif op == "refused":
            self.finish(1, f"{link.node}: {str(message['why'])[:500]}")
        elif op == "said":
            self.relay(self.processes.connection(link, int(message["c"])), link, message["m"])
        elif op in ("get", "part"):
            if self.checkpoints is not None:
                self.checkpoints.hear(link, message, self.run["restore"])
        elif op == "hung_up":
            if connection := self.processes.connections.pop((link.node, int(message["c"])), None):
                connection.open = False
        elif not isinstance(number, int) or number not in self.processes.on_node(link.node):
            return  # a node speaks for its own workers only
        elif op == "started":
            self.started(number, 0)
        elif op == "output":
            self.processes.take_output(number, message["data"])
        elif op == "ended":
            self.processes.flush(self.processes.alive[number])
            self.ended(number, int(message["code"]))

    def relay(self, connection: RelayedConnection, link: NodeLink, message: Message) -> None:
        """Handle what a worker has said to the control socket of its node."""
        if message.get("op") == "store":
            self.resources.rendezvous.ask(message, connection.send)
        elif message.get("op") == "hello" and message.get("worker") not in self.processes.on_node(link.node):
            connection.drop(connection)
        elif message.get("op") == "checkpoint" and self.checkpoints is not None:
            if connection.worker in self.processes.on_node(link.node):
                self.checkpoints.bring(link, message)
        elif self.ending is None:
            self.hear(connection, message)  # type: ignore[arg-type]

    def arrived(self, message: Message, why: str) -> None:
        """Count a checkpoint as saved, because it is here; then end the run, if its end has waited for that."""
        if why:
            self.status.tell(f"the checkpoint at step {message.get('step')} could not be brought here: {why}")
        else:
            self.status.take_checkpoint(message)
        if self.put_off is not None and (self.checkpoints is None or not self.checkpoints.busy):
            self.finish(*self.put_off)

    # -- nodes that cannot be reached

    def cut(self, link: NodeLink, why: str) -> None:
        """Go on without the workers of a node, at once; they count as alive until it is fenced."""
        if self.checkpoints is not None:
            self.checkpoints.cut(link)
        lost = self.processes.cut(link.node)
        if not lost or self.ending is not None:
            return
        self.status.tell(f"{link.node} {why}; the run goes on without its workers ({len(lost)})")
        membership = self.coordinator.membership
        for number in lost:
            membership.cut_off(number)
        if self.stopping_since is not None or self.failure is not None or membership.ending:
            return
        if not self.status.hot or membership.state_is_lost or not membership.version:
            self.fail(None, f"{link.node} {why}")
        else:
            self.coordinator.decide()

    def fenced(self, link: NodeLink) -> None:
        """Note that all workers that a node had when it was cut off are dead."""
        for number in [n for n in self.processes.on_node(link.node) if n in self.processes.cut_off]:
            self.processes.flush(self.processes.alive[number])
            self.processes.alive[number].killed = f"was on {link.node}, which could not be reached,"
            self.ended(number, -9)
        self.conclude_if_fenced()

    def withdrawn(self, number: int) -> None:
        self.reactor.later(0, lambda: self.ended(number, -9))

    def ended(self, number: int, code: int) -> None:
        if self.ending is None:
            super().ended(number, code)
        else:
            self.processes.ended(number)

    # -- time

    def tick(self) -> None:
        if time.monotonic() - self.last_tick > 4 * TICK_S:
            for link in self.links.values():
                link.forgive()
        for link in list(self.links.values()):
            link.look()
        if self.ending is not None:
            self.last_tick = time.monotonic()
            self.conclude_if_fenced()
            return
        if not self.begun and time.monotonic() - self.began_at > REACH_S and self.stopping_since is None:
            problems = [f"{link.node}: {link.problem}" for link in self.links.values() if link.problem]
            self.finish(None, f"its nodes could not be reached: {'; '.join(problems) or 'no answer'}")
            return
        super().tick()

    def obey(self, connection: Connection, message: Message) -> None:
        super().obey(connection, message)
        if self.ending is None and self.stopping_since is None:
            for slot in slots(self.target):
                self.link(slot.rpartition(":")[0]).connect()

    # -- the end

    def end_by_force(self, now: float) -> None:
        """Kill all processes. The run never ends before its nodes are fenced, however long that takes."""
        self.processes.kill_all()

    def finish(self, code: int | None, message: str) -> None:
        """End the sessions on all nodes; the end is recorded when every node is fenced.

        This waits for checkpoints that are on their way, unless the run was to be killed at once.
        """
        at_once = self.stopping_since is not None and self.kill_at <= self.stopping_since
        if self.checkpoints is not None and self.checkpoints.busy and self.ending is None and not at_once:
            self.put_off = (code, message)
            return
        if self.ending is None:
            self.ending = (code, message)
            self.status.phase = Phase.STOPPING
            for link in self.links.values():
                link.close()
            self.write_status()
        self.conclude_if_fenced()

    def conclude_if_fenced(self) -> None:
        if self.ending is None or self.finished or not all(link.fenced for link in self.links.values()):
            return
        for link in self.links.values():
            link.end()
        self.processes.drain()
        self.processes.alive.clear()
        super().finish(*self.ending)
