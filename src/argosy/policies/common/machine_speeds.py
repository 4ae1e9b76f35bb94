"""How fast machines are believed to be, from what jobs on them show, and what that means for bids.

A measurement is trusted less and less as time goes by: without news a machine is as fast as any. What a job has now is
worth the rate that it shows; other rows are worth what the machines of their type are on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from argosy.cluster.view import Context, JobState, Overhead, View
from argosy.policies.base import Floats
from argosy.policies.common.candidates import Candidates

FORGET_S = 2 * 3600.0  # after this time a measurement counts 1/e of what it did
SLOWEST, FASTEST = 0.2, 1.5  # of rates that are believed, relative to what profiles say
LEAST_GAIN = 1.05  # machines must be faster by this factor for any move
COST = 1.5  # how often its cost a move must save


@dataclass(frozen=True, slots=True)
class MachineBids:
    """Candidates at the speeds of machines as they are believed to be, and what placing on fast ones needs."""

    candidates: Candidates
    speed: Floats | None = None  # [nodes]
    least_gain: Floats | None = None  # [jobs]


class MachineSpeeds:
    """Believes in machine speeds. The policy declares nodes, rate, placement and overhead."""

    def __init__(self, context: Context, *, differ: bool = True) -> None:
        """If machines do not `differ`, speeds are as profiles say, and nobody moves to another machine."""
        self._differ = differ
        self._move_s = context.costs()[:, Overhead.MIGRATE]
        self._types = max(len(context.gpu_types), 1)

    def of(self, view: View) -> Floats:
        """Return the speed of each machine, 1.0: as profiles say."""
        nodes = view.nodes
        trust = np.exp((nodes.speed_measured_at - view.now) / FORGET_S)
        speed: Floats = np.maximum(nodes.speed, SLOWEST) ** trust
        return speed

    def apply(self, view: View, c: Candidates, left: Floats) -> MachineBids:
        """Return the candidates at believed speeds; `left` is the work that each job is thought to have left."""
        if not self._differ:
            return MachineBids(c)
        jobs, nodes = view.jobs, view.nodes
        speed = self.of(view)
        up = nodes.state == 0
        count = np.bincount(nodes.type[up], minlength=self._types)
        of_type = np.bincount(nodes.type[up], speed[up], self._types) / np.maximum(count, 1)
        nominal = np.ones(len(jobs))
        nominal[c.job[c.present]] = c.speed[c.present]
        shown = jobs.measured_rate / nominal
        shown = np.where((jobs.state == JobState.RUNNING) & (shown > 0), np.clip(shown, SLOWEST, FASTEST), 1.0)
        factor = np.where(c.present, shown[c.job], of_type[np.maximum(c.type, 0)])
        saved = 1.0 - COST * self._move_s[jobs.kind] * nominal / left  # of the time left, if a move is to pay
        gain = LEAST_GAIN / np.maximum(saved, 1e-9)
        return MachineBids(replace(c, speed=c.speed * np.where(c.type < 0, 1.0, factor)), speed, gain)
