"""The daemon's health and other current facts that are not in the database: nodes, the planner's reasons, problems.

The daemon's loop writes them and the service reads them; they are lost when the daemon ends, and determined again
when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from argosy.live.backends.base import NodeStatus
from argosy.live.store import Job

PASS_LIMIT_S = 10.0  # passes are made several times a second; if there is none for this long, something is wrong


@dataclass
class DaemonHealth:
    """The current state of nodes, planner, backend and disk, and why jobs wait."""

    policy: str = ""
    backend: str = ""
    nodes: dict[str, NodeStatus] = field(default_factory=dict)
    waiting: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by job: the planner's reasons
    starts: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by job: which runs block its start
    limited: Callable[[Job], Mapping[str, Any] | None] = lambda job: None  # why its owner's limits keep a job back
    planner_problem: str = ""  # how the policy failed, until it works again
    backend_problem: str = ""
    disk_problem: str = ""
    fault: str = ""  # a bug in the daemon that ended the last pass
    faults: int = 0
    passes: int = 0
    began_s: float | None = None  # when the daemon started, on its clock; None: there is no daemon
    last_pass_s: float | None = None
    decided_s: float | None = None
    pass_limit_s: float = PASS_LIMIT_S

    def problems(self, now_s: float) -> list[str]:
        """Return what is wrong now, on the daemon's clock; an empty list means that jobs are being scheduled."""
        told = [self.planner_problem, self.backend_problem, self.disk_problem, self.fault]
        since_s = self.began_s if self.last_pass_s is None else self.last_pass_s
        if since_s is not None and now_s - since_s > self.pass_limit_s:
            told.append(f"no pass for {now_s - since_s:.0f} s: nothing is planned, started or stopped")
        elif self.began_s is not None and self.last_pass_s is None:
            told.append("no pass has been made yet")
        return [text for text in told if text]
