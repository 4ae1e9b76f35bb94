"""Charges the measured costs of starting, stopping and moving instead of those that the performance model assumes."""

from __future__ import annotations

from collections.abc import Mapping

from argosy.live.planner.engine import LiveEngine

KINDS = ("start", "suspend", "resume", "migrate", "slice")


def charge(engine: LiveEngine, seconds: Mapping[str | None, Mapping[str, float]]) -> None:
    """Charge these seconds from now on, by model; models without a table of speeds are charged their common mean."""
    kinds = {kind: kind for kind in KINDS} | {"resize": "resize-hot" if engine.settings.hot_resize else "resize-cold"}
    classes = [c.model for c in engine.tables.classes]
    found: dict[tuple[int, str], list[float]] = {}
    for model, costs in seconds.items():
        rows = [i for i, name in enumerate(classes) if name == model and model is not None] or [0]
        for kind in costs.keys() & kinds.keys():
            for row in rows:
                found.setdefault((row, kind), []).append(costs[kind])
    for (row, kind), values in found.items():
        engine.set_overhead(row, kinds[kind], sum(values) / len(values))
