"""The jobs of the demonstration, and when they are submitted."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from argosy.live.demo.record import Record

SCRIPTS = Path(__file__).with_name("scripts")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in the demonstration: seconds after its beginning, or after the end of a job."""

    at_s: float = 0.0
    after: str = ""

    def has_come(self, record: Record) -> bool:
        if not self.after:
            return record.now_s >= self.at_s
        ends = [job["ended_at"] for job in record.jobs.values() if job["name"] == self.after]
        return bool(ends) and ends[0] is not None and record.now_s >= ends[0] - record.began + self.at_s


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job: when it is submitted, its job file, and a description for the spectator."""

    when: Moment
    job: dict[str, Any]
    about: str

    @property
    def name(self) -> str:
        return str(self.job["name"])


def job(name: str, script: str, *arguments: object, gpus: str, folder: Path, **more: Any) -> dict[str, Any]:
    words = [sys.executable, str(SCRIPTS / f"{script}.py"), *map(str, arguments)]
    workdir = folder / name
    workdir.mkdir(parents=True, exist_ok=True)
    return {
        "name": name,
        "run": words,
        "workdir": str(workdir),
        "resources": {"gpus": gpus},
        "grace": 10,
        "env": {"DIGITS": str(folder / "digits.pt")},
        **more,
    }


def warm_up_job(folder: Path) -> dict[str, Any]:
    """Return a job that does nothing, so that an interpreter is warm when the others come."""
    return {"name": "warm-up", "run": [sys.executable, "-c", "pass"], "workdir": str(folder), "resources": {"gpus": 1}}


def default_jobs(folder: Path) -> list[DemoJob]:
    """Return the jobs: an ordinary script, two in exact mode, one that may grow, a short one, and a late one."""
    log = {"pattern": r"step (\d+)", "total": 125}
    exact = ("--exact", "--epochs", 8)
    return [
        DemoJob(
            Moment(0),
            job("plain", "plain", "--epochs", 5, gpus="1", folder=folder, progress=log),
            "an ordinary script, unchanged",
        ),
        DemoJob(Moment(0), job("exact", "elastic", *exact, gpus="1..3", folder=folder), "elastic, in exact mode"),
        DemoJob(
            Moment(4),
            job("grower", "elastic", "--grow", "--epochs", 20, gpus="1..3", folder=folder, grow={"allowed": True}),
            "elastic, may grow",
        ),
        DemoJob(Moment(8), job("exact-twin", "elastic", *exact, gpus="1", folder=folder), "exact's twin, in one size"),
        DemoJob(Moment(16), job("urgent", "elastic", "--epochs", 3, gpus="2", folder=folder), "short, in a hurry"),
        DemoJob(
            Moment(18, after="urgent"),
            job("late", "elastic", "--epochs", 5, gpus="3", folder=folder),
            "wants what the grower has",
        ),
    ]
