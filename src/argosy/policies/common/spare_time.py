"""How long GPUs stay spare: how often jobs have claimed them in each hour of the day, learned from what happens."""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.policies.base import Floats

HOUR_S = 3600.0
HOURS = 24
USUAL_PER_H = 0.2  # claims per hour before any have been seen
USUAL_H = 2.0  # hours of observation that weigh as much as this assumption
AHEAD = 7 * HOURS  # hours that are looked ahead; later ones are as the mean of these


class SpareTime:
    """Counts, for each hour of the day, the hours without claims and the claims that ended them."""

    def __init__(self) -> None:
        self._hours, self._claims = np.zeros(HOURS), np.zeros(HOURS)
        self._since: float | None = None
        self._claimed = False

    def note(self, now: float, claimed: float) -> None:
        """Note what happens at a decision: `claimed` is the share of the spare GPUs that waiting jobs claim."""
        if self._since is not None and not self._claimed and now > self._since:
            edges = np.arange(np.floor(self._since / HOUR_S) + 1, np.ceil(now / HOUR_S)) * HOUR_S
            times = np.concatenate(([self._since], edges, [now]))
            np.add.at(self._hours, (times[:-1] // HOUR_S).astype(np.int64) % HOURS, np.diff(times) / HOUR_S)
            if claimed > 0:
                self._claims[int(now // HOUR_S) % HOURS] += min(claimed, 1.0)
        self._since, self._claimed = now, claimed > 0

    def kept(self, now: float, for_s: Floats) -> Floats:
        """Return how likely GPUs that are spare now are still so after these times."""
        per_h = (self._claims + USUAL_PER_H * USUAL_H) / (self._hours + USUAL_H)
        first = now / HOUR_S
        ahead = per_h[(int(first) + np.arange(AHEAD)) % HOURS]
        edges = np.concatenate(([0.0], np.arange(1, AHEAD) - first % 1.0, [AHEAD - first % 1.0]))
        total = np.concatenate(([0.0], np.cumsum(np.diff(edges) * ahead)))
        hours = np.asarray(for_s, np.float64) / HOUR_S
        beyond = np.maximum(hours - edges[-1], 0.0) * per_h.mean()
        return np.asarray(np.exp(-np.interp(hours, edges, total) - beyond))

    def state(self) -> dict[str, Any]:
        """Return what was learned, as JSON."""
        return {
            "hours": self._hours.tolist(),
            "claims": self._claims.tolist(),
            "since": self._since,
            "claimed": self._claimed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what was learned before."""
        self._hours, self._claims = np.array(state["hours"]), np.array(state["claims"])
        self._since, self._claimed = state["since"], state["claimed"]
