"""Pauses a run whose slots are time-sliced: its workers free their devices, are stopped, and continue next turn."""

from __future__ import annotations

import time

from argosy.live.backends.base import Phase
from argosy.live.supervisor.coordinator import Coordinator
from argosy.live.supervisor.places import Places
from argosy.live.supervisor.processes import WorkerProcesses
from argosy.live.supervisor.status import StatusKeeper

REST_S = 2.0  # how long workers may take to free their devices; without GPUs there is little to do
REST_ON_GPUS_S = 60.0


class Turns:
    def __init__(
        self, processes: WorkerProcesses, coordinator: Coordinator, status: StatusKeeper, places: Places
    ) -> None:
        self.processes, self.coordinator, self.status = processes, coordinator, status
        self.patience_s = REST_ON_GPUS_S if any(place.cuda for place in places.nodes.values()) else REST_S
        self.paused = False  # whether its processes are stopped (not whether they should be)
        self._resting_since: float | None = None

    @property
    def resting(self) -> bool:
        """Return whether workers were asked to free their devices, and are not stopped yet."""
        return self._resting_since is not None

    def pause(self, number: int) -> None:
        """Pause the run: workers with the SDK free their devices first, others are stopped at once.

        `number` identifies the pause.
        """
        if not self.paused and not self.resting:
            self._resting_since = time.monotonic()
            self.coordinator.rest(number)
            self.look()

    def look(self) -> bool:
        """Stop the workers once all have freed their devices or their time is up; return whether this call did."""
        if self._resting_since is None:
            return False
        took, rested = time.monotonic() - self._resting_since, self.coordinator.rests
        if not rested and took < self.patience_s:
            return False
        if not rested:
            self.status.tell(f"paused in the middle of a step: a worker did not free its device within {took:.0f} s")
        elif self.coordinator.membership.version:
            self.status.measured("slice", took)
        self._freeze(True)
        return True

    def unpause(self) -> None:
        self.end()
        self.coordinator.wake()

    def end(self) -> None:
        """End the pause, if any. Until `wake` the workers stay in host memory, from where they can save."""
        if self.paused:
            self._freeze(False)
        self._resting_since = None

    def _freeze(self, frozen: bool) -> None:
        self.paused, self._resting_since = frozen, None
        self.coordinator.membership.forgive(time.monotonic())
        self.processes.freeze(frozen)
        if self.status.phase in (Phase.RUNNING, Phase.PAUSED):
            self.status.phase = Phase.PAUSED if frozen else Phase.RUNNING
