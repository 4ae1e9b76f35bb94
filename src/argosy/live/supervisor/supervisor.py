"""What a supervisor does in the life of its run: begin, listen, obey, stop, and write down how it ended."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from pathlib import Path
from typing import Any

from argosy.live.backends.base import Assignment, Phase
from argosy.live.supervisor import process_table
from argosy.live.supervisor.cgroups import Cgroup
from argosy.live.supervisor.cleanup import clean_up
from argosy.live.supervisor.coordinator import Conductor
from argosy.live.supervisor.exit_status import End, came_to_its_end, how_it_ended, stopped, verdict
from argosy.live.supervisor.membership import Rules
from argosy.live.supervisor.message_server import Line, LineServer, Message
from argosy.live.supervisor.places import Place, Places, rank_variables, read_assignment, slots, worker_request
from argosy.live.supervisor.processes import Team
from argosy.live.supervisor.reactor import Reactor
from argosy.live.supervisor.records import RunFolder, write_record
from argosy.live.supervisor.rendezvous import Rendezvous
from argosy.live.supervisor.status import StatusKeeper
from argosy.live.supervisor.turns import Turns
from argosy.live.supervisor.worker_output import Journal
from argosy.live.supervisor.worker_spawner import WARM_LIMIT_S, Nursery
from argosy.live.unix_sockets import free_port, socket_folder

TICK_S = 0.25
UNTOLD_S = 10.0  # so long after its processes are gone a run is over, whether or not anybody reports it


class Supervisor:
    def __init__(self, folder: RunFolder, run: dict[str, Any]) -> None:
        self.folder, self.run = folder, run
        self.uid: int = run.get("uid", os.getuid())  # whose processes its workers are
        self.reactor = Reactor()
        self.status = StatusKeeper(folder, run)
        self.target: Assignment = read_assignment(run["assignment"])
        self.in_force = slots(self.target)
        self.places = Places({name: Place(**place) for name, place in run["nodes"].items()})
        self.journal = Journal(folder, run, self.status)
        self.stopping_since: float | None = None
        self.failure: tuple[int, str] | None = None  # it can not go on: code and reason
        self.ends: list[End] = []  # of its workers
        self.master_port = free_port()
        self.last_tick = self.last_opened = time.monotonic()
        self.warm_limit_s = float(run.get("settings", {}).get("warm_limit_s", WARM_LIMIT_S))
        self.started_after: float | None = None  # s; of a job without the SDK
        self.last_write, self.kill_at, self.finished = 0.0, 0.0, False
        self.nobody_since = math.inf  # all were killed, and since then no process of the run is left

    # -- start

    def begin(self) -> None:
        user, uids = self.run.get("user"), {os.getuid(), self.uid}
        self.sockets = socket_folder(self.folder.path, user)
        self.control = LineServer(self.reactor, self.sockets / "control", uids, self.hear)
        if user:
            os.chown(self.control.path, self.uid, -1, follow_symlinks=False)
        self.commands = LineServer(self.reactor, self.folder.path / "commands", {0, os.getuid()}, self.obey)
        self.cgroup = Cgroup.make(f"argosy-{self.run['marker']}", self.run.get("limits", {}))
        self.rendezvous = Rendezvous(self.uid)
        me = process_table.process(os.getpid())
        self.record = {
            "pid": os.getpid(), "started": me.started if me else 0, "sockets": str(self.sockets),
            "rendezvous": str(self.rendezvous.folder),
            "cgroup": {k: str(v) for k, v in self.cgroup.folders.items()} if self.cgroup else {},
        }
        try:
            write_record(self.folder.supervisor, self.record, durable=True)
        except OSError:  # a full disk: this run does not begin, and nobody else knows of its group
            if self.cgroup is not None:
                self.cgroup.remove()
            raise
        self.open_nursery(self.run.get("zygote"))
        self.reactor.every(TICK_S, self.tick)
        self.status.write()

    def open_nursery(self, zygote: str | None) -> None:
        nursery = Nursery.from_zygote(Path(zygote), self.uid) if zygote else None
        if nursery is None:
            if self.run.get("zygote"):
                self.status.tell("there is no warm interpreter; the job starts cold")
            nursery = Nursery.forked(self.run.get("user"), self.uid)
        nursery.on_message = self.from_nursery
        self.team = Team(self.reactor, nursery, self.cgroup, self.journal.output)
        rules = Rules(**self.run.get("settings", {}).get("rules", {}))
        rules.stuck_s = self.run["spec"].get("hang_after") or rules.stuck_s
        self.conductor = Conductor(
            self.run, self.places, self.team, self.rendezvous, self.status, rules, self.start_worker, self.fail
        )
        self.turns = Turns(self.team, self.conductor, self.status, self.places)
        self.reactor.watch(nursery.connection, nursery.readable)

    def from_nursery(self, message: dict[str, Any]) -> None:
        op = message["op"]
        if op == "nursery":
            if self.cgroup is not None and not self.cgroup.add(self.team.nursery.pid, self.uid):
                self.cgroup.remove()
                self.cgroup = self.team.cgroup = None
            with contextlib.suppress(OSError):  # on a full disk it is not known whom to kill, but it runs
                write_record(self.folder.supervisor, {**self.record, "nursery": message["pid"]}, durable=False)
            self.start_workers()
        elif op == "started":
            self.started(message["id"], message["pid"])
        elif op == "refused":
            self.refuse(message["why"])
        elif op == "ended":
            self.ended(message["id"], message["code"])
        elif op == "gone":
            self.nursery_gone()

    def refuse(self, why: str) -> None:
        """What starts its workers cannot be trusted: end what belongs to the run, and nothing else."""
        self.reactor.unwatch(self.team.nursery.connection)
        for number in list(self.team.members):
            self.team.ended(number)
        interpreter = self.run["cold"]["argv"][0]
        self.finish(1, f"{interpreter} {why}; it is no Python interpreter that can start workers, use another one")

    def nursery_gone(self) -> None:
        """A zygote that did not get warm: start cold instead. Later: its workers died with it."""
        self.reactor.unwatch(self.team.nursery.connection)
        self.team.nursery.close()
        if self.team.nursery.pid == 0 and self.team.nursery.warm and self.stopping_since is None:
            self.open_nursery(None)
            return
        for number in list(self.team.members):
            self.team.ended(number)
        self.finish(None, "the process that starts its workers was killed")

    def start_workers(self) -> None:
        wanted, crew = slots(self.target), self.conductor.crew
        self.turns.paused = self.target.paused
        self.in_force, self.status.version = wanted, self.target.version
        if self.status.hot:
            self.conductor.want(wanted)
        elif self.run["spec"].get("processes") == "per-gpu":
            for slot in wanted:
                self.start_worker(crew.add(slot, time.monotonic()), (slot,), world=len(wanted))
        else:
            self.start_worker(crew.add(wanted[0], time.monotonic()), wanted)

    def start_worker(self, number: int, of: tuple[str, ...], world: int = 1) -> None:
        self.journal.several = self.journal.several or number > 0
        request = worker_request(self.run, self.places, number, of, self.control.path, warm=self.team.nursery.warm)
        request["env"] |= rank_variables(number if world > 1 else 0, world, self.master_port)
        self.team.start(number, of, request)

    def started(self, number: int, pid: int) -> None:
        if not self.team.started(number, pid):
            self.refuse(f"calls process {pid} a worker that it has started, which it has not")
            return
        if number not in self.team.members:
            return
        if self.turns.paused:
            self.team.freeze(True)
        if not self.status.hot and self.status.phase is Phase.STARTING:
            self.status.phase = Phase.PAUSED if self.turns.paused else Phase.RUNNING
            self.started_after = time.time() - self.run["asked_at"]
        if self.stopping_since is not None:
            self.team.ask_to_end(self.team.members[number], group=not self.team.nursery.warm)
        self.write_status()

    # -- while it runs

    def hear(self, line: Line, message: Message) -> None:
        was_hot = self.status.hot
        self.conductor.hear(line, message)
        self.turns.look()
        if self.status.hot and not was_hot:
            self.conductor.want(slots(self.target))
        if self.stopping_since is not None and message.get("op") == "hello":
            self.ask_to_save(line)
        self.settle()

    def tick(self) -> None:
        now, passed_from = time.monotonic(), self.last_tick
        if now - self.last_tick > 8 * TICK_S:  # this process was held up, so nobody could be heard
            self.conductor.crew.forgive(now)
        self.last_tick = now
        if self.turns.paused:
            self.conductor.crew.forgive(now)
            self.journal.progress_at += now - passed_from
        elif self.stopping_since is None and self.status.hot:
            self.conductor.decide()
            self.turns.look()
        elif self.stopping_since is None:
            self.look_for_a_hang(now)
        if self.team.nursery.pid == 0 and self.team.nursery.warm and now - self.last_opened > self.warm_limit_s:
            self.nursery_gone()
        if (self.failure is not None or self.stopping_since is not None) and now > self.kill_at:
            self.end_by_force(now)
            if self.finished:
                return
        self.settle()
        if self.status.changed or time.time() - self.last_write > 1.0:
            self.write_status()

    def look_for_a_hang(self, now: float) -> None:
        """Without the SDK there are no signs of life; where the job file sets a limit, its log has to get on."""
        limit = self.run["spec"].get("hang_after")
        reported_at = self.conductor.crew.progress_at or 0.0  # by a framework that cannot resize, but says where it is
        got_on = max(self.journal.progress_at, reported_at)
        if limit is not None and now - got_on > limit and self.failure is None:
            what = "showed no new step in its log" if self.journal.progress else "printed nothing"
            self.fail(1, f"it {what} for {limit:g} s (see hang_after:)")

    def end_by_force(self, now: float) -> None:
        """Kill all, and do not wait for ever to be told that nobody is left."""
        if self.team.everybody() or self.nobody_since == math.inf:
            self.nobody_since = now
        self.team.kill_all()
        if now - self.nobody_since > UNTOLD_S:
            self.finish(*(self.failure or (-signal.SIGKILL, "killed: it did not leave in time")))

    def write_status(self) -> None:
        self.last_write = time.time()
        self.status.workers = self.team.records()
        self.status.write()

    def settle(self) -> None:
        """Which version of the assignment is in force now?"""
        if self.target.version <= self.status.version or self.stopping_since is not None or self.turns.resting:
            return
        wanted, crew = sorted(slots(self.target)), self.conductor.crew
        moved = self.status.hot and sorted(crew.wanted) == wanted and crew.settled
        if wanted == sorted(self.in_force) or (moved and set(self.team.members) == set(crew.members)):
            self.in_force, self.status.version = slots(self.target), self.target.version
            self.write_status()

    # -- the daemon's wishes

    def obey(self, line: Line, message: Message) -> None:
        if message.get("generation") != self.run["generation"]:
            line.send({"ok": False, "error": f"this is generation {self.run['generation']}"})
            return
        if message["op"] == "launch":
            self.change(read_assignment(message["assignment"]))
        elif message["op"] == "stop":
            self.stop(float(message["grace_s"]))
        line.send({"ok": True})

    def change(self, assignment: Assignment) -> None:
        if assignment.version <= self.target.version or self.stopping_since is not None:
            return
        self.target = assignment
        if assignment.paused:
            self.turns.pause(assignment.version)
        else:
            self.turns.unpause()
        if self.status.hot and self.team.nursery.pid:
            self.conductor.want(slots(assignment))
        self.settle()
        self.write_status()

    def stop(self, grace_s: float) -> None:
        """Ask everybody to save and leave; a second call can only shorten the time."""
        now = time.monotonic()
        first = self.stopping_since is None
        self.kill_at = now + grace_s if first else min(self.kill_at, now + grace_s)
        if first:
            self.stopping_since = now
            self.status.phase = Phase.STOPPING
            self.conductor.crew.ending = True
            self.turns.end()
            for member in self.team.members.values():
                if member.line is not None:
                    self.ask_to_save(member.line)
                else:
                    self.team.ask_to_end(member, group=not self.team.nursery.warm)
        if grace_s <= 0:
            self.team.kill_all()
        self.write_status()
        if not self.team.members:
            self.finish(-signal.SIGTERM, "stopped before it began")

    def ask_to_save(self, line: Line) -> None:
        line.send({"op": "suspend", "deadline_s": max(0.0, self.kill_at - time.monotonic())})

    # -- the end

    def ended(self, number: int, code: int) -> None:
        self.control.catch_up()
        member = self.team.ended(number)
        if member is None:
            return
        self.status.changed = True
        text = member.killed or how_it_ended(number, code, self.journal.log.tail)
        self.ends.append(End(code, text, member.done, member.left))
        if self.stopping_since is None and self.failure is None:
            if self.status.hot:
                self.conductor.ended(number, code, gone=member.left or member.done)
            elif code:
                self.fail(code, "")
        if not self.team.members:
            self.conclude()
        else:
            self.settle()

    def fail(self, code: int, why: str) -> None:
        """It can not go on; without a reason given it is how the last worker ended."""
        if self.failure is None:
            self.failure = (code, why or self.ends[-1].text)
            self.status.tell(f"the run fails: {self.failure[1]}")
            self.conductor.crew.ending = True
            self.kill_at = time.monotonic()
        self.team.kill_all()

    def conclude(self) -> None:
        """All workers have ended: which end was it?"""
        if self.started_after is not None and not self.status.hot:
            kind, warm = "resume" if self.run["restore"] else "start", self.team.nursery.warm
            self.status.measured(kind, self.started_after, workers=1, warm=warm)
        if self.stopping_since is not None and not came_to_its_end(self.ends):
            self.status.measured("suspend", time.monotonic() - self.stopping_since)
            self.finish(*stopped(self.ends, at_once=self.kill_at <= self.stopping_since))
        else:
            self.finish(*(self.failure or verdict(self.ends, hot=self.status.hot)))

    def finish(self, code: int | None, message: str) -> None:
        """The end; a code of None: nobody can say how."""
        if self.finished:
            return
        self.finished = True
        if code == 0:
            self.status.take_report({"done": True})
        self.team.drain()
        self.team.kill_all()
        self.team.nursery.close()
        clean_up(self.record, self.team.leaders, self.run["marker"], self.uid)
        self.rendezvous.remove()
        self.journal.log.close()
        self.status.message, self.status.workers = message, []
        while not self.status.write_exit(code):
            time.sleep(1.0)  # a full disk: the end must not be lost
        self.control.close()
        self.commands.close()
        if self.sockets != self.folder.path:
            self.sockets.rmdir()
        self.reactor.stop()
