"""Killing what is left of a run when its supervisor ends or has died."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from argosy.live.backends.local import processes
from argosy.live.backends.local.cgroups import Cgroup


def clean_up(record: Mapping[str, Any], workers: Sequence[Mapping[str, Any]], marker: str, uid: int) -> None:
    """Kill everything that is left of a run of this user's, however far it has run away."""
    cgroup = Cgroup(record["cgroup"]) if record.get("cgroup") else Cgroup.find(f"argosy-{marker}")
    for _ in range(100):
        left = processes.in_sessions([(worker["pid"], worker["started"]) for worker in workers if worker["pid"]], uid)
        left |= processes.with_variable(f"ARGOSY_RUN={marker}", uid)
        if cgroup is not None:
            cgroup.kill()
            left |= processes.numbered(cgroup.members())
        left = {one for one in left if one.pid != os.getpid()}
        if not left:
            break
        processes.send(left, signal.SIGKILL, uid)
        processes.wait_gone(left, 0.2)
    if cgroup is not None:
        cgroup.remove()
