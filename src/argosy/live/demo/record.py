"""Records what happens on the cluster: which job was where and when, its progress, and its events."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from argosy.live.client import Client

ENDED = ("succeeded", "failed", "cancelled")
_DEVICES = re.compile(r"(?P<node>[^:]+):(?P<devices>[\d,]+)")


class Stay(NamedTuple):
    """A stay of a job on a slot. Times are seconds since the record began."""

    job: int
    slot: str
    start_s: float
    end_s: float
    paused: bool


class Point(NamedTuple):
    """A job's progress at one time."""

    job: int
    t_s: float
    gpus: int
    step: int | None
    loss: float | None


class Line(NamedTuple):
    """One event of a job's story."""

    job: int
    t_s: float
    kind: str
    text: str


@dataclass
class Record:
    """Everything recorded so far. `jobs` are as the daemon last reported them, by number."""

    began: float = field(default_factory=time.time)
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    stays: list[Stay] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    story: list[Line] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)  # what happened to the cluster as a whole
    ignored: set[int] = field(default_factory=set)  # jobs that do not belong to the demonstration
    _open: dict[tuple[int, str, bool], float] = field(default_factory=dict)
    _read: dict[int, int] = field(default_factory=dict)  # the last event known of each job

    @property
    def now_s(self) -> float:
        return time.time() - self.began

    @property
    def present(self) -> list[tuple[int, str, bool]]:
        """Return who is where now: job, slot, and whether it is paused."""
        return sorted(self._open)

    @property
    def end_s(self) -> float:
        return max((stay.end_s for stay in self.stays), default=0.0)

    @property
    def all_ended(self) -> bool:
        return all(job["state"] in ENDED for job in self.jobs.values())

    def mark(self, text: str) -> None:
        self.marks.append((self.now_s, text))

    def look(self, daemon: Client) -> list[Line]:
        """Ask the daemon for the state of all jobs; return the new events."""
        now, fresh, present = self.now_s, [], set()
        for brief in daemon.get("/v1/jobs", limit=100, oldest_first=True)["jobs"]:
            number = brief["id"]
            if number in self.ignored or self.jobs.get(number, {}).get("state") in ENDED:
                continue
            job = self.jobs[number] = daemon.get(f"/v1/jobs/{number}")
            present |= {(number, slot, job["paused"]) for place in job["places"] for slot in slots(place)}
            self.points.append(_point(job, now))
            fresh += self._events(daemon, number)
        self._settle(present, now)
        fresh.sort(key=lambda line: line.t_s)
        self.story += fresh
        return fresh

    def close(self) -> None:
        """End the record."""
        self._settle(set(), self.now_s)

    def _settle(self, present: set[tuple[int, str, bool]], now: float) -> None:
        for key in [key for key in self._open if key not in present]:
            number, slot, paused = key
            self.stays.append(Stay(number, slot, self._open.pop(key), now, paused))
        for key in present:
            self._open.setdefault(key, now)

    def _events(self, daemon: Client, number: int) -> list[Line]:
        page = daemon.get(f"/v1/jobs/{number}/events", after=self._read.get(number, 0))["events"]
        if page:
            self._read[number] = page[-1]["id"]
        return [Line(number, event["at"] - self.began, event["kind"], event["text"]) for event in page]


def slots(place: str) -> list[str]:
    """Return the slots of a place such as `n1:0,1` or `n1:0×0.5`."""
    found = _DEVICES.match(place)
    return [f"{found['node']}:{device}" for device in found["devices"].split(",")] if found else []


def _point(job: Mapping[str, Any], now: float) -> Point:
    report = job["report"]
    step, loss = report.get("step"), (report.get("metrics") or {}).get("loss")
    return Point(job["id"], now, 0 if job["paused"] else round(job["gpus"]), None if step is None else int(step), loss)
