"""The protocol of backends: a backend has nodes, and runs generations of jobs exactly where it is told to.

A *run* is one generation of one job. `launch` starts it, and may be repeated: the same call again changes nothing, and
a higher version of the assignment resizes, moves, pauses or continues the run. `stop` ends it. `poll` reports all runs
every time, so that a lost message costs nothing. `adopt` is `poll` for a daemon that has just started and knows from
its database what should be running. docs/write-a-backend.md explains how to write one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from argosy.cluster.cluster import Node
from argosy.errors import ArgosyError


class RunKey(NamedTuple):
    """One generation of one job."""

    job: int
    generation: int


@dataclass(frozen=True, slots=True)
class Part:
    """What a run holds on one node."""

    node: str
    devices: tuple[int, ...]  # empty: CPUs alone
    milli: int = 1000  # thousandths of each device
    servers: int = 0  # parameter servers, for jobs that have them


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where a run is to be now. A higher version replaces a lower one."""

    version: int
    parts: tuple[Part, ...]
    paused: bool = False  # keeps its place, but lets another job have its turn

    @property
    def gpus(self) -> int:
        return sum(len(part.devices) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Run:
    """What a backend must know to run a generation of a job."""

    key: RunKey
    assignment: Assignment
    spec: Mapping[str, Any]  # the job file as submitted: `argosy.live.spec.JobSpec.model_dump(mode="json")`
    home: Path  # the job's own folder; the backend keeps what belongs to this generation in home/gen-<generation>
    restore: tuple[str, ...] = ()  # committed checkpoints, best first: folders below home/checkpoints
    user: str | None = None  # Unix user to run as; None: the daemon's own
    env: Mapping[str, str] = field(default_factory=dict)  # in addition to the job file's: ARGOSY_API, ARGOSY_TOKEN, …
    hot: bool = False  # the job is known to use the SDK: its workers may all start at once


class Phase(StrEnum):
    """The phase of a run, as its backend reports it."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class Status:
    """What a backend knows about a run."""

    key: RunKey
    phase: Phase
    version: int  # of the assignment that is in force
    exit_code: int | None = None  # once exited; negative: killed by that signal
    message: str = ""  # why it ended or what is wrong, for people
    hot: bool = False  # its workers use the SDK, so it is resized without a restart
    report: Mapping[str, Any] = field(default_factory=dict)  # the job's last report: step, epoch, progress, loss, …
    checkpoints: tuple[Mapping[str, Any], ...] = ()  # the newest two that are whole: path, step, seconds, bytes
    overheads: tuple[Mapping[str, Any], ...] = ()  # measured: kind (start, suspend, resume, resize, migrate), seconds
    story: tuple[Mapping[str, Any], ...] = ()  # what happened to it, oldest first: t, text
    restarts: int = 0  # workers that were replaced during the run


@dataclass(frozen=True, slots=True)
class NodeStatus:
    node: Node
    up: bool
    message: str = ""


class LaunchError(ArgosyError):
    """A run cannot start, and trying again would not help: no such command, no rights, an unknown node."""


class Backend(Protocol):
    """Runs jobs on nodes. No call waits for a job, and all may be repeated."""

    name: str
    runs_as_owners: bool  # whether it can run each job as its owner's Unix user, if the daemon is root's

    async def nodes(self) -> Sequence[NodeStatus]:
        """Return the nodes and whether they are up; their order never changes."""

    async def prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        """Prepare for a job like this, which waits and may be launched soon; None: the daemon has started.

        Nothing depends on it: what was not prepared is done when it is needed.
        """

    async def launch(self, run: Run) -> None:
        """Start this generation, or bring it to this version of its assignment."""

    async def stop(self, key: RunKey, grace_s: float) -> None:
        """Ask the run to save its work and leave; kill what is left after the grace. 0: kill at once."""

    async def poll(self) -> Sequence[Status]:
        """Return the status of every run, including those that have ended, until they are forgotten."""

    async def adopt(self, runs: Sequence[Run]) -> Sequence[Status]:
        """Find these runs again after a daemon has started, kill all others, and return their statuses."""

    async def forget(self, key: RunKey) -> None:
        """Forget a run whose end is safely in the database."""

    async def close(self) -> None:
        """Release resources when the daemon ends; runs go on."""
