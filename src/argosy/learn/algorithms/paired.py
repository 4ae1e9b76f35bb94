"""A baseline from rollouts of the same arrivals: their mean return from the same time on.

The return depends more on the jobs that happen to arrive than on the decisions. Rollouts with the same arrivals have
this part in common, so subtracting their mean removes it. Rollouts do not decide at the same times; between two of its
decisions, the return of a rollout is interpolated linearly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.algorithms.rollout import Rollout


def paired_baseline(rollout: Rollout, returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for every step, the mean return of the episodes with the same arrivals at its time.

    `returns` has one value for each step.
    """
    baseline = np.zeros(len(rollout))
    spans = [slice(first, last + 1) for first, last in zip(rollout.first, rollout.last)]
    for seed in np.unique(rollout.arrivals):
        group = [spans[e] for e in np.flatnonzero(rollout.arrivals == seed)]
        if len(group) < 2 or seed < 0:
            why = "some have no seed of arrivals" if seed < 0 else f"there is only one with seed {seed}"
            raise InputError(
                f"a paired baseline needs two or more episodes of the same arrivals, but {why}",
                hint="collect episodes(envs, act, seeds=[s] * len(envs))",
            )
        curves = [_curve(rollout, span, returns) for span in group]
        for span in group:
            at = rollout.time[span]
            baseline[span] = np.mean([np.interp(at, times, values, right=0.0) for times, values in curves], axis=0)
    return baseline


def _curve(
    rollout: Rollout, span: slice, returns: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the times of an episode's time slots and of its end, and the return from each of them on."""
    starts = rollout.slot_start
    starts = starts[(starts >= span.start) & (starts < span.stop)]
    end = rollout.time[span.stop - 1] + rollout.dt[span.stop - 1]
    return np.append(rollout.time[starts], end), np.append(returns[starts], 0.0)
