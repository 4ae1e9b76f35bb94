"""Kills the processes that are left of a run when its supervisor ends or has died."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from argosy.live.supervisor import process_table
from argosy.live.supervisor.cgroups import Cgroup


def clean_up(record: Mapping[str, Any], workers: Sequence[Mapping[str, Any]], marker: str, uid: int) -> bool:
    """Kill every process that is left of this user's run, including those that started a session of their own.

    Returns whether none is left.
    """
    cgroup = Cgroup(record["cgroup"]) if record.get("cgroup") else Cgroup.find(f"argosy-{marker}")
    left: set[process_table.Process] = set()
    for _ in range(100):
        leaders = [(worker["pid"], worker["started"]) for worker in workers if worker["pid"]]
        left = process_table.in_sessions(leaders, uid)
        left |= process_table.with_variable(f"ARGOSY_RUN={marker}", uid)
        if cgroup is not None:
            cgroup.kill()
            left |= process_table.numbered(cgroup.members())
        left = {one for one in left if one.pid != os.getpid()}
        if not left:
            break
        process_table.send(left, signal.SIGKILL, uid)
        process_table.wait_gone(left, 0.2)
    if cgroup is not None:
        cgroup.remove()
    return not left
