"""Checks a submission beyond its form: its folder, environment, deadline and size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from argosy.errors import InputError
from argosy.live.spec import EPOCH, JobSpec

MAX_JOBS = 20_000  # in one request, arrays counted in full
MAX_SPEC = 64 * 1024
MAX_SPECS = 64 * 2**20  # each job of an array keeps a copy


def check_environment(spec: JobSpec) -> None:
    """Refuse names of variables that no process can have."""
    for name in spec.env:
        if not name or "=" in name or not is_text(name):
            what = f"env: {name[:60]!r} is not a valid name of a variable"
            raise InputError(what, hint="use letters, digits and underscores")


def check_deadline(spec: JobSpec) -> None:
    """Refuse dates that clocks cannot represent."""
    if spec.deadline is not None and spec.deadline.year <= EPOCH:
        what = f"deadline: {spec.deadline.isoformat()} is long past"
        raise InputError(what, hint="write a date to come, such as 2026-12-01T08:00")


def is_text(text: str) -> bool:
    """Return whether a text can be encoded: JSON allows halves of surrogate pairs, UTF-8 does not."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def admitted(spec: JobSpec, workdir: Path | None) -> JobSpec:
    """Return the job with an absolute folder, so that it never depends on the daemon's own."""
    check_environment(spec)
    check_deadline(spec)
    if spec.workdir is None or spec.workdir.is_absolute():
        return spec
    if workdir is None:
        hint = "write it from the root, or tell with `workdir` where you submit from"
        raise InputError(f"workdir: {str(spec.workdir)[:100]!r} is not an absolute path", hint=hint)
    return spec.model_copy(update={"workdir": workdir / spec.workdir})


def check_sizes(specs: Sequence[JobSpec]) -> None:
    if sum(spec.array or 1 for spec in specs) > MAX_JOBS:
        raise InputError(f"more than {MAX_JOBS} jobs in one request", hint="submit them in several")
    total = 0
    for spec in specs:
        try:
            size = len(spec.model_dump_json())
        except ValueError:  # half of a surrogate pair
            raise InputError("a text in the job file cannot be encoded", hint="write it in UTF-8") from None
        if size > MAX_SPEC:
            what = f"the job file of {spec.name} has more than {MAX_SPEC // 1024} KiB"
            raise InputError(what, hint="put long texts into files of their own")
        total += size * (spec.array or 1)
    if total > MAX_SPECS:
        raise InputError("too much for one request: long job files times large arrays", hint="submit them in several")
