"""The board: one line of JSON for each job, with the number of the change that made it, for pages that stay open.

A page asks for what has changed since the number that it knows. So nothing is kept for a page, and one that has slept
costs no more than one that is new. Lines are made once for all pages, and only while somebody looks.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from argosy.live.api.display import clean_text
from argosy.live.daemon.pending_reason import explanation, waits_outside
from argosy.live.daemon.service import Service
from argosy.live.daemon.views import held, place, progress
from argosy.live.planner.forecast import Estimate, Forecast
from argosy.live.states import State
from argosy.live.store import Job

MOST_ROWS = 20_000  # active jobs first, then the newest that have ended
LONGEST = 300  # characters of a text in a line
PER_REFRESH = 200  # jobs whose reasons and paces are looked at again in each refresh, in turns
MOST_PLACES = 100  # that one reader is told
ORDERED_S, ORDERING = 1.0, 0.01  # waiting jobs are put into order at most once a second, and for 1 % of the time
CLOSE_S, CLOSE = 5.0, 0.1  # an estimate that has moved by less is not shown anew, or every line would always change
NEAR_S = 0.25  # two refreshes are never closer
COLUMNS = (
    "id", "name", "owner", "queue", "state", "gpus", "low", "high", "progress", "priority", "submitted", "started",
    "ended", "why", "category", "array", "index", "paused", "held", "retry", "pace", "mean", "runs",
    "failures", "preemptions", "resizes", "places", "hot", "wait", "run", "gpuS", "settled", "eta",
)  # fmt: skip


Eta = tuple[int | None, ...]
Place = tuple[int, int]  # a job, and its place among all waiting jobs


@dataclass(slots=True)
class Line:
    number: int  # of the change that made it
    owner: str
    text: str
    ended: bool


class Board:
    """The lines of all jobs, ordered by their last change."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.epoch = secrets.token_hex(4)  # of this process: after a restart all numbers begin again
        self.number = 0
        self._lines: OrderedDict[int, Line] = OrderedDict()
        self._changed: set[int] | None = None  # None: nobody has looked yet
        self._refreshed_s = -math.inf
        self._turn = 0  # which jobs are looked at again
        self._shares: dict[int, float | None] = {}  # by running job: the progress in its line
        self._reasons: dict[int, Mapping[str, Any]] = {}  # by waiting job: the planner's, as in its line
        self._places: dict[str | None, list[Place]] = {}  # by owner; None: of all
        self._places_until_s = -math.inf
        self._forecast: Forecast | None = None  # the last whose estimates are in the lines
        self._etas: dict[int, Eta] = {}  # by job: as it is in its line

    def refresh(self) -> None:
        """Bring the lines up to date."""
        store = self._service.store
        if store.clock.monotonic() - self._refreshed_s < NEAR_S:
            return
        self._refreshed_s = store.clock.monotonic()
        if self._changed is None:
            self._changed = set()
            store.watchers.append(self._changed)
            self._told_anew()
            self._new_etas()
            self._render(self._newest_ended())
            self._render(store.jobs)
            return
        changed = set(self._changed)
        self._changed.clear()
        changed.update(self._service.health.starts, self._told_anew(), self._new_etas())
        waiting = list(islice(store.jobs, self._turn, self._turn + PER_REFRESH))
        self._turn = self._turn + PER_REFRESH if len(waiting) == PER_REFRESH else 0
        self._render(sorted(changed.union(waiting)))
        self._trim()

    def rest(self) -> None:
        """Forget everything, because nobody looks any more."""
        if self._changed is not None:
            self._service.store.watchers[:] = [
                known for known in self._service.store.watchers if known is not self._changed
            ]
        self._lines.clear()
        self._etas, self._forecast, self._shares, self._reasons = {}, None, {}, {}
        self._places, self._places_until_s = {}, -math.inf
        self._changed, self.number, self.epoch = None, 0, secrets.token_hex(4)

    def since(self, number: int, owner: str | None) -> Iterator[str]:
        """Yield lines that are newer than a change, newest first; of one owner or, with None, of all."""
        for line in reversed(self._lines.values()):
            if line.number <= number:
                return
            if owner in (None, line.owner):
                yield line.text

    def places(self, owner: str | None) -> list[Place]:
        """Return the first waiting jobs of one owner or, with None, of all, each with its place among all.

        They are in the order in which the last forecast expects them to start. It knows only what the policy sees: jobs
        that limits keep from it, or that are new, come after these, by priority and number. Jobs that are held back,
        wait for other jobs, or are tried again later have no place.
        """
        now = time.monotonic()
        if now >= self._places_until_s:
            self._places = dict[str | None, list[Place]]()
            for place, job in enumerate(self._in_order(), 1):
                for reader in (None, job.owner):
                    if len(theirs := self._places.setdefault(reader, [])) < MOST_PLACES:
                        theirs.append((job.id, place))
            self._places_until_s = now + max(ORDERED_S, (time.monotonic() - now) / ORDERING)
        return self._places.get(owner, [])

    def _in_order(self) -> list[Job]:
        store, known = self._service.store, self._forecast.jobs if self._forecast is not None else {}

        def key(job: Job) -> tuple[float, ...]:
            start = one.start if (one := known.get(job.id)) is not None else None
            p10, p50, p90 = (math.inf if t is None else t for t in start or (None, None, None))
            return start is None, p50, p10, p90, -job.priority, job.id

        waiting = [j for j in store.jobs.values() if j.state is State.PENDING and waits_outside(j, store) is None]
        return sorted(waiting, key=key)

    def _told_anew(self) -> set[int]:
        """Return the jobs whose progress or reason has changed, which is not kept in the store."""
        store, health = self._service.store, self._service.health
        shares = {number: _share(store.reports.get(number, store.jobs[number].report)) for number in store.runs}
        news = {number for number, share in shares.items() if self._shares.get(number, -1.0) != share}
        reasons = dict(health.waiting)
        news.update(number for number, told in reasons.items() if self._reasons.get(number) is not told)
        self._shares, self._reasons = shares, reasons
        return news

    def _new_etas(self) -> list[int]:
        """Take in the latest forecast; return the jobs whose estimates have become clearly different ones."""
        forecasts, clock = self._service.forecasts, self._service.store.clock
        made = forecasts.latest if forecasts is not None else None
        if made is self._forecast:
            return []
        self._forecast, before = made, self._etas
        now, to_unix_s = clock.wall(), clock.wall() - clock.now()
        etas = {} if made is None else {job: in_unix_s(one, to_unix_s) for job, one in made.jobs.items()}
        news = [job for job in before.keys() | etas.keys() if differs(before.get(job), etas.get(job), now)]
        self._etas = {job: eta for job, eta in before.items() if job in etas} | {n: etas[n] for n in news if n in etas}
        return news

    def _newest_ended(self) -> Iterable[int]:
        room = max(0, MOST_ROWS - len(self._service.store.jobs))
        sql = "SELECT id FROM jobs WHERE ended_s IS NOT NULL ORDER BY ended_s DESC LIMIT ?"
        return sorted(row[0] for row in self._service.store.query(sql, (room,)))

    def _render(self, numbers: Iterable[int]) -> None:
        wanted = list(numbers)
        for number, job in self._service.store.some_jobs(wanted).items():
            text = json.dumps(self._values(job), separators=(",", ":"), ensure_ascii=False)
            before = self._lines.get(number)
            if before is None or before.text != text:
                self.number += 1
                self._lines[number] = Line(self.number, job.owner, text, job.state.ended)
                self._lines.move_to_end(number)

    def _trim(self) -> None:
        for number in [n for n, line in islice(self._lines.items(), 1000) if line.ended]:
            if len(self._lines) <= MOST_ROWS:
                return
            del self._lines[number]

    def _values(self, job: Job) -> list[Any]:
        store, health = self._service.store, self._service.health
        run = store.runs.get(job.id)
        parts = run.parts if run is not None else ()
        told = explanation(job, store, health) if job.state is not State.RUNNING or (run and run.paused) else {}
        outside = waits_outside(job, store) if job.state is State.PENDING else None
        backs_off = outside is not None and outside[0] == "back-off"
        retry = store.clock.wall() + job.not_before_s - store.clock.now() if backs_off else None
        if backs_off:  # its text has seconds in it, which the page counts by itself
            told["text"] = job.message or "its last run ended early"
        run_s = job.run_s + (run.run_s if run else 0.0)
        pace = self._service.pace(job.id)
        now_s = store.clock.now()
        report = store.reports.get(job.id, job.report)
        share = progress(report)
        ran_s = run_s + (now_s - run.settled_s if run and not run.paused else 0.0)
        settled = store.clock.wall() - (now_s - run.settled_s) if run and not run.paused else None
        return [
            job.id,
            _short(job.name),
            job.owner,
            job.queue,
            job.state.value,
            round(held(parts), 3),
            job.gpus_low,
            job.gpus_high,
            _share(report),
            job.priority,
            round(job.submitted_at, 1),
            _rounded(job.started_at),
            _rounded(job.ended_at),
            _short(str(told.get("text", ""))),
            told.get("category", ""),
            job.array_id,
            job.array_index,
            int(bool(run and run.paused)),
            int(job.held),
            _rounded(retry),
            _significant(pace),
            _significant(share / ran_s if share and ran_s > 0 else None),
            job.generation,
            job.failures,
            job.preemptions,
            job.resizes,
            _short(" ".join(place(part) for part in parts)),
            int(job.hot),
            round(max(0.0, (job.ended_s or 0.0) - job.submitted_s - job.run_s), 1) if job.ended_s is not None else None,
            round(run_s, 1),
            round(job.gpu_s + (run.gpu_s if run else 0.0), 1),
            _rounded(settled),
            self._etas.get(job.id) if not job.state.ended else None,
        ]


def in_unix_s(estimate: Estimate, to_unix_s: float) -> Eta:
    """Return p10, p50 and p90 of the start, if it has not started, and of the end; None: later than a year."""
    times = (*(estimate.start or (None, None, None)), *estimate.end)
    return tuple(None if time is None else round(time + to_unix_s) for time in times)


def _share(report: Mapping[str, Any]) -> float | None:
    share = progress(report)
    return None if share is None else round(share, 3)


def differs(shown: Eta | None, new: Eta | None, now: float) -> bool:
    """Return whether an estimate has moved by more than a tenth of what is left, so that people would notice."""
    if shown is None or new is None:
        return shown is not new
    for before, after in zip(shown, new):
        if before is None or after is None:
            if before is not after:
                return True
        elif abs(after - before) > CLOSE_S + CLOSE * max(0.0, after - now):
            return True
    return False


def _short(text: str) -> str:
    text = clean_text(text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 1)


def _significant(value: float | None) -> float | None:
    """Return a rate with two digits, so that a line does not change because the last digit of a rate did."""
    return None if value is None or not value > 0 else float(f"{value:.2g}")
