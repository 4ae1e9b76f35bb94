"""What the daemon knows beside the database, at this moment: nodes, the planner's word, its own health.

Written by the daemon's loop, read by the service; gone when the daemon ends, and found out again when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from argosy.live.backends.base import NodeStatus
from argosy.live.store import Job

PASS_LIMIT_S = 10.0  # passes are made several times a second; without one for so long something holds them up


@dataclass
class DaemonHealth:
    policy: str = ""
    backend: str = ""
    nodes: dict[str, NodeStatus] = field(default_factory=dict)
    waiting: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by job: the planner's reasons
    starts: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by job: blocked by whom, until a place is free
    limited: Callable[[Job], Mapping[str, Any] | None] = lambda job: None  # why its owner's limits keep a job back
    planner_problem: str = ""  # what the policy failed with, until it works again
    backend_problem: str = ""
    disk_problem: str = ""
    fault: str = ""  # an error of our own in the last pass
    faults: int = 0
    passes: int = 0
    began_s: float | None = None  # when the daemon started, on its clock; None: there is no daemon behind it
    last_pass_s: float | None = None
    decided_s: float | None = None

    def problems(self, now_s: float) -> list[str]:
        """Tell what is wrong at this moment, on the daemon's clock; nothing: jobs are being scheduled."""
        told = [self.planner_problem, self.backend_problem, self.disk_problem, self.fault]
        since_s = self.began_s if self.last_pass_s is None else self.last_pass_s
        if since_s is not None and now_s - since_s > PASS_LIMIT_S:
            told.append(f"no pass for {now_s - since_s:.0f} s: nothing is planned, started or stopped")
        elif self.began_s is not None and self.last_pass_s is None:
            told.append("no pass has been made yet")
        return [text for text in told if text]
