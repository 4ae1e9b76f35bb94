"""The queue is read in several requests, and jobs may change in between."""

from __future__ import annotations

from typing import Any

from argosy.cli.queue import ALL, read_queue


class Scripted:
    """A daemon whose job 15 ends between the first request and the last."""

    def get(self, path: str, *, state: str, **asked: Any) -> dict[str, Any]:
        states = {"running": [15, 16], "pending": [17], "succeeded": [15]}
        jobs = [{"id": n, "state": s} for s, numbers in states.items() if s in state.split(",") for n in numbers]
        return {"jobs": jobs, "counts": {}, "next": None}


def test_a_job_that_ends_meanwhile_is_shown_once() -> None:
    found = read_queue(Scripted(), {}, ALL, 100)  # type: ignore[arg-type]
    assert [(job["id"], job["state"]) for job in found["jobs"]] == [
        (16, "running"),
        (17, "pending"),
        (15, "succeeded"),
    ]
