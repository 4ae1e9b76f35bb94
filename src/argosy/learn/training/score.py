"""The quality of a schedule: its mean job completion time, and a lower bound for it.

The lower bound, called the floor, is the mean over jobs of how long each would take alone, at its best speed, from the
moment it arrives. No schedule can be below it; how close a schedule can come depends on the load.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.learn.envs.source import Source
from argosy.perf.rate_tables import RateTables, compile_tables
from argosy.policies.base import Policy
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

KEPT = 64  # sets of jobs in the cache: all candidates of a generation get the same jobs


class Cases(Protocol):
    """Says which jobs belong to a seed; objects that are equal give the same."""

    @property
    def scenarios(self) -> tuple[str, ...]: ...
    def source(self, seed: int) -> Source: ...
    def __hash__(self) -> int: ...


class Jobs(NamedTuple):
    """Holds the jobs of a seed, ready to run."""

    source: Source
    trace: Trace
    floor_s: float


@lru_cache(maxsize=KEPT)
def jobs_of(cases: Cases, seed: int, cap: int) -> Jobs:
    """Return the jobs of a seed, and their floor with at most `cap` workers and servers each."""
    source = cases.source(seed)
    trace = source.trace(seed)
    return Jobs(source, trace, floor_s(trace, source.cluster, source.settings, cap))


def completion_times_s(policy: Policy, jobs: Jobs, seed: int) -> NDArray[np.float64]:
    """Return the completion times of a whole run; unfinished jobs count as if they finished with the run."""
    result = Engine(jobs.trace, jobs.source.cluster, policy, jobs.source.settings.with_seed(seed)).run()
    spent: NDArray[np.float64] = (result.jobs["finish_s"].fill_null(result.end_s) - result.jobs["submit_s"]).to_numpy()
    return spent


def mean_jct_s(policy: Policy, jobs: Jobs, seed: int) -> float:
    """Return the mean of the completion times of a whole run."""
    return float(completion_times_s(policy, jobs, seed).mean())


def floor_s(trace: Trace, cluster: Cluster, settings: Settings, cap: int) -> float:
    """Return the mean over jobs of their work at their best speed."""
    tables = compile_tables(
        trace.frame,
        cluster,
        model=settings.perf,  # type: ignore[arg-type]
        reference_type=settings.reference_type,
        locality=settings.locality,
        ps_speeds=settings.ps_speeds,
    )
    gpus = trace.frame["gpus"].to_numpy()
    low = np.ceil(trace.frame["min_gpus"].fill_null(0).to_numpy()).astype(int)
    high = np.floor(trace.frame["max_gpus"].fill_null(0).to_numpy()).astype(int)
    kinds = np.stack([tables.job_class, tables.ps_class, np.where(high > low, low, 0), np.where(high > low, high, 0)])
    speed = tables.reference.copy()
    for kind in np.unique(kinds, axis=1).T:
        plain, served, least, most = map(int, kind)
        rows = (kinds == kind[:, None]).all(axis=0)
        if most > least and (gpus[rows] >= 1).all():
            speed[rows] = np.maximum(speed[rows], _best(tables, plain, served, max(least, 1), min(most, cap), cap))
    return float((tables.work_s * tables.reference / speed).mean())


def _best(tables: RateTables, plain: int, served: int, least: int, most: int, cap: int) -> float:
    sizes = slice(least, most + 1)
    rates = tables.ps_rate[served, 1 : cap + 1, sizes] if served >= 0 else tables.rate[plain, :, sizes]
    return float(rates.max(initial=0.0))
