"""Columns at full length, for compiled code of hosts; and the work of jobs that have ended."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


class Arrivals(Policy):
    """Ranks by arrival, and is asked at every event."""

    name = "arrivals"

    def rank(self, view: View) -> Floats:
        return view.jobs.submitted


def run(jobs: int) -> Engine:
    """Return an engine whose jobs arrive one after the other and end late, or fail."""
    made = [Job(f"j{i}", i, 2 * jobs + i, gpus=1, status="failed" if i % 3 == 0 else "completed") for i in range(jobs)]
    return Engine(Trace.of_jobs(made), Cluster.uniform(5, 8), Arrivals(), Settings.ideal())


def test_they_are_those_of_the_table_also_when_it_has_grown() -> None:
    engine = run(1200)
    first = engine.full_columns
    while engine.advance():
        engine.ask()
        full, view = engine.full_columns, engine.full_view
        n = len(engine.jobs)
        assert len(full) == len(view.jobs) == n and view.now == engine.now
        for name in ("index", "state", "held", "submitted", "progress"):
            assert np.array_equal(getattr(full, name)[:n], getattr(engine.jobs, name))
        assert view.jobs.gpus is full.gpus
    assert engine.full_columns is not first, "more jobs were active than there was room for"
    with pytest.raises(ValueError, match="read-only"):
        engine.full_columns.held[0] = 1
    with pytest.raises(AttributeError, match="no column 'colour'"):
        _ = engine.full_columns.colour


def test_the_work_of_jobs_that_have_ended() -> None:
    engine, told, row = run(20), list[float](), 0
    while engine.advance():
        engine.ask()
        done_s, gpus, row = engine.ended_since(row)
        told += done_s.tolist()
    done_s, gpus, _ = engine.ended_since(row)
    ended = engine.result().events.filter(engine.result().events["kind"].is_in([14, 15, 16]))["job"].to_list()
    assert told + done_s.tolist() == pytest.approx([40 + i for i in ended])
    assert len(ended) == 20 and len(done_s) == len(gpus)
