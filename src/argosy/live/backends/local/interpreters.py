"""Reads a job's command with its user's rights, and warms up the interpreter that will run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from argosy.live.backends.local.command import Command, read_at_start, understand
from argosy.live.backends.local.users import environment_of, look_as
from argosy.live.backends.local.zygote_pool import ZygotePool


def read_command(spec: Mapping[str, Any], user: str | None) -> tuple[dict[str, str], Path, Command]:
    """Return the environment and the folder of a job, and how to start its command."""
    base = environment_of(user)
    cwd = Path(spec.get("workdir") or base.get("HOME") or "/")
    found = look_as(user, lambda: asdict(understand(spec["run"], {**base, **(spec.get("env") or {})}, cwd)))
    return base, cwd, Command(found["how"], tuple(found["argv"]), found["interpreter"], tuple(found["words"]))


def warm(
    pool: ZygotePool, interpreter: str | None, spec: Mapping[str, Any], user: str | None, *, cuda: bool
) -> Path | None:
    """Return the socket of a zygote that is warm or warming up; None if the job must start cold."""
    if interpreter is None:
        return None
    base = environment_of(user)
    own: Mapping[str, str] = spec.get("env") or {}
    distinct = read_at_start({**base, **own})
    if not cuda and "OMP_NUM_THREADS" not in own:
        distinct["OMP_NUM_THREADS"] = "1"
    return pool.ensure(interpreter, distinct, base, user)
