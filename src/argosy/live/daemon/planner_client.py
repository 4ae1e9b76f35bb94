"""Asks the planner one question at a time, without waiting for the answer.

If the planner fails, running jobs continue, and it is asked again. A planner that has failed no longer knows the state
of the cluster, so the next question begins with a full snapshot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from itertools import islice
from typing import Protocol

from argosy.errors import message_of
from argosy.live.daemon.bookkeeper import Bookkeeper
from argosy.live.daemon.forecasts import Forecasts
from argosy.live.daemon.promotion import Promotion
from argosy.live.daemon.shadow import Shadow
from argosy.live.daemon_log import note
from argosy.live.planner.messages import Decision, Snapshot, Told, Update
from argosy.live.states import State
from argosy.live.store import Store

LEAST_S = 0.05  # between two questions that only the planner itself asked for
REPORT_EVERY_S = 2.0  # how often the planner is told of progress alone
REMEMBER_EVERY_S = 10.0  # how often the policy's memory is saved
EXPLAIN_EVERY_S = 2.0  # how often the reasons of waiting jobs are refreshed …
EXPLAIN_AT_LAST_S = 10.0  # … and so often even if the planner is always busy with other questions …
EXPLAINED, IN_TURN = 50, 20  # … and for how many jobs: those at the head of the queue, and some of the others in turn
FIRST_WAIT_S, LAST_WAIT_S = 0.5, 30.0  # after a failure


class Planner(Protocol):
    """The host of the policy: see `argosy.live.planner.process.PlannerProcess`.

    Whenever it starts, also after a failure, it asks for a snapshot, and uses only the time of the update it was given.
    """

    async def plan(self, update: Update) -> Decision: ...

    async def why(self, jobs: Sequence[int]) -> Mapping[int, Told]: ...

    async def close(self) -> None: ...


PlannerFactory = Callable[[Callable[[], Snapshot]], Planner]


class PlannerClient:
    """The daemon's side of the conversation with the planner."""

    def __init__(
        self, make: PlannerFactory, policy: str, store: Store, bookkeeper: Bookkeeper, wake: asyncio.Event
    ) -> None:
        self._make, self._planner = make, make(self._snapshot)
        self._policy, self._store, self._bookkeeper, self._wake = policy, store, bookkeeper, wake
        self._asking: asyncio.Task[Decision] | None = None
        self._explaining: asyncio.Task[None] | None = None
        self._asked_s = self._remembered_s = self._explained_s = store.clock.now()
        self._wake_at_s: float | None = self._asked_s  # the first question is due at once
        self._wait_s, self._not_before_s = FIRST_WAIT_S, 0.0
        self.forecasts = Forecasts(store, self._planner)
        self.shadow = Shadow(store, policy)
        self.promotion: Promotion | None = None
        self._switching = False
        self._turn = 0  # which of the jobs behind the head of the queue are explained next

    def step(self) -> None:
        """Take an answer that has arrived, and ask again if there is a reason to."""
        if self._switching:
            return
        if self._asking is not None:
            if not self._asking.done():
                return
            self._take(self._asking)
            self._asking = None
        now = self._store.clock.now()
        if now < self._not_before_s:
            return
        due = self.next_s is not None and now >= self.next_s
        quiet = bool(self._bookkeeper.feed.said) and now - self._asked_s >= REPORT_EVERY_S
        asks = due or quiet or self._bookkeeper.feed.pressing
        if asks:
            self._ask(now, due)
        self.forecasts.step(self._bookkeeper.health.decided_s)
        if self.promotion is not None:
            self.promotion.step(self._planner, self._bookkeeper.health.planner_problem)
        if self._stale_reasons(now, EXPLAIN_AT_LAST_S if asks else EXPLAIN_EVERY_S):
            self._explaining = asyncio.create_task(self._explain_queue())

    @property
    def next_s(self) -> float | None:
        """Return when the planner wants to be asked again; None while it is being asked."""
        if self._asking is not None or self._wake_at_s is None:
            return None
        return max(self._wake_at_s, self._not_before_s, self._asked_s + LEAST_S)

    def _snapshot(self) -> Snapshot:
        memory = self._store.query("SELECT state FROM planner WHERE policy = ?", (self._policy,))
        return self._bookkeeper.feed.snapshot(memory[0][0] if memory else None)

    def _ask(self, now: float, due: bool) -> None:
        remember = now - self._remembered_s >= REMEMBER_EVERY_S
        self._asked_s = now
        self._asking = asyncio.create_task(self._planner.plan(self._bookkeeper.feed.update(due, remember)))
        self._asking.add_done_callback(lambda _: self._wake.set())

    def _take(self, answer: asyncio.Task[Decision]) -> None:
        health, metrics, now = self._bookkeeper.health, self._bookkeeper.metrics, self._store.clock.now()
        try:
            decision = answer.result()
        except Exception as problem:  # whatever a policy does must not end the daemon
            self._wake_at_s = now
            self._not_before_s, self._wait_s = now + self._wait_s, min(2 * self._wait_s, LAST_WAIT_S)
            health.planner_problem = message_of(problem)
            metrics.errors.labels("planner").inc()
            note(
                "the policy failed; running jobs continue",
                logging.ERROR,
                problem=health.planner_problem,
                details=getattr(problem, "details", ""),
            )
            return
        metrics.decisions.inc()
        metrics.decision_seconds.observe(now - self._asked_s)
        self._wait_s, health.planner_problem = FIRST_WAIT_S, ""
        self._wake_at_s = decision.wake_at_s
        for text in decision.notes:
            note(text, logging.WARNING)
        self._bookkeeper.decide(decision)
        self.shadow.decided(self._planner)
        if decision.memory is not None:
            self._remembered_s = now
            with self._store.transaction() as changes:
                values = (self._policy, decision.memory, now)
                changes.execute("INSERT OR REPLACE INTO planner (policy, state, t_s) VALUES (?, ?, ?)", values)

    async def explain(self, jobs: Sequence[int]) -> None:
        """Ask the policy why these jobs wait; its answers are stored in `DaemonHealth.waiting`."""
        known = [number for number in jobs if number in self._bookkeeper.feed.known]
        if known and not self._bookkeeper.health.planner_problem:
            for number, told in (await self._planner.why(known)).items():
                self._bookkeeper.health.waiting[number] = told.as_dict()

    def _stale_reasons(self, now: float, after_s: float) -> bool:
        decided = self._bookkeeper.health.decided_s
        idle = self._explaining is None or self._explaining.done()
        return idle and (decided or 0.0) > self._explained_s and now > self._explained_s + after_s

    async def _explain_queue(self) -> None:
        """Refresh the reasons of the jobs at the head of the queue, and of some of those behind."""
        self._explained_s = self._store.clock.now()
        jobs = self._store.jobs
        waits = [number for number, job in jobs.items() if job.state is State.PENDING]
        self._turn = self._turn + IN_TURN if self._turn + EXPLAINED < len(waits) else 0
        head = [*waits[: EXPLAINED - IN_TURN], *islice(waits, EXPLAINED - IN_TURN + self._turn, EXPLAINED + self._turn)]
        waiting = self._bookkeeper.health.waiting
        for number in [n for n in waiting if n not in jobs or jobs[n].state is not State.PENDING]:
            del waiting[number]
        with suppress(Exception):  # a failing planner is noticed when it is asked for a plan
            await self.explain(head)

    async def switch(self, policy: str) -> None:
        """Let another policy decide from now on. Running jobs go on, and the new policy finds them where they are."""
        self._switching = True
        try:
            await self._leave()
            self._policy = self.shadow.live = policy
            self._planner = self._make(self._snapshot)
            self.forecasts.planner, self.forecasts.latest = self._planner, None
            self._asking = self._explaining = None
        finally:
            self._switching = False
        self._bookkeeper.health.policy, self._bookkeeper.health.planner_problem = policy, ""
        self._wake_at_s = self._store.clock.now()
        self._wait_s, self._not_before_s = FIRST_WAIT_S, 0.0
        self._wake.set()

    def present(self) -> Snapshot:
        """Return the complete state, for a control estimate; nothing counts as told by it."""
        feed = copy(self._bookkeeper.feed)
        feed.touched, feed.said = set(), set()
        return feed.snapshot(None)

    async def close(self) -> None:
        if self.promotion is not None:
            await self.promotion.close()
        await self._leave()

    async def _leave(self) -> None:
        """End the planner, and all questions to it that are still open."""
        under_way = [task for task in (self._asking, self._explaining) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self.forecasts.close()
        await self.shadow.close()
        await self._planner.close()
