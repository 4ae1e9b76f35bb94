"""Jobs and nodes as people see them: a job's row, what it holds now, and why it waits, in one flat value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from argosy.live import sanitize
from argosy.live.backends.base import Part
from argosy.live.states import State
from argosy.live.store import Job, RunRow


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as `argosy status` shows it. Times are Unix seconds; durations are in seconds."""

    id: int
    name: str
    owner: str
    queue: str
    state: State
    priority: float
    array_id: int | None
    array_index: int | None
    after: tuple[int, ...]
    submitted_at: float
    started_at: float | None  # its first start
    ended_at: float | None
    generation: int  # runs so far
    gpus: float  # held now
    gpus_low: float
    gpus_high: float
    places: tuple[str, ...]  # held now, such as n1:0,1
    paused: bool
    progress: float | None
    report: Mapping[str, Any]
    message: str  # why it failed, or what went wrong last
    why: str  # why it waits, in one line
    exit_code: int | None
    failures: int
    preemptions: int
    resizes: int
    moves: int
    hot: bool
    wait_s: float
    run_s: float
    gpu_s: float
    workdir: str
    spec_json: str
    eta: Mapping[str, Any] | None = None  # when it is expected to start and to end

    @property
    def spec(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.spec_json)
        return loaded


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the API and `argosy nodes` show it, with the GPUs held on it."""

    name: str
    gpu_type: str
    gpus: int
    cpus: float
    memory_gib: float
    rack: str
    state: Annotated[str, Field(description="up, draining or down")]
    message: str
    drained_by: str | None
    emptied: Annotated[bool, Field(description="what runs there has to leave")]
    used_gpus: float
    jobs: Annotated[tuple[int, ...], Field(description="those you may see")]
    agent: Annotated[Mapping[str, Any], Field(description="of another host: its address, engine, lease, runs")]


def place(part: Part) -> str:
    devices = ",".join(map(str, part.devices))
    share = f"×{part.milli / 1000:g}" if part.milli != 1000 else ""
    return f"{part.node}:{devices}{share}" if devices else part.node


def held(parts: tuple[Part, ...]) -> float:
    return sum(len(part.devices) * part.milli for part in parts) / 1000


def progress(report: Mapping[str, Any]) -> float | None:
    """Return the share of its work that a job reports as done."""
    value = report.get("progress")
    if type(value) is float and 0.0 <= value <= 1.0:  # the usual case
        return value
    value = sanitize.number(value)
    return None if value is None else min(max(value, 0.0), 1.0)


def job_view(
    job: Job, run: RunRow | None, report: Mapping[str, Any], why: str, now: float, eta: Mapping[str, Any] | None = None
) -> JobView:
    parts = run.parts if run else ()
    current = now - run.settled_s if run and not run.paused else 0.0
    run_s = job.run_s + (run.run_s + current if run else 0.0)
    end = now if job.ended_s is None else job.ended_s
    return JobView(
        job.id,
        job.name,
        job.owner,
        job.queue,
        job.state,
        job.priority,
        job.array_id,
        job.array_index,
        job.after,
        job.submitted_at,
        job.started_at,
        job.ended_at,
        job.generation,
        held(parts),
        job.gpus_low,
        job.gpus_high,
        tuple(place(part) for part in parts),
        bool(run and run.paused),
        progress(report),
        report,
        job.message,
        why,
        job.exit_code,
        job.failures,
        job.preemptions,
        job.resizes,
        job.moves,
        job.hot,
        max(0.0, end - job.submitted_s - run_s),
        run_s,
        job.gpu_s + (run.gpu_s + current * held(parts) if run else 0.0),
        job.workdir,
        job.spec_json,
        eta,
    )
