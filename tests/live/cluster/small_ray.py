"""A small Ray cluster on this machine, for tests: a head without resources, and nodes r1, r2, …"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

QUICK = {"health_check_period_ms": 1000, "health_check_timeout_ms": 1000, "health_check_failure_threshold": 3}
ENV = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def why_no_ray() -> str:
    return "" if find_spec("ray") is not None else "Ray is not installed: pip install 'argosy[ray]'"


class SmallRay:
    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        self.names = [f"r{i + 1}" for i in range(count)]
        head = {"num_cpus": 0, "num_gpus": 0, "node_name": "head", "include_dashboard": False, "_system_config": QUICK}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes: dict[str, Any] = {name: self.add(name) for name in self.names}

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, name: str) -> Any:
        return self.cluster.add_node(
            node_name=name, num_cpus=4, num_gpus=0, object_store_memory=80 << 20, include_dashboard=False
        )

    def lose(self, name: str) -> None:
        """Kill the raylet of a node."""
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def bring_back(self, name: str) -> None:
        self.nodes[name] = self.add(name)


@contextlib.contextmanager
def small_ray(count: int = 3) -> Iterator[SmallRay]:
    before = {name: os.environ.get(name) for name in ENV}
    os.environ.update(ENV)
    try:
        made = SmallRay(count)
        try:
            yield made
        finally:
            made.cluster.shutdown()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
