"""The job file: what a user writes to submit a job."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]  # parsing is enough to check a pattern, and faster than compiling it
from typing import Annotated, Literal

from pydantic import BeforeValidator, FailFast, Field, field_validator, model_validator

from argosy.config import Duration, FileModel, load_yaml
from argosy.live.dependencies import After, read_after
from argosy.live.notify_spec import Notify
from argosy.perf import quality

MAX_GPUS = 4096
MAX_ARRAY = 10_000
MAX_BATCH = 10**6
EPOCH = 1970
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Gpus(FileModel):
    """How many GPUs a job wants: `2`, a range `1..8`, a range that asks for 4 `1..4..8`, a share `0.5`, or `0`."""

    low: float = Field(ge=0, le=MAX_GPUS)
    high: float = Field(ge=0, le=MAX_GPUS)
    asks: float | None = Field(None, ge=0, le=MAX_GPUS)

    @property
    def asked(self) -> float:
        """Return the number of GPUs that the job gets from a policy that does not resize jobs."""
        return self.low if self.asks is None else self.asks

    @model_validator(mode="after")
    def _makes_sense(self) -> Gpus:
        sizes = [n for n in (self.low, self.asks, self.high) if n is not None]
        told = "..".join(f"{n:g}" for n in (sizes if self.elastic else sizes[:1]))
        if not self.low <= self.asked <= self.high:
            raise ValueError(f"{told} is not a range; write the smaller number first, such as 1..8")
        if self.elastic and self.low < 1:
            raise ValueError(f"{told} is not a range; an elastic job keeps at least one GPU: write 1..{self.high:g}")
        if self.high > 1 and any(n != int(n) for n in sizes):
            raise ValueError(f"{told} is not a whole number of GPUs; only a share below 1 is allowed, such as 0.5")
        return self

    @property
    def elastic(self) -> bool:
        return self.low != self.high


def _gpus(value: object) -> object:
    if isinstance(value, dict | Gpus):
        return value
    try:
        numbers = [float(number) for number in str(value).split("..")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3 or not all(0 <= number <= MAX_GPUS for number in numbers):
        shown = repr(value) if len(repr(value)) < 60 else f"{repr(value)[:60]}…"
        raise ValueError(f"{shown} is not a number of GPUs, 0 to {MAX_GPUS}; write 2, or 1..8, or 1..4..8, or 0.5")
    return {"low": numbers[0], "high": numbers[-1], "asks": numbers[1] if len(numbers) == 3 else None}


GpusText = Annotated[Gpus, BeforeValidator(_gpus)]


class Resources(FileModel):
    gpus: GpusText = Field(
        Gpus(low=1, high=1, asks=None),
        validate_default=True,
        description="2, or a range such as 1..8 (1..4..8: asks for 4), or a share such as 0.5",
    )
    gpu_types: Annotated[tuple[str, ...], FailFast()] = Field(
        (), description="GPU types that the job accepts, such as [a100, v100]; all if not given"
    )
    cpus_per_gpu: float | None = Field(
        None, ge=0, description="CPU cores for each GPU (for a job without GPUs: in total)"
    )
    memory_per_gpu_gib: float | None = Field(
        None, ge=0, description="memory for each GPU (for a job without GPUs: in total)"
    )


class Checkpoint(FileModel):
    dir: str | None = Field(None, description="folder of the checkpoints of a job without the SDK; the SDK needs none")
    every: Duration = Field(600.0, gt=0, description="how often the SDK saves, such as 10m")


class Progress(FileModel):
    """How to read progress from the log of a job that does not use the SDK."""

    pattern: str = Field(description=r"a regular expression with one group for the step, such as 'step (\d+)'")
    total: float | None = Field(None, gt=0, description="the step at which the job is done")

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str) -> str:
        if len(pattern) > 500:
            raise ValueError("the pattern is longer than 500 characters; write a shorter one")
        try:  # not compiled: that can take a second, and all requests would wait for it
            groups = _parser.parse(pattern).state.groups - 1
        except (re.error, OverflowError, RecursionError) as problem:
            raise ValueError(f"not a regular expression: {problem}; quote it with single quotes") from None
        if groups != 1:
            raise ValueError(f"the pattern has {groups} groups; put the number alone in brackets, 'step (\\d+)'")
        return pattern


class StopWarning(FileModel):
    """A signal that a command gets before it is asked to stop."""

    signal: Literal["USR1", "USR2", "INT", "HUP", "CONT"] = Field("USR1", description="the signal, such as USR1")
    before: Duration = Field(60.0, gt=0, description="how long before it is asked to stop, such as 2m")


class Batch(FileModel):
    """The batch sizes among which the policy may choose: `128..4096`, or with `per_gpu` as a table."""

    sizes: str = Field(description="smallest and largest global batch, such as 128..4096")
    per_gpu: int | None = Field(
        None, ge=1, le=MAX_BATCH, description="samples that fit a GPU at once; all if not given"
    )

    @field_validator("sizes")
    @classmethod
    def _a_range(cls, given: str) -> str:
        found = re.fullmatch(r"\s*([0-9]{1,9})\s*\.\.\s*([0-9]{1,9})\s*", given)
        if not found or not 1 <= int(found[1]) <= int(found[2]) <= MAX_BATCH:
            raise ValueError(
                f"{given[:60]!r} is not a range of batch sizes; write the smaller first, such as 128..4096"
            )
        return f"{int(found[1])}..{int(found[2])}"

    @property
    def smallest(self) -> int:
        return int(self.sizes.partition("..")[0])

    @property
    def largest(self) -> int:
        return int(self.sizes.partition("..")[2])


def _batch(value: object) -> object:
    return {"sizes": value} if isinstance(value, str) else value


class Growth(FileModel):
    allowed: bool = Field(False, description="whether the network may grow when GPUs are spare")
    time_budget: Duration | None = Field(None, gt=0, description="time from the start until the job should be done")
    spare_gpus: int = Field(
        0, ge=0, le=MAX_GPUS, description="GPUs beyond its largest size that it takes while they are spare"
    )
    quality: str | None = Field(
        None, description="what networks like it gain by them: a quality curve, such as residual-cifar10"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Growth:
        if self.quality is not None and self.quality not in quality.names():
            raise ValueError(f"there is no quality curve {self.quality[:60]!r}; there are {', '.join(quality.names())}")
        if self.spare_gpus and not self.allowed:
            raise ValueError("spare_gpus are for growth; write allowed: true")
        return self


class JobSpec(FileModel):
    """The content of a job file. Unknown keys are errors."""

    name: str = Field("job", description="letters, digits, dots, dashes")
    run: str | tuple[str, ...] = Field(description="the command: one line for the shell, or a list of words")
    workdir: Path | None = Field(None, description="folder in which it runs; the folder you submit from if not given")
    env: dict[str, str] = Field(default_factory=dict, description="variables for the command")
    resources: Resources = Field(default_factory=lambda: Resources.model_validate({}), description="what it needs")
    processes: Literal["one", "per-gpu"] = Field(
        "one", description="without the SDK: one process with all GPUs, or one for each GPU with torchrun's variables"
    )
    model: str | None = Field(None, description="name of the network, under which its speed is looked up")
    batch: Annotated[Batch | None, BeforeValidator(_batch)] = Field(
        None, description="global batch sizes that the policy may choose, such as 128..4096; see docs/goodput.md"
    )
    queue: str = Field("default", description="the queue that the job belongs to")
    priority: float = Field(50.0, ge=0, le=100, description="0..100, higher first")
    after: Annotated[After, BeforeValidator(read_after)] = Field(
        After(succeeded=(), any=(), failed=()),
        description="numbers of jobs that must succeed before this one starts, or {any: [3, 4], failed: 5}",
    )
    hold: bool = Field(False, description="held back until it is released: argosy release")
    array: int | None = Field(
        None, ge=1, le=MAX_ARRAY, description="number of copies; each finds its index in ARGOSY_ARRAY_INDEX"
    )
    notify: Notify | None = Field(None, description="word about the job, such as {mail: me@example.org, on: [end]}")
    retries: int = Field(
        0, ge=0, le=1000, description="how often a run that failed by itself is tried again; lost nodes do not count"
    )
    retry_wait: Duration = Field(1.0, ge=0, description="wait before the first retry; doubled for each further one")
    grace: Duration = Field(30.0, ge=0, description="time that the job gets to save its work when it must stop")
    warning: StopWarning | None = Field(None, description="a signal before that, such as {signal: USR1, before: 2m}")
    checkpoint: Checkpoint = Field(
        default_factory=lambda: Checkpoint.model_validate({}), description="how its work is saved"
    )
    saves: Literal["none", "step", "interval"] | None = Field(
        None,
        description="what survives when it is stopped: step (it saves when asked), interval (what it saved last), none;"
        " if not given: step with the SDK or checkpoint.dir, otherwise none",
    )
    progress: Progress | None = Field(None, description="how to read its progress from its log")
    expected_duration: Duration | None = Field(None, gt=0, description="your estimate, such as 6h")
    deadline: datetime | None = Field(None, description="when the job should be done, such as 2026-12-01T08:00")
    time_budget: Duration | None = Field(
        None, gt=0, description="end the job as succeeded when this time has passed since its first start"
    )
    max_duration: Duration | None = Field(None, gt=0, description="end the job as failed after this much run time")
    min_runtime: Duration = Field(0.0, ge=0, description="time after a start in which the job is not preempted")
    hang_after: Duration | None = Field(
        None,
        gt=0,
        description="a run without a step for this long counts as hung and is restarted; default with the SDK: 2h",
    )
    exclusive: bool = Field(False, description="never packed with another job on one GPU")
    grow: Growth = Field(
        default_factory=lambda: Growth.model_validate({}), description="whether and how the network may grow"
    )

    @property
    def deadline_at(self) -> float | None:
        """Return the deadline in seconds since 1970; 0 for a date before that."""
        if self.deadline is None:
            return None
        return self.deadline.timestamp() if self.deadline.year > EPOCH else 0.0

    @field_validator("run", "env", mode="before")
    @classmethod
    def _texts(cls, given: object) -> object:
        """Check that all values are texts. It stops at the first that is not: a request may have a hundred thousand."""
        found = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
        for wrong in (one for one in found if not isinstance(one, str)):
            raise ValueError(f"{repr(wrong)[:60]} is not a text; put it in quotes")
        return given

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name[:60]!r} is not a valid name; use letters, digits, dots and dashes, 100 at most")
        return name

    @model_validator(mode="after")
    def _has_a_command(self) -> JobSpec:
        if not self.run or (isinstance(self.run, str) and not self.run.strip()):
            raise ValueError("run: there is no command; write run: python train.py")
        if "\0" in str(self.run) or any("\0" in text for pair in self.env.items() for text in pair):
            raise ValueError("run: a command cannot contain a zero byte; remove it")
        return self


def read_job_file(path: Path) -> JobSpec:
    return load_yaml(path, JobSpec)
