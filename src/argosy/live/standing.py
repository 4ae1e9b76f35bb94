"""What the daemon knows beside the database, at this moment: nodes, the planner's word, its own health.

Written by the daemon's loop, read by the service; gone when the daemon ends, and found out again when it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from argosy.live.backends.base import NodeStatus


@dataclass
class Standing:
    policy: str = ""
    backend: str = ""
    nodes: dict[str, NodeStatus] = field(default_factory=dict)
    waiting: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by job: the planner's reasons
    starts: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by job: blocked by whom, until a place is free
    planner_problem: str = ""  # what the policy failed with, until it works again
    backend_problem: str = ""
    disk_problem: str = ""
    fault: str = ""  # an error of our own in the last pass
    faults: int = 0
    passes: int = 0
    last_pass_s: float | None = None  # on the daemon's clock
    decided_s: float | None = None
