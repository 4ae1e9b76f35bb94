"""Say how well simulated policies reproduce what really happened, where `actual` is among the policies compared.

A simulation that reproduces the past is reason to trust what it says of other policies; the policy that does it best is
probably close to the one that was in charge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.explain.words import clock
from argosy.report.comparison import Comparison
from argosy.sim.recorded import ACTUAL

NEAR = 0.2  # a completion time within this share of the real one counts as reproduced
FAITHFUL = 0.15  # largest error of the mean JCT at which a simulation is said to reproduce the past


class Reproduction(NamedTuple):
    """How near the simulated jobs of a policy are to the real ones, over jobs that finished in both."""

    policy: str
    jobs: int
    jct_error: float  # of the mean, relative to the real one
    wait_mean_s: float  # until the first start
    real_wait_mean_s: float
    near: float  # share of jobs whose JCT is within NEAR of the real one
    wait_correlation: float  # of the ranks of the waits; NaN if nobody waited


def reproductions(comparison: Comparison) -> list[Reproduction]:
    """Return one for each simulated policy, those with the smallest error first; none without `actual`."""
    if ACTUAL not in comparison.policies:
        return []
    found = []
    for policy in comparison.policies:
        common = comparison.common_seeds(policy, ACTUAL)
        if policy != ACTUAL and common:
            real, simulated = (comparison.runs[p][common[0]].jobs for p in (ACTUAL, policy))
            if (one := _reproduction(policy, real, simulated)) is not None:
                found.append(one)
    return sorted(found, key=lambda one: abs(one.jct_error))


def _reproduction(policy: str, real: pl.DataFrame, simulated: pl.DataFrame) -> Reproduction | None:
    ended = pl.col("finish_s").is_not_null() & pl.col("first_start_s").is_not_null()
    times = ("submit_s", "first_start_s", "finish_s")
    pairs = real.filter(ended).join(simulated.filter(ended).select("job_id", *times), on="job_id", suffix="_sim")
    if pairs.is_empty():
        return None
    submit, start, finish, _, start_sim, finish_sim = (
        pairs[name].to_numpy() for name in (*times, *(f"{name}_sim" for name in times))
    )
    jct, jct_sim = finish - submit, finish_sim - submit
    wait, wait_sim = start - submit, start_sim - submit
    near = np.abs(jct_sim - jct) <= NEAR * jct
    error = float(jct_sim.mean() / jct.mean() - 1) if jct.mean() > 0 else float("nan")
    return Reproduction(
        policy,
        pairs.height,
        error,
        float(wait_sim.mean()),
        float(wait.mean()),
        float(near.mean()),
        _rank_correlation(wait, wait_sim),
    )


def _rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    ranks = [pl.Series(x).rank().to_numpy() for x in (a, b)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return float("nan")
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def reproduction_lines(comparison: Comparison) -> list[str]:
    """Return sentences for people, the best first."""
    found = reproductions(comparison)
    if not found:
        return []
    lines = []
    for one in found:
        lines.append(
            f"{one.policy}: mean JCT {one.jct_error:+.0%} against what happened, first wait {clock(one.wait_mean_s)} "
            f"(really {clock(one.real_wait_mean_s)}), {one.near:.0%} of jobs within {NEAR:.0%} of their real JCT"
        )
    best = found[0]
    if abs(best.jct_error) > FAITHFUL:
        lines.append(
            "No policy here reproduces what happened: the cluster file, durations or priorities may differ from the "
            "real ones. Compare simulated policies with each other, not with actual."
        )
    return ["How well the simulation reproduces what happened:", *(f"  {line}" for line in lines)]
