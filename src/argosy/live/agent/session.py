"""A session: what one run has on this node, from the head's `open` until its lease ends, in a process of its own.

It is the far half of a supervisor. The head decides; this process starts workers through a zygote's spawner, checks
their processes, relays what they print and say, and kills all of them when the head closes the session, when the line
ends, or when the lease does.
"""

from __future__ import annotations

import base64
import os
import pwd
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from argosy.live.agent.node_files import NodeFiles
from argosy.live.agent.node_runs import NodeRuns
from argosy.live.backends.base import LaunchError
from argosy.live.backends.local.interpreters import read_command, warm
from argosy.live.backends.local.users import must_switch
from argosy.live.backends.local.zygote_pool import ZygotePool
from argosy.live.supervisor import process_table
from argosy.live.supervisor.cluster.lease import Lease, LeaseTimes
from argosy.live.supervisor.cluster.line import Line
from argosy.live.supervisor.message_server import Connection, Message
from argosy.live.supervisor.places import Place, Places, worker_request
from argosy.live.supervisor.processes import WorkerProcess, WorkerProcesses
from argosy.live.supervisor.reactor import Reactor
from argosy.live.supervisor.records import write_record
from argosy.live.supervisor.run_resources import RunResources
from argosy.live.supervisor.worker_spawner import WARM_LIMIT_S, WorkerSpawner

HIGH, LOW = 1 << 20, 1 << 18  # bytes that wait for the line: above, what workers print is not read; below, it is again
MOST_SAID = 8 << 20  # a worker that speaks although so much waits is disconnected
FAREWELL_S = 2.0  # how long the last words may take


class Session:
    """One session. `place` is the node's hardware, `on_lease` is told when the lease ends, each time that changes."""

    def __init__(
        self,
        reactor: Reactor,
        runs: NodeRuns,
        zygotes: Path,
        node: str,
        address: str,
        times: LeaseTimes,
        lease: Lease,
        on_lease: Callable[[float], None],
    ) -> None:
        self.reactor, self.runs, self.zygotes, self.node, self.address = reactor, runs, zygotes, node, address
        self.times, self.lease, self.on_lease = times, lease, on_lease
        self.connections: dict[int, Connection] = {}
        self.numbers: dict[Connection, int] = {}
        self.next = 0
        self.waiting: list[Message] | None = []  # starts that came before there was a spawner, and its files
        self.files: NodeFiles | None = None  # if node and head have no common folder
        self.lock: int | None = None  # of the run's folder
        self.holding = self.ending = False

    # -- start

    def open(self, line: Line, run: Mapping[str, Any], place: Place) -> None:
        """Prepare all that the workers need. Raises LaunchError if they cannot run on this node."""
        self.line, self.place = line, place
        user = must_switch(run["user"])
        base, cwd, command = read_command(run["spec"], user)
        self.uid = pwd.getpwnam(user).pw_uid if user else os.getuid()
        self.folder = self.runs.folder(run["marker"])
        self.folder.path.mkdir(mode=0o700, exist_ok=True)
        self.lock = self.folder.take_lock()
        if self.lock is None:
            raise LaunchError(f"another session of {run['marker']} is being opened")
        me = process_table.process(os.getpid())
        # the node is in the mark of its processes and its control group: two agents may be on one machine
        own = f"{run['marker']}-{self.node}"
        mark = {"marker": own, "uid": self.uid, "pid": os.getpid(), "started": me.started if me else 0}
        write_record(self.folder.run, mark, durable=True)
        self.run = {
            **run,
            "marker": own,
            "env": {**base, **run["env"]},
            "cwd": str(cwd),
            "command": {"how": command.how, "argv": command.argv},
            "cold": {"how": command.cold.how, "argv": command.cold.argv},
            "user": user,
        }
        if self.run["checkpoints"] is None:
            self.files = NodeFiles(own, int(run["generation"]), self.uid, line.send, self.begin)
            self.run["checkpoints"] = str(self.files.folder)
            self.run["env"]["ARGOSY_CHECKPOINTS_COMMON"] = "no"
        self.places = Places({self.node: place})
        self.resources = RunResources(self.folder, self.run, self.uid, self.reactor, self.hear, self.refuse)
        self.resources.control.on_drop = self.hung_up
        self.resources.write_record()
        self.warm_limit_s = float((run.get("settings") or {}).get("warm_limit_s", WARM_LIMIT_S))
        self.opened_at = time.monotonic()
        self.open_spawner(warm(ZygotePool(self.zygotes), command.interpreter, run["spec"], user, cuda=place.cuda))
        self.reactor.every(self.times.beat, self.tick)
        if self.files is not None:
            self.files.bring(run["restore"])

    def begin(self) -> None:
        """Start the workers that wait, once there is a spawner and all that they need is here."""
        if self.processes.spawner.pid and (self.files is None or self.files.is_ready):
            waiting, self.waiting = self.waiting or [], None
            for one in waiting:
                self.start(one)

    def refuse(self, connection: Connection, message: Message) -> None:
        connection.server.drop(connection)  # the daemon's requests go to the head's supervisor

    def open_spawner(self, zygote: Path | None) -> None:
        spawner = WorkerSpawner.from_zygote(zygote, self.uid) if zygote else None
        spawner = spawner or WorkerSpawner.forked(self.run["user"], self.uid)
        spawner.on_message = self.from_spawner
        self.processes = WorkerProcesses(self.reactor, spawner, self.resources.cgroup, self.printed)
        self.reactor.watch(spawner.connection, spawner.readable)

    def from_spawner(self, message: Message) -> None:
        op = message["op"]
        if op == "spawner":
            self.resources.admit(self.processes.spawner.pid)
            self.processes.cgroup = self.resources.cgroup
            about = {"warm": self.processes.spawner.warm, "address": self.address, "port": free_port(self.address)}
            self.line.send({"op": "opened", **about})
            self.begin()
        elif op == "started":
            if self.processes.started(message["id"], message["pid"]):
                self.note_workers()
                self.line.send({"op": "started", "id": message["id"]})
            else:
                self.give_up(f"its interpreter reports process {message['pid']}, but did not start it")
        elif op == "ended":
            self.ended(message["id"], message["code"])
        elif op == "refused":
            self.give_up(f"{self.run['cold']['argv'][0]} {message['why']}")
        elif op == "gone":
            self.spawner_gone()

    def spawner_gone(self) -> None:
        spawner = self.processes.spawner
        self.reactor.unwatch(spawner.connection)
        spawner.close()
        if spawner.pid == 0 and spawner.warm:
            self.open_spawner(None)
        else:
            self.end("the process that starts its workers was killed")

    def give_up(self, why: str) -> None:
        self.line.send({"op": "refused", "why": why})
        self.end(why)

    # -- workers

    def start(self, message: Message) -> None:
        if self.waiting is not None:
            self.waiting.append(message)
            return
        number, slots = int(message["id"]), tuple(map(str, message["slots"]))
        for slot in slots:
            node, _, device = slot.rpartition(":")
            if node != self.node or (device != "cpu" and not 0 <= int(device) < self.place.gpus):
                raise ValueError(f"this node has no slot {slot!r}")
        control, is_warm = self.resources.control.path, self.processes.spawner.warm
        request = worker_request(self.run, self.places, number, slots, control, warm=is_warm)
        own = {"ARGOSY_ADDRESS": self.address, "GLOO_SOCKET_IFNAME": interface_of(self.address)}
        request["env"] |= {**own, **{str(name): str(value) for name, value in message["rank"].items()}}
        self.processes.start(number, slots, request)

    def ended(self, number: int, code: int) -> None:
        self.resources.control.catch_up()
        if self.processes.ended(number) is not None:
            self.line.send({"op": "ended", "id": number, "code": code})
            self.note_workers()

    def note_workers(self) -> None:
        """Record the workers, for the agent that has to kill them if this process dies."""
        try:
            write_record(self.folder.status, {"workers": self.processes.records()}, durable=False)
        except OSError:
            return  # the disk is full; the mark in their environment is enough to find them

    def printed(self, member: WorkerProcess, lines: list[bytes]) -> None:
        for begin in range(0, len(lines), 1000):
            data = base64.b64encode(b"".join(lines[begin : begin + 1000])).decode()
            self.line.send({"op": "output", "id": member.number, "data": data})
        if not self.holding and not self.ending and self.line.backlog > HIGH:
            self.holding = True
            self.reactor.later(0, lambda: self.processes.hold_output(self.holding))

    # -- what workers say

    def hear(self, connection: Connection, message: Message) -> None:
        if connection not in self.numbers:
            self.next += 1
            self.numbers[connection], self.connections[self.next] = self.next, connection
        if message.get("op") == "hello" and message.get("worker") in self.processes.alive:
            connection.worker = int(message["worker"])
        elif message.get("op") == "store" and connection.worker is None:
            connection.worker = -1  # it is the connection of a worker to its group's store
        if self.line.backlog > MOST_SAID:
            connection.server.drop(connection)
            return
        self.line.send({"op": "said", "c": self.numbers[connection], "m": message})

    def hung_up(self, connection: Connection) -> None:
        number = self.numbers.pop(connection, None)
        if number is not None:
            del self.connections[number]
            self.line.send({"op": "hung_up", "c": number})

    # -- what the head says

    def obey(self, message: Message) -> None:
        if self.lease.expired:
            self.end("its lease has ended")
            return
        try:
            self._obey(message["op"], message)
        except (LookupError, TypeError, ValueError, AttributeError) as problem:
            self.give_up(f"the head sent a message that is not understood: {type(problem).__name__}: {problem}")

    def _obey(self, op: str, message: Message) -> None:
        if op == "echo":
            self.lease.renew(message["n"])
            self.on_lease(self.lease.deadline)
        elif op == "close":
            self.end("closed by the head")
        elif op == "start":
            self.start(message)
        elif op in ("get", "part"):
            if self.files is not None:
                self.files.part(message) if op == "get" else self.files.take(message)
        elif op in ("tell", "drop"):
            if connection := self.connections.get(message["c"]):
                connection.send(message["m"]) if op == "tell" else connection.server.drop(connection)
        elif op in ("kill", "term") and self.waiting and message["id"] in [one["id"] for one in self.waiting]:
            self.waiting = [one for one in self.waiting if one["id"] != message["id"]]
            self.line.send({"op": "ended", "id": message["id"], "code": -signal.SIGKILL})
        elif member := self.processes.alive.get(message["id"]):
            if op == "kill":
                self.processes.kill(member.number, "was killed")
            elif op == "term":
                self.processes.ask_to_end(member, group=not self.processes.spawner.warm)
            elif op == "warn":
                self.processes.warn(member, signal.Signals(message["signal"]))
            elif op == "freeze":
                self.processes.freeze_one(member, bool(message["frozen"]))
            elif op == "pin":
                self.processes.pin(member.number, self.places.cpus(member.slots[:1]))

    def tick(self) -> None:
        if self.ending:
            return
        if self.lease.expired:
            self.end("its lease has ended")
            return
        self.line.send({"op": "beat", "n": self.lease.beat()})
        if self.holding and self.line.backlog < LOW:
            self.holding = False
            self.processes.hold_output(False)
        spawner = self.processes.spawner
        if spawner.pid == 0 and spawner.warm and time.monotonic() - self.opened_at > self.warm_limit_s:
            self.spawner_gone()

    # -- the end

    def end(self, why: str) -> None:
        """Kill everything, say so, and end this process."""
        if self.ending:
            return
        self.ending = True
        self.processes.kill_all()
        self.processes.spawner.close()
        process_table.wait_gone(self.processes.everybody(), 1.0)
        self.processes.drain()
        assert self.lock is not None
        if self.runs.bury(self.folder):
            self.line.send({"op": "closed", "why": why})
        until = time.monotonic() + FAREWELL_S
        self.reactor.every(0.02, lambda: self.leave(until))

    def leave(self, until: float) -> None:
        if not self.line.backlog or not self.line.open or time.monotonic() > until:
            self.reactor.stop()


def free_port(address: str) -> int:
    import socket

    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def interface_of(address: str) -> str:
    """Return the name of the network interface with this address, for gloo in scripts without the SDK."""
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                packed = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(packed[20:24]) == address:
                return name
    return "lo"


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent, the agent, dies."""
    from argosy.live.supervisor.child import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, prctl

    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        os._exit(1)
