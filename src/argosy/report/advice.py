"""Turn a comparison into advice: the best policy that can be run, what it saves, how sure that is, and who loses.

Policies that see what no scheduler can know are shown as a bound, and the past (`actual`) is what others are measured
against; neither is recommended.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from argosy.explain.words import listed, signed
from argosy.report.comparison import Comparison, Paired, sees_future, size_class
from argosy.report.stats import bootstrap_change
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
    best: str  # the best policy that can be run; the baseline if none has a shorter mean JCT
    change: float  # of the mean JCT; with its interval
    low: float
    high: float
    paired_by: str
    jct_h: float
    baseline_jct_h: float
    saved_h: float  # by all jobs of a run together, on average over seeds
    held_gpu_h: float  # more (or, if negative, less) than under the baseline
    money: float | None  # the same in money, where nodes have prices
    losers: tuple[Loser, ...]
    bound: str | None  # the best policy that sees the future, if it is better
    bound_change: float | None

    @property
    def sure(self) -> bool:
        return self.high < 0

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
    best = min(runnable, key=lambda policy: _change(comparison, policy).change.mean if policy != base else 0.0)
    paired = _change(comparison, best) if best != base else None
    bound = min((p for p in told if p != base), key=lambda p: known[p], default=None)
    if bound is not None and known[bound] >= known[best]:
        bound = None
    held, cost = (_difference(comparison, name, best) for name in ("held_gpu_h", "cost_held"))
    return Advice(
        baseline=base,
        best=best,
        change=0.0 if paired is None else paired.change.mean,
        low=0.0 if paired is None else paired.change.low,
        high=0.0 if paired is None else paired.change.high,
        paired_by="jobs" if paired is None else paired.by,
        jct_h=known[best] / HOUR_S,
        baseline_jct_h=known[base] / HOUR_S,
        saved_h=_saved_h(comparison, best),
        held_gpu_h=held,
        money=None if math.isnan(cost) else cost,
        losers=losers(comparison, best),
        bound=bound,
        bound_change=None if bound is None else _change(comparison, bound).change.mean,
    )


def _change(comparison: Comparison, policy: str) -> Paired:
    return comparison.paired[policy, comparison.baseline]


def _difference(comparison: Comparison, metric: str, policy: str) -> float:
    summary = comparison.summary
    return summary[policy][metric].mean - summary[comparison.baseline][metric].mean


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
        lines = [f"Keep {found.baseline}: no other policy here that can be run has a shorter mean completion time."]
    else:
        interval = "" if math.isnan(found.low) else f" (95 % interval {signed(found.low)} … {signed(found.high)})"
        doubt = "" if found.sure else " This may be chance: the interval includes zero."
        lines = [
            f"Best policy that can be run: {found.best}, {signed(found.change)} mean completion time against "
            f"{found.baseline}{interval}.{doubt}",
            f"  Jobs take {_hours(found.jct_h)} instead of {_hours(found.baseline_jct_h)} on average: "
            f"{found.saved_h:,.0f} job-hours in all; {_more(found.held_gpu_h, 'GPU-hours')} held{_money(found)}.",
        ]
        lines += [f"  Who loses: {text}." for text in _named(found)] or ["  No user, queue or size of jobs loses."]
    if found.bound is not None and found.bound_change is not None:
        lines.append(
            f"  As a bound: {found.bound} sees true durations, which no scheduler knows, and reaches "
            f"{signed(found.bound_change)}."
        )
    return lines


def _named(found: Advice) -> list[str]:
    by_kind = {kind: [one for one in found.losers if one.kind == kind] for kind in ("user", "queue", "size")}
    return [listed([str(one) for one in group], MOST_NAMED) for group in by_kind.values() if group]


def _hours(hours: float) -> str:
    for unit, length in (("days", 24.0), ("h", 1.0), ("min", 1 / 60)):
        if hours >= 2 * length:
            return f"{hours / length:.3g} {unit}"
    return f"{hours * HOUR_S:.3g} s"


def _more(amount: float, what: str) -> str:
    return f"{abs(amount):,.0f} {'more' if amount >= 0 else 'fewer'} {what}"


def _money(found: Advice) -> str:
    if found.money is None:
        return ""
    return f", which {'cost' if found.money >= 0 else 'save'} {abs(found.money):,.2f} at the nodes' prices"
