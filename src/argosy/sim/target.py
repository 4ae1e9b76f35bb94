"""Targets such as `wait.p90 < 30m`: what a cluster must reach, and by how much a run misses it.

On the left stands `wait` (until the first start), `jct` or `slowdown`, followed by `.mean` or a percentile (`.p90`), or
any metric of a run, such as `utilisation_held` or `deadlines_met`. On the right stands a duration, a percentage or a
number. Jobs that never start or never finish in the run count as infinitely late.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from argosy.config import parse_duration
from argosy.errors import InputError, UnknownName
from argosy.sim.metrics import DEFINITIONS, metrics
from argosy.sim.result import Result

QUANTITIES = ("wait", "jct", "slowdown")
_TARGET = re.compile(r"^\s*([a-z][\w.]*)\s*(<=|>=|<|>)\s*(.+?)\s*$")
_STATISTIC = re.compile(r"^(mean|p(\d{1,2}(?:\.\d+)?))$")
HINT = "write it like 'wait.p90 < 30m', 'jct.mean < 6h' or 'utilisation_held > 60%'"


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that must be below or above a bound."""

    text: str
    quantity: str
    percentile: float | None  # None: the mean, or a metric as it is
    below: bool
    bound: float

    def figure(self, result: Result) -> float:
        """Return the figure of a run."""
        if self.quantity not in QUANTITIES:
            return metrics(result)[self.quantity]
        jobs = result.jobs.filter(pl.col("status") != "cancelled")
        submit, alone = jobs["submit_s"], jobs["alone_s"]
        until = jobs["first_start_s"] if self.quantity == "wait" else jobs["finish_s"]
        values = (until - submit).fill_null(np.inf).to_numpy()
        if self.quantity == "slowdown":
            length = alone.to_numpy()
            values = values[length > 0] / length[length > 0]
        if not values.size:
            return float("nan")
        if self.percentile is None:
            return float(values.mean())
        return float(np.percentile(values, self.percentile, method="inverted_cdf"))  # no value between a number and inf

    def is_met(self, figure: float) -> bool:
        return figure < self.bound if self.below else figure > self.bound

    @property
    def is_time(self) -> bool:
        return self.quantity in ("wait", "jct") or (
            self.quantity in DEFINITIONS and DEFINITIONS[self.quantity].unit == "s"
        )


def parse_target(text: str) -> Target:
    """Parse `wait.p90 < 30m`."""
    found = _TARGET.match(text)
    if found is None:
        raise InputError(f"{text!r} is not a target", hint=HINT)
    name, sign, bound = found.groups()
    quantity, dot, statistic = name.partition(".")
    percentile = None
    if dot:
        if quantity not in QUANTITIES:
            raise UnknownName("quantity", quantity, QUANTITIES)
        known = _STATISTIC.match(statistic)
        if known is None:
            raise InputError(
                f"{statistic!r} is neither mean nor a percentile", hint="write mean, p50, p90, p99 or p99.9"
            )
        percentile = float(known[2]) if known[2] else None
    elif quantity not in DEFINITIONS:
        raise UnknownName("metric", quantity, [*(f"{q}.p90" for q in QUANTITIES), *DEFINITIONS])
    try:
        value = float(bound.removesuffix("%")) / 100 if bound.endswith("%") else parse_duration(bound)
    except (ValueError, InputError):
        raise InputError(f"{bound!r} is not a bound", hint=HINT) from None
    return Target(text.strip(), quantity, percentile, sign.startswith("<"), value)
