"""The job file: what a user writes to submit a job."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]  # parsing is enough to check a pattern, and cheaper
from typing import Annotated, Literal

from pydantic import BeforeValidator, FailFast, Field, field_validator, model_validator

from argosy.config import Duration, FileModel, load_yaml

MAX_GPUS = 4096
MAX_ARRAY = 10_000
EPOCH = 1970
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Gpus(FileModel):
    """`2` or `1..8`, or `1..4..8` to ask for 4 of them, or `0.5` of one, or `0`."""

    low: float = Field(ge=0, le=MAX_GPUS)
    high: float = Field(ge=0, le=MAX_GPUS)
    asks: float | None = Field(None, ge=0, le=MAX_GPUS)

    @property
    def asked(self) -> float:
        """Return what it gets from a policy that does not resize jobs."""
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


class Resources(FileModel):
    gpus: Annotated[Gpus, BeforeValidator(_gpus)] = Field(
        Gpus(low=1, high=1, asks=None),
        validate_default=True,
        description="2, or a range such as 1..8 (1..4..8: asks for 4), or a share such as 0.5",
    )
    gpu_types: Annotated[tuple[str, ...], FailFast()] = Field(
        (), description="types it accepts, such as [a100, v100]; all if not given"
    )
    cpus_per_gpu: float | None = Field(None, ge=0, description="CPU cores for each GPU (for a job without: in all)")
    memory_per_gpu_gib: float | None = Field(None, ge=0, description="memory for each GPU (for a job without: in all)")


class Checkpoint(FileModel):
    dir: str | None = Field(None, description="where a job without the SDK keeps its own; the SDK needs none")
    every: Duration = Field(600.0, gt=0, description="how often the SDK saves, such as 10m")


class Progress(FileModel):
    """How to read progress from the log of a job that does not use the SDK."""

    pattern: str = Field(description=r"a regular expression with one group for the step, such as 'step (\d+)'")
    total: float | None = Field(None, gt=0, description="the step at which it is done")

    @field_validator("pattern")
    @classmethod
    def _one_group(cls, pattern: str) -> str:
        if len(pattern) > 500:
            raise ValueError("the pattern is longer than 500 characters; write a shorter one")
        try:  # parsed only: compiling can take a second, and all requests would wait for it
            groups = _parser.parse(pattern).state.groups - 1
        except (re.error, OverflowError, RecursionError) as problem:
            raise ValueError(f"not a regular expression: {problem}; quote it with single quotes") from None
        if groups != 1:
            raise ValueError(f"the pattern has {groups} groups; put the number alone in brackets, 'step (\\d+)'")
        return pattern


class Growth(FileModel):
    allowed: bool = Field(False, description="may the network grow when GPUs are spare?")
    time_budget: Duration | None = Field(None, gt=0, description="by when it wants to be done, counted from its start")


class JobSpec(FileModel):
    """job.yaml. Unknown keys are errors."""

    name: str = Field("job", description="letters, digits, dots, dashes")
    run: str | tuple[str, ...] = Field(description="the command: one line for the shell, or a list of words")
    workdir: Path | None = Field(None, description="where to run it; the folder you submit from if not given")
    env: dict[str, str] = Field(default_factory=dict, description="variables for the command")
    resources: Resources = Field(default_factory=lambda: Resources.model_validate({}), description="what it needs")
    processes: Literal["one", "per-gpu"] = Field(
        "one", description="without the SDK: one process with all GPUs, or one for each with torchrun's variables"
    )
    model: str | None = Field(None, description="the network's name, to find its speed in tables")
    queue: str = Field("default", description="which queue it counts for")
    priority: float = Field(50.0, ge=0, le=100, description="0..100, higher first")
    after: Annotated[tuple[int, ...], FailFast()] = Field(
        (), description="numbers of jobs that must have succeeded before"
    )
    array: int | None = Field(None, ge=1, le=MAX_ARRAY, description="so many copies; each finds ARGOSY_ARRAY_INDEX")
    retries: int = Field(3, ge=0, le=1000, description="how often a failed run is tried again")
    retry_wait: Duration = Field(1.0, ge=0, description="wait before the first retry; doubled for each further one")
    grace: Duration = Field(30.0, ge=0, description="time to save its work when it must stop")
    checkpoint: Checkpoint = Field(
        default_factory=lambda: Checkpoint.model_validate({}), description="how its work is saved"
    )
    progress: Progress | None = Field(None, description="how to read its progress from its log")
    expected_duration: Duration | None = Field(None, gt=0, description="your estimate, such as 6h")
    deadline: datetime | None = Field(None, description="such as 2026-12-01T08:00")
    time_budget: Duration | None = Field(None, gt=0, description="end it in order, as succeeded, after so long")
    max_duration: Duration | None = Field(None, gt=0, description="end it, as failed, after so much run time")
    min_runtime: Duration = Field(0.0, ge=0, description="not to be preempted earlier than this after a start")
    hang_after: Duration | None = Field(
        None, gt=0, description="without a step for so long it hangs and is started anew; 2h with the SDK if not given"
    )
    exclusive: bool = Field(False, description="never packed with another job on one GPU")
    grow: Growth = Field(default_factory=lambda: Growth.model_validate({}), description="may the network grow?")

    @property
    def deadline_at(self) -> float | None:
        """Return the deadline in seconds since 1970; 0 for a date before that."""
        if self.deadline is None:
            return None
        return self.deadline.timestamp() if self.deadline.year > EPOCH else 0.0

    @field_validator("run", "env", mode="before")
    @classmethod
    def _texts(cls, given: object) -> object:
        """Check that all values are texts, up to the first that is not: a request may have a hundred thousand."""
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
