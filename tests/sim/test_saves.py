"""What a job loses when it is stopped, by what it can save: worked out by hand."""

from __future__ import annotations

import pytest

from argosy.cluster.cluster import Cluster
from argosy.errors import TraceError
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

ONE_GPU = Cluster.uniform(1, 1, "gpu")


def run(saves: str | None, **settings: float) -> dict[str, dict[str, float]]:
    """A long job runs from 0, and a shorter one preempts it from 70 to 90; the long one needs 100 s."""
    trace = Trace.of_jobs([Job("long", 0, 100, 1, saves=saves), Job("short", 70, 20, 1)])
    result = Engine(trace, ONE_GPU, create("srtf"), Settings.ideal(**settings)).run()
    return {row["job_id"]: row for row in result.jobs.to_dicts()}


@pytest.mark.parametrize(
    ("saves", "finish_s", "lost_gpu_s"),
    [
        (None, 120.0, 0.0),  # it saves when it is asked to stop
        ("step", 120.0, 0.0),
        ("none", 190.0, 70.0),  # all its work is lost, and it starts again at 90
        ("interval", 130.0, 10.0),  # what it did after its checkpoint at 60 is lost
    ],
)
def test_a_preempted_job_loses_what_it_cannot_save(saves: str | None, finish_s: float, lost_gpu_s: float) -> None:
    long = run(saves, checkpoint_every_s=30.0)["long"]
    assert long["finish_s"] == pytest.approx(finish_s)
    assert long["lost_gpu_s"] == pytest.approx(lost_gpu_s)
    assert long["useful_gpu_s"] == pytest.approx(100.0)
    assert long["held_gpu_s"] == pytest.approx(100.0 + lost_gpu_s)


def test_a_job_that_saves_nothing_ignores_checkpoints_when_it_crashes() -> None:
    trace = Trace.of_jobs([Job("a", 0, 4000, 1, saves="none"), Job("b", 0, 8000, 1)])
    settings = Settings.ideal(job_mtbf_h=1.0, checkpoint_every_s=60.0, max_retries=100, seed=3)
    engine = Engine(trace, Cluster.uniform(1, 2, "gpu"), create("fifo"), settings)
    a, b = engine.run().jobs.to_dicts()
    assert a["faults"] > 0
    assert b["lost_gpu_s"] <= 60.0 * b["faults"]
    assert a["lost_gpu_s"] > 60.0 * a["faults"]


def test_an_unknown_word_is_refused_with_the_words_that_are_allowed() -> None:
    with pytest.raises(TraceError, match="saves must be none, step or interval, is often"):
        Trace.of_jobs([Job("a", 0, 10, 1, saves="often")])
