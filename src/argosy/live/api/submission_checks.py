"""Checks what the models of a submission do not check: its folder, environment, deadline and size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from argosy.errors import InputError
from argosy.live.spec import EPOCH, JobSpec

MAX_JOBS = 20_000  # in one request, counting every job of an array
MAX_SPEC = 64 * 1024  # bytes of one job file
MAX_SPECS = 64 * 2**20  # bytes of all job files in one request; each job of an array keeps a copy


def check_environment(spec: JobSpec) -> None:
    """Refuse environment variables whose names no process can have."""
    for name in spec.env:
        if not name or "=" in name or not is_text(name):
            what = f"env: {name[:60]!r} is not a valid name of an environment variable"
            raise InputError(what, hint="use letters, digits and underscores")


def check_deadline(spec: JobSpec) -> None:
    """Refuse deadlines before 1971, which may have no Unix time."""
    if spec.deadline is not None and spec.deadline.year <= EPOCH:
        what = f"deadline: {spec.deadline.isoformat()} is in the past"
        raise InputError(what, hint="write a date in the future, such as 2026-12-01T08:00")


def is_text(text: str) -> bool:
    """Return whether UTF-8 can encode the text: JSON allows halves of surrogate pairs, UTF-8 does not."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def admitted(spec: JobSpec, workdir: Path | None) -> JobSpec:
    """Check the job and make its folder absolute, so that it never depends on the daemon's working directory."""
    check_environment(spec)
    check_deadline(spec)
    if spec.workdir is None or spec.workdir.is_absolute():
        return spec
    if workdir is None:
        hint = "write one that begins with /, or send the folder it is relative to as `workdir` of the request"
        raise InputError(f"workdir: {str(spec.workdir)[:100]!r} is not an absolute path", hint=hint)
    return spec.model_copy(update={"workdir": workdir / spec.workdir})


def check_sizes(specs: Sequence[JobSpec]) -> None:
    if sum(spec.array or 1 for spec in specs) > MAX_JOBS:
        raise InputError(f"one request may have at most {MAX_JOBS} jobs", hint="submit them in several requests")
    total = 0
    for spec in specs:
        try:
            size = len(spec.model_dump_json())
        except ValueError:  # half of a surrogate pair
            what = "a text in the job file cannot be encoded in UTF-8"
            raise InputError(what, hint="remove the invalid characters") from None
        if size > MAX_SPEC:
            what = f"the job file of {spec.name} is larger than {MAX_SPEC // 1024} KiB"
            raise InputError(what, hint="move long texts into separate files")
        total += size * (spec.array or 1)
    if total > MAX_SPECS:
        what = f"the job files of one request, times their arrays, are larger than {MAX_SPECS // 2**20} MiB"
        raise InputError(what, hint="submit them in several requests")
