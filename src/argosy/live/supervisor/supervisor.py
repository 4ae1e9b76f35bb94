"""The supervisor of a run: it starts the run, handles messages of workers and daemon, and records the end."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

from argosy.live.backends.base import Assignment, Phase
from argosy.live.supervisor.cleanup import clean_up
from argosy.live.supervisor.coordinator import Coordinator
from argosy.live.supervisor.exit_status import WorkerEnd, completed, describe_end, exit_status, stopped
from argosy.live.supervisor.membership_actions import Rules
from argosy.live.supervisor.message_server import Connection, Message
from argosy.live.supervisor.places import Place, Places, rank_variables, read_assignment, slots, worker_request
from argosy.live.supervisor.processes import WorkerProcesses
from argosy.live.supervisor.reactor import Reactor
from argosy.live.supervisor.records import RunFolder
from argosy.live.supervisor.run_resources import RunResources
from argosy.live.supervisor.status import StatusKeeper
from argosy.live.supervisor.turns import Turns
from argosy.live.supervisor.worker_output import WorkerOutput
from argosy.live.supervisor.worker_spawner import WARM_LIMIT_S, WorkerSpawner
from argosy.live.unix_sockets import free_port

TICK_S = 0.25
UNREPORTED_END_S = 10.0  # a killed run without processes ends after this time, even if its spawner never reports it


class Supervisor:
    """Supervises one run, from its first worker to the record of its end."""

    def __init__(self, folder: RunFolder, run: dict[str, Any]) -> None:
        self.folder, self.run = folder, run
        self.uid: int = run.get("uid", os.getuid())  # the user that its workers run as
        self.reactor = Reactor()
        self.status = StatusKeeper(folder, run)
        self.target: Assignment = read_assignment(run["assignment"])
        self.in_force = slots(self.target)
        self.places = Places({name: Place(**place) for name, place in run["nodes"].items()})
        self.output = WorkerOutput(folder, run, self.status)
        self.stopping_since: float | None = None
        self.ask_at, self.asked = 0.0, False  # once it stops: when its workers are asked to end, after their warning
        self.failure: tuple[int | None, str] | None = None  # exit code and reason, once the run has failed
        self.ends: list[WorkerEnd] = []
        self.master_port = free_port()
        self.last_tick = self.last_opened = time.monotonic()
        self.warm_limit_s = float(run.get("settings", {}).get("warm_limit_s", WARM_LIMIT_S))
        self.started_after: float | None = None  # seconds that the start took, for a job without the SDK
        self.last_write, self.kill_at, self.finished = 0.0, 0.0, False
        self.empty_since = math.inf  # when the last process of a killed run was seen; infinite before the kill

    # -- start

    def begin(self) -> None:
        """Allocate the run's resources, record them, and start its workers."""
        self.resources = RunResources(self.folder, self.run, self.uid, self.reactor, self.hear, self.obey)
        self.resources.write_record()
        self.open_spawner(self.run.get("zygote"))
        self.reactor.every(TICK_S, self.tick)
        self.status.write()

    def open_spawner(self, zygote: str | None) -> None:
        """Connect to a spawner that the zygote forks or, without a zygote, to a cold one."""
        spawner = WorkerSpawner.from_zygote(Path(zygote), self.uid) if zygote else None
        if spawner is None:
            if self.run.get("zygote"):
                self.status.tell("no warm interpreter was available, so the job starts cold")
            spawner = WorkerSpawner.forked(self.run.get("user"), self.uid)
        spawner.on_message = self.from_spawner
        self.processes = WorkerProcesses(self.reactor, spawner, self.resources.cgroup, self.output.take)
        self.direct_workers()
        self.reactor.watch(spawner.connection, spawner.readable)

    def direct_workers(self) -> None:
        """Make what directs the workers: the coordinator of their group, and their turns."""
        rules = Rules(**self.run.get("settings", {}).get("rules", {}))
        rules.stuck_s = self.run["spec"].get("hang_after") or rules.stuck_s
        rendezvous = self.resources.rendezvous
        self.coordinator = Coordinator(
            self.run, self.places, self.processes, rendezvous, self.status, rules, self.start_worker, self.fail
        )
        self.turns = Turns(self.processes, self.coordinator, self.status, self.places)

    def from_spawner(self, message: dict[str, Any]) -> None:
        op = message["op"]
        if op == "spawner":
            self.resources.admit(self.processes.spawner.pid)
            self.processes.cgroup = self.resources.cgroup
            self.start_workers()
        elif op == "started":
            self.started(message["id"], message["pid"])
        elif op == "refused":
            self.refuse(message["why"])
        elif op == "ended":
            self.ended(message["id"], message["code"])
        elif op == "gone":
            self.spawner_gone()

    def refuse(self, why: str) -> None:
        """End the run as failed, because its spawner cannot be trusted."""
        self.reactor.unwatch(self.processes.spawner.connection)
        for number in list(self.processes.alive):
            self.processes.ended(number)
        interpreter = self.run["cold"]["argv"][0]
        self.finish(1, f"{interpreter} {why}; use another Python interpreter for this job")

    def spawner_gone(self) -> None:
        """Start cold if the zygote did not provide a spawner; if the spawner was lost later, end the run."""
        self.reactor.unwatch(self.processes.spawner.connection)
        self.processes.spawner.close()
        if self.processes.spawner.pid == 0 and self.processes.spawner.warm and self.stopping_since is None:
            self.open_spawner(None)
            return
        for number in list(self.processes.alive):
            self.processes.ended(number)
        self.finish(None, "the process that starts the workers of this run was killed")

    def start_workers(self) -> None:
        wanted, membership = slots(self.target), self.coordinator.membership
        self.turns.paused = self.target.paused
        self.in_force, self.status.version = wanted, self.target.version
        if self.status.hot:
            self.coordinator.want(wanted, self.target.batch)
        elif self.run["spec"].get("processes") == "per-gpu":
            for slot in wanted:
                self.start_worker(membership.add(slot, time.monotonic()), (slot,), world=len(wanted))
        else:
            self.start_worker(membership.add(wanted[0], time.monotonic()), wanted)

    def start_worker(self, number: int, of: tuple[str, ...], world: int = 1) -> None:
        self.output.several = self.output.several or number > 0
        control, warm = self.resources.control.path, self.processes.spawner.warm
        request = worker_request(self.run, self.places, number, of, control, warm=warm)
        request["env"] |= rank_variables(number if world > 1 else 0, world, self.master_port)
        self.processes.start(number, of, request)

    def started(self, number: int, pid: int) -> None:
        if not self.processes.started(number, pid):
            self.refuse(f"reports process {pid} as a worker, but did not start it")
            return
        if number not in self.processes.alive:
            return
        if self.turns.paused:
            self.processes.freeze(True)
        if not self.status.hot and self.status.phase is Phase.STARTING:
            self.status.phase = Phase.PAUSED if self.turns.paused else Phase.RUNNING
            self.started_after = time.time() - self.run["asked_at"]
        if self.asked:
            self.processes.ask_to_end(self.processes.alive[number], group=not self.processes.spawner.warm)
        self.write_status()

    # -- while it runs

    def hear(self, connection: Connection, message: Message) -> None:
        was_hot = self.status.hot
        self.coordinator.hear(connection, message)
        self.turns.look()
        if self.status.hot and not was_hot:
            self.coordinator.want(slots(self.target), self.target.batch)
        if self.stopping_since is not None and message.get("op") == "hello":
            self.ask_to_save(connection)
        self.settle()

    def tick(self) -> None:
        now, passed_from = time.monotonic(), self.last_tick
        if now - self.last_tick > 8 * TICK_S:  # this process was held up, so no heartbeat could arrive
            self.coordinator.membership.forgive(now)
        self.last_tick = now
        if self.turns.paused:
            self.coordinator.membership.forgive(now)
            self.output.progress_at += now - passed_from
        elif self.stopping_since is None and self.status.hot:
            self.coordinator.decide()
            self.turns.look()
        elif self.stopping_since is None:
            self.look_for_a_hang(now)
        spawner = self.processes.spawner
        if spawner.pid == 0 and spawner.warm and now - self.last_opened > self.warm_limit_s:
            self.spawner_gone()
        if self.stopping_since is not None and not self.asked and self.ask_at <= now:
            self.ask_to_end()
        if (self.failure is not None or self.stopping_since is not None) and now > self.kill_at:
            self.end_by_force(now)
            if self.finished:
                return
        self.settle()
        if self.status.changed or time.time() - self.last_write > 1.0:
            self.write_status()

    def look_for_a_hang(self, now: float) -> None:
        """Fail a job without the SDK if it shows no progress for longer than the job file allows."""
        limit = self.run["spec"].get("hang_after")
        reported_at = self.coordinator.membership.progress_at or 0.0  # a job with an adapter reports steps here
        last_progress = max(self.output.progress_at, reported_at)
        if limit is not None and now - last_progress > limit and self.failure is None:
            what = "showed no new step in its log" if self.output.progress else "printed nothing"
            self.fail(1, f"it {what} for {limit:g} s; hang_after: in the job file sets this limit")

    def end_by_force(self, now: float) -> None:
        """Kill all processes, and finish the run after a while even if the spawner does not report that they ended."""
        if self.processes.everybody() or self.empty_since == math.inf:
            self.empty_since = now
        self.processes.kill_all()
        if now - self.empty_since > UNREPORTED_END_S:
            self.finish(*(self.failure or (-signal.SIGKILL, "killed: it did not stop in time")))

    def write_status(self) -> None:
        self.last_write = time.time()
        self.status.workers = self.processes.records()
        self.status.write()

    def settle(self) -> None:
        """Report the newest version of the assignment once it is in force."""
        if self.target.version <= self.status.version or self.stopping_since is not None or self.turns.resting:
            return
        wanted, membership = sorted(slots(self.target)), self.coordinator.membership
        moved = self.status.hot and sorted(membership.wanted) == wanted and membership.settled
        if wanted == sorted(self.in_force) or (moved and set(self.processes.alive) == set(membership.members)):
            self.in_force, self.status.version = slots(self.target), self.target.version
            self.write_status()

    # -- requests of the daemon

    def obey(self, connection: Connection, message: Message) -> None:
        if message.get("generation") != self.run["generation"]:
            connection.send({"ok": False, "error": f"this supervisor runs generation {self.run['generation']}"})
            return
        if message["op"] == "launch":
            self.change(read_assignment(message["assignment"]))
        elif message["op"] == "stop":
            self.stop(float(message["grace_s"]))
        connection.send({"ok": True})

    def change(self, assignment: Assignment) -> None:
        if assignment.version <= self.target.version or self.stopping_since is not None:
            return
        self.target = assignment
        if assignment.paused:
            self.turns.pause(assignment.version)
        else:
            self.turns.unpause()
        if self.status.hot and self.processes.spawner.pid:
            self.coordinator.want(slots(assignment), assignment.batch)
        self.settle()
        self.write_status()

    def stop(self, grace_s: float) -> None:
        """Ask all workers to save and exit within the grace period; another call can only shorten it.

        What exceeds the grace in the job file is for the warning, a signal before the request.
        """
        now = time.monotonic()
        first = self.stopping_since is None
        self.kill_at = now + grace_s if first else min(self.kill_at, now + grace_s)
        warning, own_grace_s = self.run["spec"].get("warning"), float(self.run["spec"].get("grace", grace_s))
        self.ask_at = max(now, self.kill_at - own_grace_s) if warning else now
        if first:
            self.stopping_since = now
            self.status.phase = Phase.STOPPING
            self.coordinator.membership.ending = True
            self.turns.end()
            for member in self.processes.alive.values():
                if member.open_connection is not None:
                    self.ask_to_save(member.open_connection)
                elif self.ask_at > now:
                    self.processes.warn(member, signal.Signals[f"SIG{warning['signal']}"])
            if self.ask_at > now:
                self.status.tell(
                    f"told by SIG{warning['signal']} that it is asked to stop in {self.ask_at - now:.0f} s"
                )
        if not self.asked and self.ask_at <= now:
            self.ask_to_end()
        if grace_s <= 0:
            self.processes.kill_all()
        self.write_status()
        if not self.processes.alive:
            self.finish(-signal.SIGTERM, "stopped before its first worker started")

    def ask_to_end(self) -> None:
        """Send SIGTERM to all workers that are not asked through their SDK."""
        self.asked = True
        for member in self.processes.alive.values():
            if member.open_connection is None:
                self.processes.ask_to_end(member, group=not self.processes.spawner.warm)

    def ask_to_save(self, connection: Connection) -> None:
        connection.send({"op": "suspend", "deadline_s": max(0.0, self.kill_at - time.monotonic())})

    # -- the end

    def ended(self, number: int, code: int) -> None:
        self.resources.control.catch_up()
        member = self.processes.ended(number)
        if member is None:
            return
        self.status.changed = True
        killed = f"worker {number} {member.killed} and was killed" if member.killed else ""
        text = killed or describe_end(number, code, self.output.log.tail)
        self.ends.append(WorkerEnd(code, text, member.done, member.left))
        if self.stopping_since is None and self.failure is None:
            if self.status.hot:
                self.coordinator.ended(number, code, gone=member.left or member.done)
            elif code:
                self.fail(code, "")
        if not self.processes.alive:
            self.conclude()
        else:
            self.settle()

    def fail(self, code: int | None, why: str) -> None:
        """End the run as failed, or as lost without a code; an empty `why` stands for how the last worker ended."""
        if self.failure is None:
            self.failure = (code, why or self.ends[-1].text)
            self.status.tell(f"the run has failed: {self.failure[1]}")
            self.coordinator.membership.ending = True
            self.kill_at = time.monotonic()
        self.processes.kill_all()

    def conclude(self) -> None:
        """Finish the run after all its workers have ended."""
        if self.started_after is not None and not self.status.hot:
            kind, warm = "resume" if self.run["restore"] else "start", self.processes.spawner.warm
            self.status.measured(kind, self.started_after, workers=1, warm=warm)
        if self.stopping_since is not None and not completed(self.ends):
            self.status.measured("suspend", time.monotonic() - self.stopping_since)
            self.finish(*stopped(self.ends, at_once=self.kill_at <= self.stopping_since))
        else:
            self.finish(*(self.failure or exit_status(self.ends, hot=self.status.hot)))

    def finish(self, code: int | None, message: str) -> None:
        """Clean up and record the end; a code of None means that it is unknown how the run ended."""
        if self.finished:
            return
        self.finished = True
        if code == 0:
            self.status.take_report({"done": True})
        self.processes.drain()
        self.processes.kill_all()
        self.processes.spawner.close()
        clean_up(self.resources.record, self.processes.leaders, self.run["marker"], self.uid)
        self.resources.rendezvous.remove()
        self.output.log.close()
        self.status.message, self.status.workers = message, []
        while not self.status.write_exit(code):
            time.sleep(1.0)  # the disk is full; try again, because the end must not be lost
        self.resources.close_sockets()
        self.reactor.stop()
