"""Turn a comparison into advice: the best policy that can be run, what it saves, how sure that is, and who loses.

Policies that see what no scheduler can know are shown as a bound, and the past (`actual`) is what others are measured
against; neither is recommended.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from argosy.explain.words import listed, signed
from argosy.report.comparison import Comparison, Paired, sees_future, size_class
from argosy.report.stats import Interval, bootstrap_change
from argosy.sim.recorded import ACTUAL

HOUR_S = 3600.0
FEWEST = 5  # jobs that a group needs to be named among those that lose
MOST_NAMED = 3  # groups of a kind that a sentence names
WORSE = 0.01


@dataclass(frozen=True, slots=True)
class Loser:
    """A group of jobs that takes longer than under the baseline."""

    kind: str  # user, queue or size
    name: str
    jobs: int
    change: float  # of the mean JCT
    low: float
    high: float
    added_h: float  # to all its jobs together

    @property
    def sure(self) -> bool:
        return self.low > 0

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.name} ({signed(self.change)} over {self.jobs:,} jobs{'' if self.sure else ', unsure'})"
        )


@dataclass(frozen=True, slots=True)
class Advice:
    """What to run instead of the baseline."""

    baseline: str
    best: str  # the best policy that can be run; the baseline if none shortens the mean JCT
    change: float  # of the mean JCT; with its interval
    low: float
    high: float
    paired_by: str
    jct_h: float
    baseline_jct_h: float
    saved_h: float  # by all jobs of a run together, on average over seeds
    held_gpu_h: float  # more (or, if negative, less) than under the baseline
    money: float | None  # the same in money, where nodes have prices
    nearest: str | None  # if the baseline is best: the best of the others that can be run
    nearest_change: float | None  # of the mean JCT; with its interval
    nearest_low: float | None
    nearest_high: float | None
    losers: tuple[Loser, ...]
    bound: str | None  # the best policy that sees the future, if it is better
    bound_change: float | None

    @property
    def sure(self) -> bool:
        """Return whether it is certain at the level of the interval that the best policy is better."""
        return Interval(self.change, self.low, self.high, 0).excludes_zero()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"sure": self.sure}


def advice(comparison: Comparison) -> Advice | None:
    """Return the advice of a comparison; None if there is nothing to choose between."""
    means = {policy: summary["jct_mean_s"].mean for policy, summary in comparison.summary.items()}
    known = {policy: mean for policy, mean in means.items() if not math.isnan(mean)}
    told = {policy for policy in known if sees_future(next(iter(comparison.runs[policy].values())))}
    runnable = {policy: mean for policy, mean in known.items() if policy not in told and policy != ACTUAL}
    base = comparison.baseline
    if not runnable or base not in known or set(runnable) == {base}:
        return None
    others = {policy: _change(comparison, policy).change for policy in runnable if policy != base}
    rated = {policy: change for policy, change in others.items() if not math.isnan(change.mean)}
    if not rated:
        return None
    first = min(rated, key=lambda policy: rated[policy].mean)
    keep = rated[first].mean >= 0
    best, nearest = (base, rated[first]) if keep else (first, None)
    change = Interval(0.0, 0.0, 0.0, 0) if keep else rated[first]
    bound = min((p for p in told if p != base), key=lambda p: known[p], default=None)
    if bound is not None and not comparison.paired[bound, best].change.mean < 0:
        bound = None
    seeds = comparison.common_seeds(best, base)
    mine, theirs = (_totals(comparison, policy, seeds) for policy in (best, base))
    return Advice(
        baseline=base,
        best=best,
        change=change.mean,
        low=change.low,
        high=change.high,
        paired_by="jobs" if keep else _change(comparison, best).by,
        jct_h=mine.jct_h,
        baseline_jct_h=theirs.jct_h,
        saved_h=_saved_h(comparison, best),
        held_gpu_h=mine.held_gpu_h - theirs.held_gpu_h,
        money=None if mine.money is None or theirs.money is None else mine.money - theirs.money,
        nearest=None if nearest is None else first,
        nearest_change=None if nearest is None else nearest.mean,
        nearest_low=None if nearest is None else nearest.low,
        nearest_high=None if nearest is None else nearest.high,
        losers=losers(comparison, best),
        bound=bound,
        bound_change=None if bound is None else _change(comparison, bound).change.mean,
    )


def _change(comparison: Comparison, policy: str) -> Paired:
    return comparison.paired[policy, comparison.baseline]


@dataclass(frozen=True, slots=True)
class _Totals:
    """The figures of a policy, averaged over runs."""

    jct_h: float
    held_gpu_h: float
    money: float | None


def _totals(comparison: Comparison, policy: str, seeds: list[int]) -> _Totals:
    scores = [comparison.scores[policy][seed] for seed in seeds]
    bills = [_bill(comparison, policy, seed) for seed in seeds]
    priced = [bill for bill in bills if bill is not None]
    return _Totals(
        fmean(score["jct_mean_s"] for score in scores) / HOUR_S,
        fmean(score["held_gpu_h"] for score in scores),
        fmean(priced) if priced else None,
    )


def _bill(comparison: Comparison, policy: str, seed: int) -> float | None:
    """Return the price of all GPU-hours that jobs of the window held; None if no node has a price.

    The past may have held more GPUs than the cluster has. Such hours are on no node, and count at the mean price:
    otherwise a past that does not fit would look cheap.
    """
    run, window = comparison.runs[policy][seed], comparison.window
    nodes = run.cluster.nodes
    if all(node.price_per_hour is None for node in nodes):
        return None
    rows, prices = comparison.timelines[policy][seed].placements, [node.price_per_hour or 0.0 for node in nodes]
    submit_s = run.jobs["submit_s"].to_numpy()[rows["job"].to_numpy()]
    counted = np.ones(rows.height) if window is None else (submit_s >= window[0]) & (submit_s < window[1])
    hours = counted * rows["gpus"].to_numpy() * (rows["end_s"] - rows["start_s"]).to_numpy() / HOUR_S
    per_gpu_h = np.array([price / node.gpus if node.gpus else 0.0 for price, node in zip(prices, nodes)])
    elsewhere = max(comparison.scores[policy][seed]["held_gpu_h"] - float(hours.sum()), 0.0)
    usual = sum(prices) / max(run.cluster.total_gpus, 1)
    return float((hours * per_gpu_h[rows["node"].to_numpy()]).sum()) + elsewhere * usual


def _saved_h(comparison: Comparison, policy: str) -> float:
    if policy == comparison.baseline:
        return 0.0
    common = comparison.common_seeds(policy, comparison.baseline)
    pairs = comparison.pairs(policy, comparison.baseline, common)
    return float((pairs["other_jct_s"] - pairs["jct_s"]).sum()) / HOUR_S / len(common)


def losers(comparison: Comparison, policy: str) -> tuple[Loser, ...]:
    """Return the groups of jobs that take longer than under the baseline: by user, queue and size, worst first."""
    if policy == comparison.baseline:
        return ()
    common = comparison.common_seeds(policy, comparison.baseline)
    pairs = comparison.pairs(policy, comparison.baseline, common).with_columns(size_class())
    found = []
    for kind in ("user", "queue", "size"):
        if pairs[kind].n_unique() == 1:
            continue  # these are all jobs
        for (name,), group in pairs.group_by(kind, maintain_order=True):
            mine, theirs = group["jct_s"].to_numpy(), group["other_jct_s"].to_numpy()
            if name is None or group.height < FEWEST or mine.sum() <= theirs.sum() * (1 + WORSE):
                continue
            change = bootstrap_change(mine, theirs)
            added_h = float(mine.sum() - theirs.sum()) / HOUR_S
            found.append(Loser(kind, str(name), group.height, change.mean, change.low, change.high, added_h))
    return tuple(sorted(found, key=lambda one: (one.kind, not one.sure, -one.added_h)))


def advice_lines(found: Advice | None) -> list[str]:
    """Return the advice in sentences, the first of which is the headline."""
    if found is None:
        return []
    if found.best == found.baseline:
        lines = [_keep(found), *_nearest(found)]
    else:
        change = Interval(found.change, found.low, found.high, 0)
        lines = [
            f"Best policy that can be run: {found.best}, {signed(found.change)} mean completion time against "
            f"{found.baseline}{_interval(change)}.{_doubt(change)}",
            f"  Jobs take {_hours(found.jct_h)} instead of {_hours(found.baseline_jct_h)} on average, which "
            f"{'saves' if found.saved_h >= 0 else 'adds'} {_amount(found.saved_h)} job-hours in all; "
            f"{_more(found.held_gpu_h, 'GPU-hours')} held{_money(found)}.",
        ]
        lines += [f"  Who loses: {text}." for text in _named(found)] or ["  No user, queue or size of jobs loses."]
    if found.bound is not None and found.bound_change is not None:
        lines.append(
            f"  As a bound: {found.bound} sees true durations, which no scheduler knows, and reaches "
            f"{signed(found.bound_change)}."
        )
    return lines


def _keep(found: Advice) -> str:
    if found.baseline == ACTUAL:
        return "Keep what you have: no policy here that can be run is better than what happened."
    return f"Keep {found.baseline}: no other policy here that can be run has a shorter mean completion time."


def _nearest(found: Advice) -> list[str]:
    if found.nearest is None or found.nearest_change is None:
        return []
    low, high = (math.nan if bound is None else bound for bound in (found.nearest_low, found.nearest_high))
    change = Interval(found.nearest_change, low, high, 0)
    how = signed(change.mean) + " mean completion time" if change.mean else "the same mean completion time"
    return [f"  Nearest to it: {found.nearest}, {how}{_interval(change)}.{_doubt(change) if change.mean else ''}"]


def _interval(change: Interval) -> str:
    """Return the interval in brackets, if there is one that says more than the change itself."""
    if math.isnan(change.low) or change.low == change.high:
        return ""
    return f" (95 % interval {signed(change.low)} … {signed(change.high)})"


def _doubt(change: Interval) -> str:
    if math.isnan(change.low):
        return " How sure that is, so few jobs cannot say."
    return "" if change.excludes_zero() else " This may be chance: the interval includes zero."


def _named(found: Advice) -> list[str]:
    by_kind = {kind: [one for one in found.losers if one.kind == kind] for kind in ("user", "queue", "size")}
    return [listed([str(one) for one in group], MOST_NAMED) for group in by_kind.values() if group]


def _hours(hours: float) -> str:
    for unit, length in (("days", 24.0), ("h", 1.0), ("min", 1 / 60)):
        if hours >= 2 * length:
            return f"{hours / length:.3g} {unit}"
    return f"{hours * HOUR_S:.3g} s"


def _amount(number: float) -> str:
    """Return the size of a number with three digits, or all digits before the point."""
    size = abs(number)
    return f"{size:,.0f}" if size >= 100 else f"{size:.3g}"


def _more(amount: float, what: str) -> str:
    if abs(amount) < 0.005:
        return f"as many {what}"
    return f"{_amount(amount)} {'more' if amount > 0 else 'fewer'} {what}"


def _money(found: Advice) -> str:
    if found.money is None or abs(found.money) < 0.005:
        return "" if found.money is None else ", which cost the same at the nodes' prices"
    return f", which {'costs' if found.money > 0 else 'saves'} {abs(found.money):,.2f} at the nodes' prices"
