"""Accepts jobs: they are checked, then written in one transaction with others that come at the same time.

Every transaction waits for the disk; because submissions share that wait, a thousand a second are possible.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from argosy.cluster.cluster import Cluster
from argosy.errors import ArgosyError, InputError
from argosy.live.daemon.admission import MAX_GRACE_S, check_grace, check_possible
from argosy.live.daemon.health import DaemonHealth
from argosy.live.daemon.metrics import Metrics
from argosy.live.daemon.user_limits import LimitBook
from argosy.live.errors import NoSpace
from argosy.live.spec import JobSpec
from argosy.live.store import Actor, Job, Store, Transaction, database
from argosy.live.store.rows import HELD_S

MAX_DETAIL = 200  # characters of a line in the audit log
MIN_FREE_BYTES = 16 * 2**20  # below this, only jobs that already run may write
PIECE = 200  # jobs written in one iteration of the event loop
MOST_GATHERED_S = 0.01  # a write waits at most this long for others to join it


@dataclass(frozen=True, slots=True)
class Batch:
    """What one caller submits in one call: all of it is accepted, or nothing."""

    specs: Sequence[JobSpec]
    owner: str
    workdir: str
    by: Actor

    @property
    def count(self) -> int:
        """Return how many jobs these are, arrays counted in full."""
        return sum(spec.array or 1 for spec in self.specs)

    @property
    def detail(self) -> str:
        """Return what the audit log says about them."""
        return ", ".join(dict.fromkeys(spec.name for spec in self.specs))[:MAX_DETAIL]


class Submissions:
    """Checks and writes submissions, grouping those that come at the same time."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        health: DaemonHealth,
        metrics: Metrics,
        changed: Callable[[], None],
        min_free_bytes: int = MIN_FREE_BYTES,
        limits: LimitBook | None = None,
        max_grace_s: float = MAX_GRACE_S,
    ) -> None:
        self._store, self._cluster, self._standing, self._metrics = store, cluster, health, metrics
        self._changed, self._min_free_bytes, self._max_grace_s = changed, min_free_bytes, max_grace_s
        self._limits = limits or LimitBook(store, cluster)
        self._coming: Counter[str] = Counter()  # jobs that are accepted but not written yet, by owner
        self._waiting: list[tuple[Batch, asyncio.Future[list[int]]]] = []
        self._crowd = 1  # callers whose jobs were in the last write
        self._gather_s = 0.0  # how long the next write waits for as many callers as the last one had
        self._due: asyncio.TimerHandle | None = None

    def now(self, batches: Sequence[Batch]) -> list[list[int]]:
        """Write the batches and return their numbers; if one is wrong, nothing is written."""
        for batch in batches:
            self._check(batch)
        return self._take_in(batches)

    def check(self, batch: Batch) -> None:
        """Raise the error with which this batch would be refused, if it would."""
        self._check(batch)

    def _take_in(self, batches: Sequence[Batch]) -> list[list[int]]:
        with self._store.transaction() as changes:
            numbers = [self._add(changes, batch) for batch in batches]
        self._metrics.submitted.inc(sum(map(len, numbers)))
        self._changed()
        return numbers

    async def soon(self, batch: Batch) -> list[int]:
        """Check a batch at once, and write it together with others that come at the same time."""
        self._check(batch)
        self._coming[batch.owner] += batch.count
        if batch.count > PIECE:
            try:
                return await self._in_pieces(batch)
            finally:
                self._coming[batch.owner] -= batch.count
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[int]] = loop.create_future()
        self._waiting.append((batch, answer))
        if len(self._waiting) == 1:
            self._due = loop.call_later(self._gather_s, self._write)
        if len(self._waiting) == self._crowd and self._due is not None:
            self._due.cancel()
            loop.call_soon(loop.call_soon, self._write)  # after all handlers that are ready now have run
        return await answer

    async def _in_pieces(self, batch: Batch) -> list[int]:
        """Write many jobs in pieces, without holding up the loop; they become visible when all are written."""
        store, count = self._store, batch.count
        first = store.reserve(count)
        last = first + count - 1
        waiting, written = self._jobs(batch, first), list[Job]()
        try:
            while piece := list(islice(waiting, PIECE)):
                store.add_hidden(piece)
                written += piece
                await asyncio.sleep(0)
        except BaseException:
            with suppress(ArgosyError):  # otherwise the next daemon removes them
                store.withdraw(first, last)
            raise
        store.publish(first, last, written, batch.by, batch.detail)
        self._metrics.submitted.inc(count)
        self._changed()
        return list(range(first, last + 1))

    def _jobs(self, batch: Batch, first: int) -> Iterator[Job]:
        """Yield the jobs of a batch, numbered from `first` on; 0: the store numbers them."""
        now, wall, number = self._store.clock.now(), self._store.clock.wall(), first
        ceiling = self._limits.of(batch.owner).priority
        for spec in batch.specs:
            text, gpus = spec.model_dump_json(), spec.resources.gpus
            where, array = str(spec.workdir or batch.workdir), None if spec.array is None else number
            priority = spec.priority if ceiling is None else min(spec.priority, ceiling)
            for index in range(spec.array or 1):
                yield Job(
                    number,
                    spec.name,
                    batch.owner,
                    spec.queue,
                    priority,
                    text,
                    where,
                    array,
                    None if array is None else index,
                    spec.after.numbers,
                    gpus.low,
                    gpus.high,
                    now,
                    wall,
                    not_before_s=HELD_S if spec.hold else 0.0,
                )
                number += bool(first)

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        for batch, _ in waiting:
            self._coming[batch.owner] -= batch.count
        began = time.perf_counter()
        try:
            for numbers, (_, answer) in zip(self._take_in([batch for batch, _ in waiting]), waiting):
                if not answer.done():
                    answer.set_result(numbers)
        except Exception as problem:  # it is raised in the callers
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(problem)
        # a single caller need not wait; several callers share writes if each waits as long as one write takes
        self._crowd = len(waiting)
        self._gather_s = min(MOST_GATHERED_S, time.perf_counter() - began) if len(waiting) > 1 else 0.0

    def _check(self, batch: Batch) -> None:
        free = database.free_bytes(self._store.path.parent)
        if free < self._min_free_bytes:
            folder = self._store.path.parent
            self._standing.disk_problem = f"only {free // 2**20} MiB are free on the disk of {folder}"
            raise NoSpace(
                f"the disk of {folder} is nearly full: {free // 2**20} MiB free; no job was accepted",
                hint="make room there and submit again; what was submitted before is safe",
            )
        self._limits.check(batch.owner, batch.specs, self._coming[batch.owner])
        for spec in batch.specs:
            check_possible(spec, self._cluster)
            check_grace(spec, self._max_grace_s)
            for other in spec.after.numbers:
                if self._store.job_state(other) is None:
                    raise InputError(f"after: there is no job {other}", hint="see argosy queue for the numbers")

    def _add(self, changes: Transaction, batch: Batch) -> list[int]:
        numbers: list[int] = []
        array = 0
        for job in self._jobs(batch, 0):
            if job.array_index:
                job = replace(job, array_id=array)
            added = changes.add(job)
            array = added.array_id or 0
            changes.event(added, "submitted", f"submitted by {batch.owner}")
            numbers.append(added.id)
        changes.audit(batch.by, "submit", jobs=numbers, detail=batch.detail)
        return numbers
