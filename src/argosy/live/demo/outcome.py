"""The results of the demonstration: one row for each job, for the table and for the page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from argosy.live.demo.record import Record

HEAD = (
    "job",
    "what",
    "state",
    "took s",
    "waited s",
    "resized",
    "moved",
    "suspended",
    "paused",
    "steps",
    "loss",
    "weights",
)
_LOSS, _WEIGHTS, _STEP = re.compile(r"loss ([\d.]+)"), re.compile(r"weights ([0-9a-f]{16})"), re.compile(r"step (\d+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    number: int
    name: str
    about: str
    state: str
    took_s: float
    waited_s: float
    resizes: int
    moves: int
    suspensions: int
    pauses: int
    steps: int | None
    loss: float | None
    weights: str  # digest of the final weights, if the job prints it

    def cells(self) -> tuple[str, ...]:
        return (
            self.name,
            self.about,
            self.state,
            f"{self.took_s:.1f}",
            f"{self.waited_s:.1f}",
            str(self.resizes),
            str(self.moves),
            str(self.suspensions),
            str(self.pauses),
            "" if self.steps is None else str(self.steps),
            "" if self.loss is None else f"{self.loss:.4f}",
            self.weights[:8],
        )


def outcome(job: Mapping[str, Any], about: str, record: Record, log: str) -> Outcome:
    """Return a job's result from what the daemon says or, for a script without the SDK, from its log."""
    kinds = [line.kind for line in record.story if line.job == job["id"]]
    report, lost, steps, weights = job["report"], _LOSS.findall(log), _STEP.findall(log), _WEIGHTS.findall(log)
    step = report.get("step", steps[-1] if steps else None)
    loss = (report.get("metrics") or {}).get("loss", lost[-1] if lost else None)
    return Outcome(
        job["id"],
        job["name"],
        about,
        job["state"],
        job["wait_s"] + job["run_s"],
        job["wait_s"],
        job["resizes"],
        job["moves"],
        job["preemptions"],
        kinds.count("pausing"),
        None if step is None else int(step),
        None if loss is None else float(loss),
        weights[-1] if weights else "",
    )


def exactness(outcomes: Sequence[Outcome]) -> str:
    """Say whether the jobs in exact mode ended with the same bits; empty if that cannot be said."""
    exact = [found for found in outcomes if found.name.startswith("exact")]
    if len(exact) < 2 or not all(found.weights for found in exact):
        return ""
    names = " and ".join(found.name for found in exact)
    if len({found.weights for found in exact}) > 1:
        return f"{names} differ in their final weights: exact mode has failed"
    return f"{names} end with the same weights, bit for bit ({exact[0].weights})"
