"""Jobs that would lose all their work are preempted last, and not for ever: worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import View
from argosy.policies.base import Floats, Policy, create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


class ByPriority(Policy):
    """The highest priority first."""

    preemptive = True

    def rank(self, view: View) -> Floats:
        return np.asarray(-view.jobs.priority)


def run(jobs: list[Job], gpus: int, policy: Policy | None = None) -> dict[str, dict[str, float]]:
    result = Engine(Trace.of_jobs(jobs), Cluster.uniform(1, gpus), policy or ByPriority(), Settings.ideal()).run()
    return {row["job_id"]: row for row in result.jobs.to_dicts()}


def test_a_better_ranked_job_that_can_save_is_taken_instead() -> None:
    """Of two lower ranked jobs the last would lose 60 s: the other is taken, and does not take its place afterwards."""
    plain = Job("plain", 0, 100, 1, priority=10, saves="none")
    jobs = [plain, Job("saves", 0, 100, 1, priority=20), Job("urgent", 60, 30, 1, priority=90)]
    rows = run([*jobs, Job("tick", 65, 1, 1, priority=1)], 2)
    assert rows["urgent"]["finish_s"] == pytest.approx(90)
    assert rows["plain"]["finish_s"] == pytest.approx(100) and rows["plain"]["preemptions"] == 0
    assert rows["saves"]["finish_s"] == pytest.approx(130) and rows["saves"]["lost_gpu_s"] == 0


def test_it_is_taken_if_nothing_else_makes_room() -> None:
    jobs = [Job("plain", 0, 100, 1, priority=10, saves="none"), Job("saves", 0, 100, 1, priority=20)]
    rows = run([*jobs, Job("wide", 60, 30, 2, priority=90)], 2)
    assert rows["wide"]["finish_s"] == pytest.approx(90)
    assert rows["plain"]["lost_gpu_s"] == pytest.approx(60) and rows["plain"]["finish_s"] == pytest.approx(190)
    assert rows["saves"]["finish_s"] == pytest.approx(130)


def test_who_has_lost_its_work_runs_twice_as_long_undisturbed() -> None:
    """Urgent jobs come every 50 s: without protection a job of 120 s would never end."""
    urgent = [Job(f"u{i}", 50.0 * i, 10, 1, priority=90) for i in range(1, 12)]
    rows = run([Job("plain", 0, 120, 1, priority=10, saves="none"), *urgent], 1)
    # 0-50 lost, 60-160 protected, then taken for the two that wait, from 180 on protected for 200 s
    assert rows["plain"]["preemptions"] == 2
    assert rows["plain"]["lost_gpu_s"] == pytest.approx(150)
    assert rows["plain"]["finish_s"] == pytest.approx(rows["plain"]["first_start_s"] + 180 + 120)
    assert max(rows[f"u{i}"]["finish_s"] for i in range(1, 12)) <= 600


def test_what_is_lost_stays_in_proportion_to_the_length() -> None:
    """The case that was measured on a real daemon: 14 plain commands on 4 GPUs under tiresias-las."""
    lengths = [30, 5, 60, 10, 45, 20, 8, 90, 15, 40, 25, 12, 70, 35]
    jobs = [Job(f"j{i}", 2.0 * i, length, 1, saves="none") for i, length in enumerate(lengths)]
    rows = run(jobs, 4, create("tiresias-las:limits=20,60"))
    for i, length in enumerate(lengths):
        assert rows[f"j{i}"]["lost_gpu_s"] <= 2 * length + 1e-6, (i, length, rows[f"j{i}"])


def test_jobs_that_save_are_not_affected() -> None:
    jobs = [Job(f"j{i}", 3.0 * i, 20 + 7 * i % 50, 1 + i % 2) for i in range(20)]
    told = [Job(j.job_id, j.submit_s, j.duration_s, j.gpus, saves="step") for j in jobs]
    finish = [
        {name: row["finish_s"] for name, row in run(some, 3, create("tiresias-las:limits=20,60")).items()}
        for some in (jobs, told)
    ]
    assert finish[0] == finish[1]
