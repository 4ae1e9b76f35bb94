"""Check a policy's answers: a key for each job, sizes within each job's range, a wake-up time in the future."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InvalidPlan, PolicyError
from argosy.policies.base import Policy

if TYPE_CHECKING:
    from argosy.sim.engine import Engine


def check_key(key: Any, jobs: int, policy: Policy) -> NDArray[np.float64]:
    """Return a ranking as an array, or raise `PolicyError` if it is not one number for each job."""
    checked: NDArray[np.float64] = np.asarray(key, np.float64)
    if checked.shape != (jobs,):
        raise PolicyError(f"policy {policy.name!r}: rank returned shape {checked.shape} for {jobs} jobs")
    return checked


def check_sizes(engine: Engine, workers: NDArray[np.int64]) -> None:
    """Raise `InvalidPlan` if a job would get a number of GPUs at which it cannot run."""
    jobs = engine.jobs
    least, largest = jobs.min_gpus, jobs.max_gpus
    most = np.maximum(largest, 1.0) + jobs.spare_gpus  # 1 stands for a share of a device, or for a CPU-only job
    right = (workers >= least) & (workers <= most) & (workers > 0)
    if not (right | (workers == 0)).all():
        row = int(np.flatnonzero(~right & (workers != 0))[0])
        raise InvalidPlan(
            f"policy {engine.policy.name!r}: {workers[row]} GPUs for job {engine.job_name(int(jobs.index[row]))!r},"
            f" which takes {least[row]:g}..{largest[row] + jobs.spare_gpus[row]:g}"
        )


def check_wake_time(engine: Engine, wanted: float | None) -> float:
    """Return when to wake the policy, inf if never; raise `PolicyError` if that time is not in the future."""
    if wanted is None:
        return float(np.inf)
    if not wanted > engine.now:
        name = engine.policy.name
        raise PolicyError(f"policy {name!r} asks to be woken at {wanted}, but it is {engine.now} already")
    return wanted
