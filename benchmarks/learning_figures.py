"""Reading the figures of the study of learned policies: differences, intervals, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence

from argosy.report.stats import Interval, interval, paired_change, paired_ratio
from benchmarks.harness import Json, Row
from benchmarks.learning_policies import FLOOR

SPEEDS = {"rough": "shipped", "measured": "measured"}


def lower(case: Json, policy: str, than: str) -> Interval:
    """By how many per cent of the rival's JCT the policy's is lower: equal seeds are compared, geometric mean."""
    return reduction(case["policies"][policy]["jct_h"], case["policies"][than]["jct_h"])


def reduction(values: Sequence[float], than: Sequence[float]) -> Interval:
    """By how many per cent values are lower than those they belong to."""
    mean, low, high, n = paired_change(values, than)
    return Interval(-100.0 * mean, -100.0 * high, -100.0 * low, n)


def percent(value: Interval) -> str:
    """A change with its interval; minus is lower."""
    bounds = f" [{-value.high:+.1f}, {-value.low:+.1f}]" if value.n > 1 else ""
    return f"{-value.mean:+.1f}{bounds}".replace("-", "−")


def hours(values: Sequence[float]) -> str:
    found = interval(values)
    return f"{found.mean:.2f}" + (f" ± {found.half_width:.2f}" if found.n > 1 else "")


def met(value: Interval, target: float) -> str:
    """Return whether the mean reaches the target; "not certain" if the interval also allows the opposite."""
    reached = value.mean >= target
    sure = value.low >= target if reached else value.high < target
    return ("yes" if reached else "**no**") + ("" if sure else ", not certain")


def cases_of(figures: Json, part: str, **wanted: object) -> list[Json]:
    found: list[Json] = figures.get(part, {}).get("cases", [])
    return [case for case in found if all(case.get(key) == value for key, value in wanted.items())]


def absent(part: str, head: Row) -> list[Row]:
    """What stands there until it is measured."""
    return [head, (f"not measured yet: `python -m benchmarks learning --parts {part}`", *[""] * (len(head) - 1))]


def ratio(case: Json, label: str) -> Interval:
    """Mean JCT relative to the floor's: geometric mean over seeds, interval over logarithms."""
    return paired_ratio(case["policies"][label]["jct_h"], case["policies"][FLOOR]["jct_h"])


def ordered(policies: Json) -> list[str]:
    """The floor last."""
    return sorted(policies, key=lambda label: label == FLOOR)


def kept(case: Json) -> str:
    return " (measured earlier)" if case.get("kept") else ""
