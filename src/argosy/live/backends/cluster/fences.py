"""Makes certain that nothing of a run is alive whose supervisor has died, before its devices are given to others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from argosy.live.supervisor.cluster.agent_address import AgentAddress
from argosy.live.supervisor.cluster.lease import LeaseTimes, now


class Fences:
    """Waits for the agents' word, or else for the end of their leases; these began before a death was noticed."""

    def __init__(self, agents: Path, times: LeaseTimes) -> None:
        self._agents, self._times = agents, times
        self._noticed: dict[str, float] = {}  # by the mark of a run: when its supervisor was found dead
        self._dead: dict[str, set[str]] = {}  # nodes that have given their word

    def __call__(self, record: Mapping[str, Any], run: Mapping[str, Any]) -> bool:
        """Return whether all workers of the run are dead. This may wait for seconds, and is called again."""
        marker = str(run.get("marker", "none"))
        since = self._noticed.setdefault(marker, now())
        dead = self._dead.setdefault(marker, set())
        for node, machines in (record.get("nodes") or {}).items():
            if now() >= since + self._times.fence:
                break
            if node not in dead and self._has_word(node, machines, marker):
                dead.add(node)
        if now() < since + self._times.fence and not dead >= set(record.get("nodes") or {}):
            return False
        self._noticed.pop(marker, None)
        self._dead.pop(marker, None)
        return True

    def _has_word(self, node: str, machines: list[str], marker: str) -> bool:
        try:
            address = AgentAddress.read(self._agents, node)
            if address is None or machines != [address.host_id]:
                return False
            address.dial("fence", marker=marker, times=self._times.plain())[0].close()
        except (OSError, ValueError, TypeError):
            return False
        return True
