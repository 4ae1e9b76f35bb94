"""Taking jobs in: checked first, then written in one transaction. What comes at the same time is written together.

Waiting for the disk is what a submission costs; sharing one wait is what makes a thousand a second possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.live.admission import check_possible
from argosy.live.metrics import Metrics
from argosy.live.problems import NoSpace
from argosy.live.spec import JobSpec
from argosy.live.standing import Standing
from argosy.live.store import Job, Store, Transaction, database

MIN_FREE_BYTES = 16 * 2**20  # below this only what already runs may write


@dataclass(frozen=True, slots=True)
class Batch:
    """What one caller submits at once: all of it is taken in, or nothing."""

    specs: Sequence[JobSpec]
    owner: str
    workdir: str


class Submissions:
    def __init__(self, store: Store, cluster: Cluster, standing: Standing, metrics: Metrics,
                 changed: Callable[[], None], min_free_bytes: int = MIN_FREE_BYTES) -> None:
        self._store, self._cluster, self._standing, self._metrics = store, cluster, standing, metrics
        self._changed, self._min_free_bytes = changed, min_free_bytes
        self._waiting: list[tuple[Batch, asyncio.Future[list[int]]]] = []

    def now(self, batches: Sequence[Batch]) -> list[list[int]]:
        """The numbers given to each batch; if one is wrong, nothing is written."""
        for batch in batches:
            self._check(batch)
        return self._take_in(batches)

    def _take_in(self, batches: Sequence[Batch]) -> list[list[int]]:
        with self._store.transaction() as changes:
            numbers = [self._add(changes, batch) for batch in batches]
        self._metrics.submitted.inc(sum(map(len, numbers)))
        self._changed()
        return numbers

    async def soon(self, batch: Batch) -> list[int]:
        """Checked at once, written together with whatever else comes in this turn of the loop."""
        self._check(batch)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[int]] = loop.create_future()
        if not self._waiting:
            loop.call_soon(lambda: loop.call_soon(self._write))  # after all handlers that are ready now
        self._waiting.append((batch, answer))
        return await answer

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            for numbers, (_, answer) in zip(self._take_in([batch for batch, _ in waiting]), waiting):
                if not answer.done():
                    answer.set_result(numbers)
        except Exception as problem:  # it is theirs who wait for the answer
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(problem)

    def _check(self, batch: Batch) -> None:
        free = database.free_bytes(self._store.path.parent)
        if free < self._min_free_bytes:
            folder = self._store.path.parent
            self._standing.disk_problem = f"only {free // 2**20} MiB are free on the disk of {folder}"
            raise NoSpace(
                f"the disk of {folder} is nearly full: {free // 2**20} MiB free; nothing was taken in",
                hint="make room there and submit again; what was submitted before is safe",
            )
        for spec in batch.specs:
            check_possible(spec, self._cluster)
            for other in spec.after:
                if self._store.job_state(other) is None:
                    raise InputError(f"after: there is no job {other}", hint="see argosy queue for the numbers")

    def _add(self, changes: Transaction, batch: Batch) -> list[int]:
        now, wall, numbers = self._store.clock.now(), self._store.clock.wall(), []
        for spec in batch.specs:
            text, gpus = spec.model_dump_json(), spec.resources.gpus
            where = str(spec.workdir or batch.workdir)
            first = None if spec.array is None else 0
            for index in range(spec.array or 1):
                job = changes.add(Job(
                    0, spec.name, batch.owner, spec.queue, spec.priority, text, where, first,
                    None if spec.array is None else index, spec.after, gpus.low, gpus.high, now, wall,
                ))  # fmt: skip
                first = job.array_id
                changes.event(job, "submitted", f"submitted by {batch.owner}")
                numbers.append(job.id)
        return numbers
