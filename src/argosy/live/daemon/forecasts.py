"""Keeps the estimates of when jobs start and end up to date, and records the first of each job, to be scored later.

The roll-outs are made by a copy of the planner's process. They are repeated as often as what they cost allows: they
take at most a small part of one CPU.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from argosy.errors import ArgosyError
from argosy.live.daemon.estimate_scores import Scored, score
from argosy.live.daemon_log import note
from argosy.live.errors import Conflict
from argosy.live.planner.forecast import Estimate, Forecast, Quantiles, WhatIf
from argosy.live.planner.forked import Finished
from argosy.live.planner.messages import JobFacts
from argosy.live.store import Store, database

EVERY_S = 5.0  # the shortest time between two forecasts
CPU_SHARE = 0.05  # of one CPU that forecasts may take
BUDGET_S, LIMIT_S = 10.0, 60.0  # for the roll-outs, and until the copy is ended
LOOK_EVERY_S = 0.25  # at an answer that is being worked on
WHAT_IF_LIMIT_S = 30.0


@runtime_checkable
class Foresight(Protocol):
    """A planner that answers questions about the future beside its decisions."""

    async def begin(self, name: str, limit_s: float, arguments: Mapping[str, Any]) -> bool: ...

    async def finished(self, name: str) -> Finished | None: ...


@dataclass
class Forecasts:
    """The latest forecast, and when the next is due."""

    store: Store
    planner: object
    latest: Forecast | None = None
    problem: str = ""
    speed: float = 1.0  # seconds that pass on the clock in one: more than one in demonstrations
    _recorded: set[int] = field(default_factory=set)  # jobs whose first estimate is stored
    _due_s: float = 0.0
    _decided_s: float | None = None
    _task: asyncio.Task[None] | None = None
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def step(self, decided_s: float | None) -> None:
        """Begin a forecast if one is due; `decided_s` is when the policy last decided."""
        now = self.store.clock.now()
        idle = self._task is None or self._task.done()
        if not idle or decided_s is None or now < self._due_s or not isinstance(self.planner, Foresight):
            return
        if self.store.jobs:
            self._task = asyncio.create_task(self._refresh(self.planner))
        else:
            self.latest = None

    async def _refresh(self, planner: Foresight) -> None:
        self._due_s = self.store.clock.now() + EVERY_S * self.speed
        try:
            answer = await ask(planner, "forecast", LIMIT_S, {"budget_s": BUDGET_S})
        except ArgosyError:
            return  # the planner has failed, which is reported elsewhere
        except Exception:
            note("a forecast failed", logging.ERROR, problem="see the traceback")
            logging.getLogger(__name__).exception("a forecast failed")
            return
        self._due_s = self.store.clock.now() + max(EVERY_S, answer.cpu_s / CPU_SHARE) * self.speed
        if answer.problem != self.problem and answer.problem:
            note("no estimates of when jobs start", logging.WARNING, problem=answer.problem)
        self.problem = answer.problem
        if not answer.problem:
            self.latest = answer.answer
            self._record(answer.answer)

    async def what_if(self, variants: Sequence[JobFacts]) -> list[WhatIf]:
        """Return when a job would start and end that has not been submitted, in each of these variants."""
        if not isinstance(self.planner, Foresight):
            raise Conflict("this daemon's planner makes no estimates", hint="submit the job without --dry-run")
        async with self._one_at_a_time:
            answer = await ask(self.planner, "what-if", WHAT_IF_LIMIT_S, {"variants": tuple(variants)})
        if answer.problem:
            raise Conflict(f"no estimate: {answer.problem}", hint="try again in a few seconds")
        found: list[WhatIf] = answer.answer
        return found

    def _record(self, made: Forecast) -> None:
        """Store the first estimate of each job that has not started yet when it is made."""
        known = self._recorded = {id for id in self._recorded if id in self.store.jobs}
        wall = self.store.clock.wall() - self.store.clock.now()
        new = [
            (id, made.at_s, made.at_s + wall, made.policy, made.rollouts, *one.start, *one.end, *one.naive)
            for id, one in made.jobs.items()
            if one.start is not None and id not in known and id in self.store.jobs
        ]
        if new:
            with suppress(ArgosyError), self.store.transaction() as changes:
                changes.executemany(INSERT, new)
                known |= {row[0] for row in new}

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def ask(planner: Foresight, name: str, limit_s: float, arguments: Mapping[str, Any]) -> Finished:
    """Ask a question about the future, and wait for the answer without holding up the planner."""
    await planner.begin(name, limit_s, arguments)
    wait_s = 0.02
    while (found := await planner.finished(name)) is None:
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, LOOK_EVERY_S)
    return found


INSERT = (
    "INSERT OR IGNORE INTO estimates"
    " (job, at_s, at, policy, rollouts, start_p10, start_p50, start_p90, end_p10, end_p50, end_p90,"
    " naive_start, naive_end) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


SCORED = (
    "SELECT e.at_s, start_p10, start_p50, start_p90, end_p10, end_p50, end_p90, naive_start, naive_end,"
    " j.started_s, CASE WHEN j.state = 'succeeded' THEN j.ended_s END FROM estimates e JOIN jobs j ON j.id = e.job"
    " WHERE j.started_s IS NOT NULL ORDER BY e.job DESC LIMIT ?"
)
MOST_SCORED = 5000


def calibration(path: Path) -> dict[str, Any]:
    """Return how good the first estimates of jobs have been; may be called from another thread."""
    with closing(database.reader(path)) as reading:
        rows = reading.execute(SCORED, (MOST_SCORED,)).fetchall()

    def after(at_s: float, *times: float | None) -> tuple[float | None, ...]:
        return tuple(None if time is None else time - at_s for time in times)

    starts, ends = list[Scored](), list[Scored]()
    for at_s, s10, s50, s90, e10, e50, e90, naive_start, naive_end, started_s, ended_s in rows:
        starts.append(Scored((*after(at_s, s10, s50, s90),), started_s - at_s, naive_start - at_s))  # type: ignore[arg-type]
        if ended_s is not None:
            ends.append(Scored((*after(at_s, e10, e50, e90),), ended_s - at_s, naive_end - at_s))  # type: ignore[arg-type]
    found = {"start": score(starts), "end": score(ends)}
    return {name: None if one is None else one.as_dict() for name, one in found.items()}


def shown(estimate: Estimate, at_s: float, to_unix_s: float) -> dict[str, Any]:
    """Return an estimate as the API shows it: in Unix seconds, null where a time is beyond the horizon."""

    def times(quantiles: Quantiles | None) -> dict[str, float | None] | None:
        if quantiles is None:
            return None
        found = quantiles._asdict().items()
        return {name: None if time is None else round(time + to_unix_s, 1) for name, time in found}

    return {"at": round(at_s + to_unix_s, 1), "start": times(estimate.start), "end": times(estimate.end)}
