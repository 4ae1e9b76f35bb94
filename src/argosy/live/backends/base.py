"""The protocol of backends: a backend has nodes, and runs each generation of a job exactly where the daemon says.

A *run* is one generation of one job. `launch` starts it, and may be repeated: the same call changes nothing, and a
higher version of the assignment resizes, moves, pauses or continues the run. `stop` ends it. `poll` reports all runs
every time, so that a lost message does no harm. `adopt` is `poll` for a daemon that has just started and knows from
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
    devices: tuple[int, ...]  # empty: it holds only CPUs
    milli: int = 1000  # thousandths of each device
    servers: int = 0  # parameter servers, for jobs that have them


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a job should be now, as the planner decides it and the daemon compares it with the job's run."""

    parts: tuple[Part, ...]
    paused: bool = False  # it keeps its devices, but does not run: it is another job's turn
    batch: int | None = None  # samples of a step of all its workers together; None: its own affair


@dataclass(frozen=True, slots=True)
class Assignment:
    """The placement of one run, numbered: a backend carries out a higher version and ignores a lower one.

    A `Placement` has no version, because the daemon compares it with the run's row by value and counts the version up
    only if they differ. A backend needs the number, because an order may reach it twice or too late.
    """

    version: int
    parts: tuple[Part, ...]
    paused: bool = False  # it keeps its devices, but does not run: it is another job's turn
    batch: int | None = None  # samples of a step of all its workers together; None: its own affair

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
    restore: tuple[str, ...] = ()  # complete checkpoints, best first: folders below home/checkpoints
    user: str | None = None  # the Unix user to run as; None: the daemon's own
    env: Mapping[str, str] = field(default_factory=dict)  # besides those of the job file: ARGOSY_API, ARGOSY_TOKEN, …
    hot: bool = False  # the job is known to use the SDK, so all its workers may be started at once


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
    version: int  # the version of the assignment in force
    exit_code: int | None = None  # set when it has exited; negative: killed by that signal
    message: str = ""  # why it ended or what is wrong, in words
    hot: bool = False  # its workers use the SDK, so it can be resized without a restart
    report: Mapping[str, Any] = field(default_factory=dict)  # the job's last report: step, epoch, progress, loss, …
    checkpoints: tuple[Mapping[str, Any], ...] = ()  # the newest two that are complete: path, step, seconds, bytes
    overheads: tuple[Mapping[str, Any], ...] = ()  # measured costs: kind (start, suspend, resize, …) and seconds
    story: tuple[Mapping[str, Any], ...] = ()  # events of the run, oldest first: t, text
    restarts: int = 0  # workers that were replaced during the run


@dataclass(frozen=True, slots=True)
class NodeStatus:
    node: Node
    up: bool
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)  # of its agent, if it has one: host, engine, lease, runs


class LaunchError(ArgosyError):
    """A run cannot start, and a retry would not help: a missing command, missing permissions, an unknown node."""


class Backend(Protocol):
    """A backend runs jobs on nodes. No call waits for a job to end, and every call may be repeated."""

    name: str
    runs_as_owners: bool  # whether it can run each job as its owner's Unix user, if the daemon runs as root

    async def nodes(self) -> Sequence[NodeStatus]:
        """Return the nodes and whether they are up; their order never changes."""

    async def prepare(self, spec: Mapping[str, Any] | None, user: str | None) -> None:
        """Prepare for a waiting job that may be launched soon; without a job, for the start of the daemon.

        This is optional: `launch` does whatever was not prepared.
        """

    async def launch(self, run: Run) -> None:
        """Start this generation, or bring it to this version of its assignment."""

    async def stop(self, key: RunKey, grace_s: float) -> None:
        """Ask the run to save its work and exit, and kill it after `grace_s` seconds; 0 kills it at once."""

    async def poll(self) -> Sequence[Status]:
        """Return the status of every run, including those that have ended, until they are forgotten."""

    async def adopt(self, runs: Sequence[Run]) -> Sequence[Status]:
        """Find these runs again after the daemon has started, kill all others, and return the statuses."""

    async def forget(self, key: RunKey) -> None:
        """Forget a run whose end is safely in the database."""

    async def close(self) -> None:
        """Release resources when the daemon ends; runs go on."""
