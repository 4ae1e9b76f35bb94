"""Reading the figures of the study of learned policies: differences, intervals, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from argosy.report.stats import Interval, interval, paired_difference
from benchmarks.harness import Json, Row
from benchmarks.learning_policies import FLOOR

SPEEDS = {"rough": "shipped", "measured": "measured"}


def lower(case: Json, policy: str, than: str) -> Interval:
    """By how many per cent of the rival's mean JCT the policy's is lower; equal seeds are compared."""
    theirs = case["policies"][than]["jct_h"]
    mean, low, high, n = paired_difference(theirs, case["policies"][policy]["jct_h"])
    whole = interval(theirs).mean / 100.0
    return Interval(mean / whole, low / whole, high / whole, n)


def percent(value: Interval) -> str:
    """A change with its interval; minus is lower."""
    bounds = f" [{-value.high:+.1f}, {-value.low:+.1f}]" if value.n > 1 else ""
    return f"{-value.mean:+.1f}{bounds}".replace("-", "−")


def hours(values: Sequence[float]) -> str:
    found = interval(values)
    return f"{found.mean:.2f}" + (f" ± {found.half_width:.2f}" if found.n > 1 else "")


def met(value: Interval, target: float) -> str:
    """Whether the mean reaches it; not surely, if the interval also allows the opposite."""
    reached = value.mean >= target
    sure = value.low >= target if reached else value.high < target
    return ("yes" if reached else "**no**") + ("" if sure else ", not surely")


def cases_of(figures: Json, part: str, **wanted: object) -> list[Json]:
    found: list[Json] = figures.get(part, {}).get("cases", [])
    return [case for case in found if all(case.get(key) == value for key, value in wanted.items())]


def absent(part: str, head: Row) -> list[Row]:
    """What stands there until it is measured."""
    return [head, (f"not measured yet: `python -m benchmarks learning --parts {part}`", *[""] * (len(head) - 1))]


def ratio(case: Json, label: str) -> Interval:
    """Mean JCT relative to the floor's: geometric mean over seeds, interval over logarithms."""
    times, floor = (np.log(case["policies"][of]["jct_h"]) for of in (label, FLOOR))
    found = paired_difference(times, floor)
    mean, low, high = np.exp(found[:3]).tolist()
    return Interval(mean, low, high, found.n)


def ordered(policies: Json) -> list[str]:
    """The floor last."""
    return sorted(policies, key=lambda label: label == FLOOR)


def kept(case: Json) -> str:
    return " (measured earlier)" if case.get("kept") else ""
