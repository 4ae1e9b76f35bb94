"""Remembers how the figures that jobs report have developed: some hundred points of each, in memory only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from argosy.live import sanitize
from argosy.live.store import Store

MOST_POINTS = 240  # of one curve; then every second one is dropped, and new ones are taken half as often
MOST_CURVES = 8  # of one job
MOST_JOBS = 2000  # those that reported last


class JobCurves:
    """The points of one job: times in Unix seconds, and for each figure as many values."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.values: dict[str, list[float | None]] = {}
        self._every, self._left = 1, 0

    def add(self, at: float, figures: Mapping[str, float]) -> None:
        self._left -= 1
        if self._left > 0:
            return
        self._left = self._every
        for name in figures:
            if name not in self.values and len(self.values) < MOST_CURVES:
                self.values[name] = [None] * len(self.at)
        self.at.append(at)
        for name, values in self.values.items():
            values.append(figures.get(name))
        if len(self.at) >= MOST_POINTS:
            self._every *= 2
            self.at = self.at[::2]
            self.values = {name: values[::2] for name, values in self.values.items()}


class Curves:
    """The curves of all jobs that have reported since the daemon started."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: OrderedDict[int, JobCurves] = OrderedDict()

    def note(self, reports: Mapping[int, Mapping[str, Any]]) -> None:
        """Add a point for each job that has reported."""
        at = round(self._store.clock.wall(), 1)
        for number, report in reports.items():
            figures = figures_of(report)
            if figures:
                self._jobs.setdefault(number, JobCurves()).add(at, figures)
                self._jobs.move_to_end(number)
        while len(self._jobs) > MOST_JOBS:
            self._jobs.popitem(last=False)

    def of(self, number: int) -> JobCurves:
        return self._jobs.get(number) or JobCurves()


def figures_of(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures in a report that can be drawn."""
    metrics = report.get("metrics")
    found = dict(metrics) if isinstance(metrics, Mapping) else {}
    found |= {name: report[name] for name in ("progress", "step", "epoch", "samples") if name in report}
    numbers = {sanitize.text(name, 60): sanitize.number(value) for name, value in found.items()}
    return {name: value for name, value in numbers.items() if value is not None}
