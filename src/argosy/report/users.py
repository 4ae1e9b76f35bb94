"""What each user got under each policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from argosy.explain.words import signed
from argosy.report.comparison import Comparison
from argosy.report.tables import fitting_unit

MOST_SHOWN = 30  # users in a report; JSON has all of them


class UserResult(NamedTuple):
    """The finished jobs of one user under one policy: means over all jobs of all seeds."""

    policy: str
    user: str
    jobs: float  # of a run
    jct_mean_s: float
    first_wait_mean_s: float
    held_gpu_h: float  # in a run
    change: float | None  # of the mean JCT against the baseline, over jobs that finished under both; None: it is it


def user_results(comparison: Comparison) -> list[UserResult]:
    """Return one for each policy and user, those with most GPU-hours under the baseline first; none without users."""
    order: dict[str, int] = {}
    found = []
    for policy in (comparison.baseline, *(p for p in comparison.policies if p != comparison.baseline)):
        changes = _changes(comparison, policy)
        for row in _sums(comparison, policy).iter_rows(named=True):
            order.setdefault(row["user"], len(order))
            found.append(UserResult(policy, change=changes.get(row["user"]), **row))
    places = {policy: place for place, policy in enumerate(comparison.policies)}
    return sorted(found, key=lambda one: (order[one.user], places[one.policy]))


def _sums(comparison: Comparison, policy: str) -> pl.DataFrame:
    """Return a row for each user, those with most GPU-hours first."""
    runs = comparison.runs[policy].values()
    jobs = pl.concat([comparison.finished(run) for run in runs]).drop_nulls("user")
    return (
        jobs.group_by("user")
        .agg(
            (pl.len() / len(runs)).alias("jobs"),
            pl.col("jct_s").mean().alias("jct_mean_s"),
            pl.col("first_wait_s").mean().alias("first_wait_mean_s"),
            (pl.col("held_gpu_s").sum() / 3600.0 / len(runs)).alias("held_gpu_h"),
        )
        .sort("held_gpu_h", "user", descending=[True, False])
    )


def _changes(comparison: Comparison, policy: str) -> dict[str, float]:
    common = comparison.common_seeds(policy, comparison.baseline)
    if policy == comparison.baseline or not common:
        return {}
    pairs = comparison.pairs(policy, comparison.baseline, common).drop_nulls("user")
    sums = pairs.group_by("user").agg(pl.col("jct_s").sum(), pl.col("other_jct_s").sum())
    return {user: ours / theirs - 1.0 for user, ours, theirs in sums.iter_rows() if theirs > 0}


def user_rows(comparison: Comparison) -> tuple[list[str], list[list[str]], int]:
    """Return a heading, a row for each user, and how many users there are: mean JCT and change, policy by policy."""
    results = user_results(comparison)
    by_user: dict[str, dict[str, UserResult]] = {}
    for one in results:
        by_user.setdefault(one.user, {})[one.policy] = one
    unit, divisor = fitting_unit("jct_mean_s", [one.jct_mean_s for one in results])
    rows = []
    for user, mine in list(by_user.items())[:MOST_SHOWN]:
        first = mine.get(comparison.baseline) or next(iter(mine.values()))
        cells = [_cell(mine.get(policy), divisor) for policy in comparison.policies]
        rows.append([user, f"{first.jobs:,.0f}", f"{first.held_gpu_h:,.1f}", *cells])
    return ["user", "jobs", "GPU-hours", *(f"{policy} [{unit}]" for policy in comparison.policies)], rows, len(by_user)


def _cell(one: UserResult | None, divisor: float) -> str:
    if one is None:
        return "–"
    change = "" if one.change is None else f" ({signed(one.change)})"
    return f"{one.jct_mean_s / divisor:,.3g}{change}"


def as_dicts(comparison: Comparison) -> list[dict[str, Any]]:
    return [one._asdict() for one in user_results(comparison)]
