"""Takes what a running job reports into the engine: progress, measured speed, losses and checkpoints."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from argosy.cluster.view import JobState, StepReport
from argosy.live.planner.durations import Expected
from argosy.live.planner.engine import LiveEngine
from argosy.live.planner.job_index import Tracked
from argosy.live.planner.messages import Report, Steps
from argosy.mechanism.world import number_of
from argosy.slack import COUNT_SLACK

LEAST_LEFT = 1e-3  # share of its work that a job still has to do as long as it has not ended


def take_report(engine: LiveEngine, report: Report, job: Tracked) -> None:
    """Replace what the models assume about a job by what it reports; its accounts must be settled."""
    jobs, row = engine.jobs, engine.jobs.row_of(job.index)
    if report.progress is not None:
        work, rate = float(jobs.duration_s[row]), float(jobs.rate[row])
        if report.rate is not None and report.rate > 0 and rate > 0:
            if job.measured:  # the work is known: the speed is what is measured
                engine.set_job(job.index, rate=report.rate * work, measured_rate=report.rate * work)
            else:
                work = rate / report.rate
                engine.set_job(job.index, duration_s=work, expected_s=work)
                job.expected = Expected(work, "measured by its own reports")
                job.measured = True
        if job.measured:  # a job that says which share of its work is done declares how much there is
            engine.set_job(job.index, declared_s=work)
        left = 1.0 - min(max(report.progress, 0.0), 1.0)
        engine.set_job(job.index, settled_left_s=max(left, LEAST_LEFT) * work)
    if report.saves is not None:
        engine.set_job(job.index, saves=number_of("saves", report.saves) or 0.0)
        job.facts = replace(job.facts, saves=report.saves)
    if report.epoch is not None and report.loss is not None and np.isfinite(report.loss):
        engine.losses.setdefault(job.index, {})[float(report.epoch)] = float(report.loss)
    if report.steps is not None:
        _take_steps(engine, report.steps, row)
    if report.checkpoint_s is not None and report.checkpoint_s > jobs.saved_at[row]:
        engine.set_job(
            job.index,
            saved_at=report.checkpoint_s,
            saved_left_s=float(jobs.settled_left_s[row]),
            saved_useful=float(jobs.settled_useful[row]),
        )


def _take_steps(engine: LiveEngine, steps: Steps, row: int) -> None:
    """Take what a job has measured, if it was measured with the GPUs and the batch that the job has now."""
    jobs = engine.jobs
    here = jobs.family[row] >= 0 and jobs.state[row] == JobState.RUNNING
    if not here or steps.workers != round(float(jobs.held[row])) or steps.batch != round(float(jobs.batch[row])):
        return
    local = math.ceil(steps.batch / steps.workers / steps.passes - COUNT_SLACK)
    nodes = len({part.node for part in engine.parts_of(row)})
    report = StepReport(nodes, steps.workers, float(local), steps.passes - 1, steps.step_s, steps.pass_s)
    index = int(jobs.index[row])
    if not engine.steps.get(index):
        engine.request_decision()
    engine.steps[index] = report
    engine.set_job(index, noise_scale=steps.noise_scale)
