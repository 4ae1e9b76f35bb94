"""Run policies × seeds (× loads) in parallel, on all cores.

A run that fails does not stop the others; it comes back as an error with its policy and seed.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import polars as pl

from argosy.cluster.cluster import Cluster
from argosy.errors import ArgosyError, InputError
from argosy.perf.rate_tables import compile_tables
from argosy.policies.base import create
from argosy.sim.metrics import Window, metrics
from argosy.sim.pool import run_tasks
from argosy.sim.recorded import ACTUAL
from argosy.sim.result import EventKind, Result
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.sim.variation import LOAD, Variation, changed
from argosy.workload.trace import Trace

SMALL_JOBS = 2_000  # a run with at most this many jobs is expected to take less than a second


class Source(Protocol):
    """A generator of the jobs of a run, which makes different jobs for each seed."""

    def trace(self, seed: int) -> Trace: ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """A trace that is generated, a different one for each seed; the fields are those of `synth.generate`."""

    like: str
    jobs: int
    days: float | None = None
    load: float | None = None
    gpus: float | None = None

    def trace(self, seed: int) -> Trace:
        return _generated(self, seed)


@lru_cache(maxsize=2)  # policies of one seed follow each other
def _generated(recipe: Recipe, seed: int) -> Trace:
    from argosy.workload.synth import generate  # imported late, because its profiles take time to load

    return generate(recipe.like, recipe.jobs, seed, days=recipe.days, gpus=recipe.gpus, load=recipe.load)


@dataclass(frozen=True, slots=True)
class Task:
    """One run: a policy's name with its parameters, a seed, and what is different (in a sweep)."""

    policy: str
    seed: int
    at: tuple[Variation, ...] = ()

    def __str__(self) -> str:
        return f"{self.policy} (seed {self.seed}{''.join(f', {one}' for one in self.at)})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a task: a result; or, in a sweep, only its metrics; or an error."""

    task: Task
    result: Result | None = None
    scores: dict[str, float] | None = None
    error: ArgosyError | None = None
    details: str = ""  # the traceback, if the error is not caused by the user's input


@dataclass(frozen=True, slots=True)
class Experiment:
    """What all runs share."""

    source: Trace | Source
    cluster: Cluster
    settings: Settings
    window: Window | None = None

    def trace(self, task: Task) -> Trace:
        trace = self.source if isinstance(self.source, Trace) else self.source.trace(task.seed)
        for one in task.at:
            if one.name == LOAD:
                trace = trace.at_load(float(one.value) / offered_load(trace, self.cluster, self.settings))
        return trace

    def run(self, task: Task) -> Outcome:
        """Carry out one run in this process."""
        try:
            cluster, settings, policy = self.cluster, self.settings.with_seed(task.seed), task.policy
            for one in task.at:
                cluster, settings, policy = changed(one, cluster, settings, policy)
            result = simulate(self.trace(task), cluster, policy, settings)
            if task.at:
                return Outcome(task, scores=metrics(result, window=self.window))
            return Outcome(task, compact(result))
        except Exception as problem:  # a policy may raise anything, which must not stop the other runs
            error, details = as_error(problem)
            return Outcome(task, error=error, details=details)

    def chance(self, policies: Iterable[str]) -> bool:
        """Return whether another seed could give another result."""
        s = self.settings
        faults = s.node_mtbf_h is not None or s.job_mtbf_h is not None
        drawn = faults or s.drifting or s.storms or s.placer == "random" or s.estimator.startswith("noisy")
        if not isinstance(self.source, Trace) or drawn:
            return True
        made = [create(spec) for spec in policies if spec != ACTUAL]
        if s.placer == "policy" and any(policy.placer == "random" for policy in made):
            return True
        return any(policy.seeded for policy in made)


def tasks(policies: Sequence[str], seeds: Sequence[int], sweep: Sequence[tuple[Variation, ...]] = ()) -> list[Task]:
    """Return every combination: first the trace as it is, then the sweep."""
    every = [Task(policy, seed, at) for at in ((), *sweep) for seed in seeds for policy in policies]
    return [task for task in every if not task.at or task.policy != ACTUAL]  # nothing about the past can be varied


def run_all(
    experiment: Experiment,
    todo: Sequence[Task],
    workers: int | None = None,
    done: Callable[[Outcome], None] | None = None,
    ray: str | None = None,
) -> list[Outcome]:
    """Carry out tasks in parallel, here or on Ray (its address); `done` is called with each outcome.

    All are returned in task order.

    Compile the kernels first (`argosy.sim.warm`), or every worker will.
    """
    source = experiment.source
    jobs = len(source) if isinstance(source, Trace) else source.jobs if isinstance(source, Recipe) else None
    small = jobs is not None and jobs <= SMALL_JOBS
    return run_tasks(experiment.run, todo, lambda task, died: Outcome(task, error=died), workers, done, small, ray)


def as_error(problem: Exception) -> tuple[ArgosyError, str]:
    """Return what a run raised as an error for the user, and the traceback if the user's input is not its cause."""
    if isinstance(problem, InputError):
        return problem, ""
    name = "" if isinstance(problem, ArgosyError) else f"{type(problem).__name__}: "
    return ArgosyError(f"{name}{problem}"), traceback.format_exc()


def compact(result: Result) -> Result:
    """Drop the events that no metric or chart uses, because results are sent between processes."""
    return replace(result, events=result.events.filter(pl.col("kind") != int(EventKind.SUBMIT)))


def offered_load(trace: Trace, cluster: Cluster, settings: Settings) -> float:
    """Return the offered load: GPU-seconds that jobs need undisturbed, per GPU-second available while they arrive."""
    tables = compile_tables(
        trace.frame,
        cluster,
        model=settings.perf,  # type: ignore[arg-type]
        reference_type=settings.reference_type,
        ps_speeds=settings.ps_speeds,
    )
    submit = trace.frame["submit_s"]
    if submit[0] == submit[-1]:
        hint = "use a trace whose jobs arrive over some time"
        raise InputError(f"all jobs of {trace.name!r} arrive at once, so there is no load to vary", hint=hint)
    timed = trace.frame.with_columns(duration_s=pl.Series(tables.work_s))
    load = Trace(timed).offered_load(cluster.total_gpus)
    if not load > 0:
        raise InputError(f"the jobs of {trace.name!r} ask for no GPU time, so there is no load to vary")
    return load
