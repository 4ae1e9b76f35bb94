"""The rows of the tables as immutable values: a change is a new value, written in a transaction."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from argosy.live.backends.base import Assignment, Part, RunKey
from argosy.live.spec import JobSpec
from argosy.live.states import State, Stop

HELD_S = math.inf  # `not_before_s` of a job that is held back until somebody releases it


@dataclass(frozen=True, slots=True)
class Job:
    """A job. Times that end in `_s` are on the daemon's clock, those in `_at` are Unix seconds for display."""

    id: int
    name: str
    owner: str
    queue: str
    priority: float
    spec_json: str
    workdir: str
    array_id: int | None  # number of the first job of its array
    array_index: int | None
    after: tuple[int, ...]
    gpus_low: float
    gpus_high: float
    submitted_s: float
    submitted_at: float
    state: State = State.PENDING
    generation: int = 0  # of the newest run; 0 before the first
    failures: int = 0  # runs that failed by themselves
    losses: int = 0  # runs that were lost with their node, without a fault of the job
    not_before_s: float = 0.0  # after a failure: it does not start before this time
    started_s: float | None = None  # its first start
    started_at: float | None = None
    ended_s: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    message: str = ""  # why it failed, or what went wrong last
    run_s: float = 0.0  # time in runs that have ended
    gpu_s: float = 0.0  # GPU-seconds held by runs that have ended
    preemptions: int = 0
    resizes: int = 0
    moves: int = 0
    hot: bool = False  # it uses the SDK
    report: Mapping[str, Any] = field(default_factory=dict)  # its last report: step, epoch, progress, metrics
    unlaunched: int = 0  # losses of runs that could not even be launched

    @property
    def spec(self) -> dict[str, Any]:
        """Return the job file as `JobSpec.model_dump(mode="json")`; it must not be changed."""
        return _plain(self.spec_json)

    @property
    def parsed(self) -> JobSpec:
        return _parsed(self.spec_json)

    @property
    def key(self) -> RunKey:
        return RunKey(self.id, self.generation)

    @property
    def held(self) -> bool:
        """Return whether somebody holds it back: it starts only after it is released."""
        return self.not_before_s == HELD_S


@dataclass(frozen=True, slots=True)
class RunRow:
    """One generation of a job."""

    job: int
    generation: int
    version: int
    parts: tuple[Part, ...]
    launched_s: float
    launched_at: float
    settled_s: float  # `run_s` and `gpu_s` are correct up to this time
    paused: bool = False
    former: tuple[Part, ...] | None = None  # what it may still hold until `version` is in force
    stop: Stop | None = None
    running_s: float | None = None
    ended_s: float | None = None
    ended_at: float | None = None
    run_s: float = 0.0
    gpu_s: float = 0.0
    exit_code: int | None = None
    message: str = ""
    restarts: int = 0
    batch: int | None = None  # samples of a step, if the policy chooses them
    key: RunKey = field(init=False, repr=False, compare=False)  # computed once: it is used several times in every pass

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", RunKey(self.job, self.generation))

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.version, self.parts, self.paused, self.batch)


@dataclass(frozen=True, slots=True)
class Event:
    """An event in the history of a job."""

    id: int
    job: int
    generation: int
    t_s: float
    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint; `path` is relative to the job's folder of checkpoints."""

    job: int
    generation: int
    path: str
    step: int
    seconds: float | None
    bytes: int | None
    t_s: float
    at: float


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its rights. `role` is user, operator or job; a job's token is for one generation of one job."""

    id: int
    owner: str
    role: str
    created_at: float
    job: int | None = None
    generation: int | None = None
    expires_at: float | None = None  # None: never
    used_at: float | None = None  # the beginning of the day of its last use


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, and from where."""

    who: str
    role: str
    address: str = ""  # empty: from inside the daemon
    token: int | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit log, as the API shows it; those about jobs name a range of numbers."""

    id: int
    at: float
    who: Annotated[str, Field(description="owner of the token; empty: unknown")]
    role: str
    address: str
    token: int | None
    action: str
    object: str
    first_job: int | None
    last_job: int | None
    result: Annotated[str, Field(description="done or refused")]
    detail: str


@lru_cache(50_000)  # the text is one object in all versions of a job, and in all jobs of an array
def _plain(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@lru_cache(50_000)
def _parsed(text: str) -> JobSpec:
    return JobSpec.model_validate_json(text)


def parts_to_json(parts: tuple[Part, ...]) -> str:
    return json.dumps([[p.node, list(p.devices), p.milli, p.servers] for p in parts], separators=(",", ":"))


def parts_from_json(text: str) -> tuple[Part, ...]:
    return tuple(Part(node, tuple(devices), milli, servers) for node, devices, milli, servers in json.loads(text))
