"""Slurm as an engine: one exclusive job for each node holds an agent.

Our nodes have names of their own (`gpu-1`, `gpu-2`, … in the partition `gpu`), and Slurm chooses the machine for each.
A job is never requeued by Slurm: when its machine is lost, a new job is submitted at once. The token of an agent is in
the job's script, which Slurm shows to nobody but the job's owner and Slurm's administrators.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from argosy.cluster.cluster import Node
from argosy.live.backends.cluster.engines.base import AgentOrder, AgentState, EngineError

TIMEOUT_S = 30.0
STARTING = ("PENDING", "CONFIGURING", "REQUEUED")
ALIVE = ("RUNNING", "SUSPENDED", "STOPPED")
_LEFT = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")  # days-hours:minutes:seconds
_GPUS = re.compile(r"gpu(?::([a-z][\w.-]*))?:(\d+)", re.IGNORECASE)


class Slurm:
    """Starts agents as jobs of one partition, whose names begin with `mark`. `options` are passed to sbatch."""

    name = "slurm"

    def __init__(
        self,
        mark: str,
        count: int,
        *,
        partition: str | None = None,
        slots: int | None = None,
        time_limit: str | None = None,
        options: Sequence[str] = (),
        logs: Path | None = None,
    ) -> None:
        if shutil.which("sbatch") is None:
            hint = "run the daemon where Slurm's commands are, such as a login node; Debian has them in slurm-client"
            raise EngineError("Slurm's command sbatch is not installed here", hint=hint)
        self._mark, self._count, self._slots, self._logs = mark, count, slots, logs
        self._partition = partition or self._default_partition()
        self._options = [*options, *([f"--time={time_limit}"] if time_limit else [])]

    def nodes(self) -> Sequence[Node]:
        rows = [line.split("|") for line in self._call("sinfo", "-h", "-N", "-o", "%R|%c|%m|%G|%N").splitlines()]
        found = [row for row in rows if row[0] == self._partition]
        if not found:
            known = ", ".join(sorted({row[0] for row in rows})) or "none at all"
            raise EngineError(
                f"Slurm has no partition {self._partition!r} with nodes",
                where="--partition",
                hint=f"it has: {known}",
            )
        if len(found) < self._count:
            what = f"the partition {self._partition!r} has {len(found)} nodes, not {self._count}"
            raise EngineError(what, where="--nodes", hint=f"give --nodes {len(found)}, or another --partition")
        gpus = [_gpus(row[3]) for row in found]
        kind, most = max(gpus, key=lambda one: one[1])
        count = self._slots or (most if most else 2)
        if most and sum(number >= count for _, number in gpus) < self._count:
            what = f"fewer than {self._count} nodes of the partition {self._partition!r} have {count} GPUs"
            raise EngineError(what, where="--slots", hint="give a smaller --slots, or another --partition")
        cpus, memory_mib = (min(float(row[i].rstrip("+")) for row in found) for i in (1, 2))
        self._gpus = count if most else 0
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", self._partition)
        return [
            Node(
                f"{name}-{i + 1}",
                kind if most else "cpu",
                count,
                cpus,
                round(memory_mib / 1024, 1),
                rack=self._partition,
            )
            for i in range(self._count)
        ]

    def ensure_agents(self, orders: Sequence[AgentOrder]) -> None:
        states = self.agent_states()
        for order in orders:
            if states.get(order.node, AgentState("absent")).phase == "absent":
                self._submit(order)

    def agent_states(self) -> Mapping[str, AgentState]:
        found: dict[str, AgentState] = {}
        for number, node, state, why, left in self._jobs():
            if node in found and found[node].phase == "running":
                self._call("scancel", number)  # a second one: its submission had seemed to fail
            elif state in ALIVE:
                found[node] = AgentState("running", "", _ends_at(left))
            elif state in STARTING:
                found[node] = AgentState("waiting", f"Slurm's job {number} waits: {why}")
        return found

    def release(self, nodes: Sequence[str]) -> None:
        numbers = [job[0] for job in self._jobs() if job[1] in set(nodes)]
        if numbers:
            self._call("scancel", *numbers)

    def close(self) -> None:
        return

    def _submit(self, order: AgentOrder) -> None:
        log = str(self._logs / f"{order.node}.log") if self._logs else "/dev/null"
        words = [f"--job-name={self._mark}-{order.node}", f"--partition={self._partition}", f"--output={log}"]
        words += ["--parsable", "--nodes=1", "--ntasks=1", "--exclusive", "--no-requeue", "--open-mode=append"]
        words += [
            "--chdir=/",
            "--export=PATH,HOME,LANG",
            *([f"--gres=gpu:{self._gpus}"] if self._gpus else []),
            *self._options,
        ]
        script = f"#!/bin/sh\nexec {shlex.join(order.argv)} <<'END-OF-SECRET'\n{order.stdin}\nEND-OF-SECRET\n"
        self._call("sbatch", *words, stdin=script)

    def _jobs(self) -> list[tuple[str, ...]]:
        """Return our jobs, the oldest first: number, node, state, why it waits, and the time that is left."""
        text = self._call("squeue", "-h", "--me", "-S", "i", "-o", "%i|%T|%r|%L|%j")
        rows = [line.split("|", 4) for line in text.splitlines() if line.count("|") >= 4]
        begin = f"{self._mark}-"
        return [
            (number, name[len(begin) :], state, why, left)
            for number, state, why, left, name in rows
            if name.startswith(begin)
        ]

    def _default_partition(self) -> str:
        names = [line for line in self._call("sinfo", "-h", "-o", "%P").splitlines() if line.endswith("*")]
        if not names:
            raise EngineError("Slurm has no default partition", where="--partition", hint="name one; see sinfo")
        return names[0].rstrip("*")

    def _call(self, *words: str, stdin: str = "") -> str:
        try:
            found = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise EngineError(f"{words[0]} has not answered for {TIMEOUT_S:g} s", hint="see scontrol ping") from None
        if found.returncode:
            said = " ".join(found.stderr.split())[:500] or f"it exited with code {found.returncode}"
            raise EngineError(f"{words[0]} failed: {said}", hint="see scontrol ping, and sinfo")
        return found.stdout


def _gpus(text: str) -> tuple[str, int]:
    """Return type and number of the GPUs in what sinfo says of a node: `gpu:a100:4(S:0-1)`, `gpu:2`, `(null)`."""
    found = _GPUS.findall(text)
    return (found[0][0] or "gpu", sum(int(number) for _, number in found)) if found else ("gpu", 0)


def _ends_at(left: str) -> float | None:
    """Return when a job ends that has this much time left: `1-02:03:04`, `2:03:04`, `3:04`, `UNLIMITED`."""
    found = _LEFT.fullmatch(left)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return time.time() + ((days * 24 + hours) * 60 + minutes) * 60 + seconds
