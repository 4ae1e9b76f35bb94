"""Check a policy's answers: a key for each job, sizes within each job's range, a wake-up time in the future."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InvalidPlan, PolicyError
from argosy.mechanism.kernels import layout as L
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
    jf, n = engine.world.jf, len(workers)
    least, most = jf[L.MIN_GPUS, :n], jf[L.MAX_GPUS, :n] + jf[L.SPARE_GPUS, :n]
    wrong = (workers > most) & (workers > 1)  # 1 may stand for a share of a device, or for a CPU-only job
    wrong |= (workers < least) & (workers != 0)
    if wrong.any():
        jobs, row = engine.jobs, int(wrong.argmax())
        raise InvalidPlan(
            f"policy {engine.policy.name!r}: {workers[row]} GPUs for job {engine.job_name(int(jobs.index[row]))!r},"
            f" which takes {least[row]:g}..{most[row]:g}"
        )


def check_wake_time(engine: Engine, wanted: float | None) -> float:
    """Return when to wake the policy, inf if never; raise `PolicyError` if that time is not in the future."""
    if wanted is None:
        return float(np.inf)
    if not wanted > engine.now:
        name = engine.policy.name
        raise PolicyError(f"policy {name!r} asks to be woken at {wanted}, but it is {engine.now} already")
    return wanted
