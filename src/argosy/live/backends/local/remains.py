"""Killing what is left of a run when its supervisor ends or has died."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from argosy.live.backends.local import processes
from argosy.live.backends.local.cgroups import Cgroup


def clean_up(record: Mapping[str, Any], workers: Sequence[Mapping[str, Any]], marker: str) -> None:
    """Kill everything that is left of a run, however far it has run away."""
    cgroup = Cgroup(record["cgroup"]) if record.get("cgroup") else None
    for _ in range(100):
        left = processes.in_sessions([(worker["pid"], worker["started"]) for worker in workers if worker["pid"]])
        left |= processes.with_variable(f"ARGOSY_RUN={marker}")
        if cgroup is not None:
            cgroup.kill()
            left |= cgroup.members()
        left -= {os.getpid()}
        if not left:
            break
        processes.send(left, signal.SIGKILL)
        processes.wait_gone(left, 0.2)
    if cgroup is not None:
        cgroup.remove()
