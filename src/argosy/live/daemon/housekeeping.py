"""Does the daemon's work of every few seconds: writes what can wait, removes old checkpoints, and watches the disk."""

from __future__ import annotations

import asyncio

from argosy.live.daemon import pruning
from argosy.live.daemon.service import Service
from argosy.live.store import database

FLUSH_EVERY_S = 5.0
MOST_PRUNED = 200  # jobs at a time


class Housekeeping:
    """Work that need not be done in every pass. `prunable` are jobs that may have checkpoints to remove."""

    def __init__(self, service: Service, prunable: set[int], min_free_bytes: int) -> None:
        self._service, self._prunable, self._min_free_bytes = service, prunable, min_free_bytes
        self._pruning: asyncio.Task[None] | None = None
        self._flushed_s = float("-inf")

    def step(self) -> None:
        """Do the work if it is due."""
        service, store = self._service, self._service.store
        now = store.clock.now()
        if now - self._flushed_s < FLUSH_EVERY_S:
            return
        self._flushed_s = now
        self._prune()
        service.curves.note(store.reports)
        store.flush_reports()
        service.tokens.flush()
        store.mark_clock()
        free = database.free_bytes(service.home.folder)
        low = f"only {free // 2**20} MiB are free on the disk of {service.home.folder}: no new jobs are accepted"
        service.health.disk_problem = low if free < self._min_free_bytes else ""

    def _prune(self) -> None:
        """Remove checkpoints that are no longer needed, in a thread: a large one takes time."""
        if not self._prunable or (self._pruning is not None and not self._pruning.done()):
            return
        numbers = sorted(self._prunable)[:MOST_PRUNED]
        self._prunable.difference_update(numbers)
        store, home = self._service.store, self._service.home
        work = [(home.checkpoints(number), pruning.leftovers(store, number)) for number in numbers]
        self._pruning = asyncio.create_task(asyncio.to_thread(pruning.remove_all, work))
