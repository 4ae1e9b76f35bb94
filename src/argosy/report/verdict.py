"""State the result of a comparison in a sentence or two, with as much certainty as the intervals give.

Only what a real scheduler could do is recommended: the best of the policies that see no true durations. Policies that
see them show how much could be gained at most.
"""

from __future__ import annotations

import math
from html import escape

from argosy.explain.words import listed, signed
from argosy.report.comparison import Comparison, sees_future
from argosy.sim.recorded import ACTUAL
from argosy.slack import RELATIVE_SLACK


def verdict(comparison: Comparison) -> str:
    """Return the headline, as HTML."""
    means = {policy: s["jct_mean_s"].mean for policy, s in comparison.summary.items()}
    known = {policy: mean for policy, mean in means.items() if not math.isnan(mean)}
    if len(comparison.policies) == 1 or not known:
        return f"One policy, {escape(comparison.policies[0])}."
    told = {p for p in known if sees_future(next(iter(comparison.runs[p].values())))}
    fair = {policy: mean for policy, mean in known.items() if policy not in told and policy != ACTUAL}
    texts = []
    if fair and (comparison.baseline in known or len(fair) > 1):
        texts.append(_leaders(comparison, fair, "Of the policies that see no true durations, " if told else ""))
    leader = min(fair.values(), default=math.inf)
    ahead = {policy: mean for policy, mean in known.items() if policy in told and mean < leader * (1 - RELATIVE_SLACK)}
    if ahead:
        texts.append(_bound(comparison, ahead))
    return " ".join(texts)


def _leaders(comparison: Comparison, means: dict[str, float], among: str) -> str:
    """Return a sentence about the policies with the shortest mean JCT among these, and by how much."""
    base, best = comparison.baseline, _shortest(means)
    if len(best) == len(means) > 1 and base != ACTUAL:
        return f"{among}{_names(best)} have the same mean job completion time."
    if base in best:
        rest = [policy for policy in best if policy != base]
        tied = f" {_names(rest)} {'ties' if len(rest) == 1 else 'tie'} with it." if rest else ""
        nobody = f"{among}none" if among else "No policy"
        return f"{nobody} has a shorter mean job completion time than {_names([base])}, the baseline.{tied}"
    against = _against(comparison, best[0])
    if base == ACTUAL and not comparison.paired[best[0], base].change.mean < 0:
        nobody = f"{among}none" if among else "No policy"
        better = f"{nobody} has a shorter mean job completion time than what happened"
        return f"{better}; {_names(best)} {'comes' if len(best) == 1 else 'come'} nearest, {against}"
    have = "has" if len(best) == 1 else "tie for"
    return f"{among}{_names(best)} {have} the shortest mean job completion time, {against}"


def _bound(comparison: Comparison, means: dict[str, float]) -> str:
    """Return a sentence about the mean JCT of policies that see true durations."""
    best = _shortest(means)
    reach = "reaches" if len(best) == 1 else "reach"
    than = _against(comparison, best[0]) if best[0] != comparison.baseline else "the baseline's."
    return f"As a bound: with true durations, which no real scheduler knows, {_names(best)} {reach} {than}"


def _against(comparison: Comparison, policy: str) -> str:
    """Return the change against the baseline and how certain it is, with a full stop."""
    paired = comparison.paired[policy, comparison.baseline]
    change = paired.change
    sure = doubt = ""
    if not math.isnan(change.low):
        sure = f" (95 % interval {signed(change.low)} … {signed(change.high)}, paired by {paired.by})"
        doubt = "" if change.excludes_zero() else " The interval includes zero: this may be chance."
    return f"{signed(change.mean)} against {_names([comparison.baseline])}{sure}.{doubt}"


def _shortest(means: dict[str, float]) -> list[str]:
    least = min(means.values())
    return [policy for policy, mean in means.items() if mean <= least * (1 + RELATIVE_SLACK)]


def _names(policies: list[str]) -> str:
    return listed([f"<b>{escape(policy)}</b>" for policy in policies])
