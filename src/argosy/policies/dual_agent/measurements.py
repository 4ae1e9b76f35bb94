"""Turn the measured rates of running jobs into measurements of machine speeds, and keep a belief from them.

A job's measured rate over the rate that its profile promises on nominal machines is the speed of its slowest machine.
Measured rates are averages over some minutes; a new average says what the newest minutes were like.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from argosy.cluster.view import View
from argosy.policies.dual_agent.belief import Belief, BeliefOptions, Floats, Ints

AVERAGED_OVER_S = 600.0  # measured rates are averages over about so long
SOONEST_S = 200.0  # a new average after less time says too little
REMEMBERED = 4096  # measurements that can be looked at afterwards
WIDEST = 3.0  # log speeds beyond this are taken as this
CALM = BeliefOptions(amplitude=0.1, length_h=3.0, constant=0.05, noise=0.03)
STORMY = BeliefOptions(amplitude=0.5, length_h=3.0, constant=0.07, noise=0.12)


class Seen(NamedTuple):
    """One measurement: the log speed that a job showed of its slowest machine."""

    time: float
    machines: tuple[int, ...]
    log_speed: float


class MachineBelief:
    """Beliefs under several hyper-parameters; the one under which the measurements were most likely counts."""

    def __init__(
        self, racks: Ints, types: Ints, *, graph: bool = True, options: tuple[BeliefOptions, ...] = (CALM, STORMY)
    ) -> None:
        self._beliefs = [Belief(racks, types, one, graph=graph) for one in options]
        self.record: list[Seen] = []  # the newest measurements
        self._last: dict[int, tuple[float, float, tuple[int, ...]]] = {}  # by job: rate, when, machines

    @property
    def best(self) -> Belief:
        return max(self._beliefs, key=lambda belief: belief.log_likelihood)

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart, as JSON."""
        last = [[job, rate, at, list(machines)] for job, (rate, at, machines) in self._last.items()]
        return {"beliefs": [belief.state() for belief in self._beliefs], "last": last}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned."""
        for belief, saved in zip(self._beliefs, state["beliefs"], strict=True):
            belief.restore(saved)
        self._last = {int(job): (rate, at, tuple(machines)) for job, rate, at, machines in state["last"]}

    def update(self, view: View) -> None:
        """Learn from the rates that have changed since the last call."""
        for belief in self._beliefs:
            belief.advance(view.now)
        jobs = view.jobs
        rows = np.flatnonzero((jobs.state == 1) & (jobs.measured_rate > 0) & (jobs.peer < 0))
        index, rate = jobs.index[rows].tolist(), jobs.measured_rate[rows].tolist()
        changed = [k for k, i in enumerate(index) if i not in self._last or self._last[i][0] != rate[k]]
        nominal = nominal_rates(view, rows[changed])
        for k, promised in zip(changed, nominal.tolist(), strict=True):
            machines = tuple(sorted({part.node for part in view.placement(int(rows[k]))}))
            before = self._last.get(index[k])
            self._last[index[k]] = (rate[k], view.now, machines)
            shown = rate[k]
            if before is not None and before[2] == machines:
                new = 1.0 - np.exp(-(view.now - before[1]) / AVERAGED_OVER_S)
                if view.now - before[1] < SOONEST_S:
                    continue
                shown = max(before[0] + (rate[k] - before[0]) / new, 0.2 * rate[k])
            if promised > 0 and machines:
                seen = float(np.clip(np.log(shown / promised), -WIDEST, WIDEST))
                self.record.append(Seen(view.now, machines, seen))
                for belief in self._beliefs:
                    belief.observe(np.array(machines), seen)
        del self.record[:-REMEMBERED]
        if len(self._last) > 2 * len(index) + 64:
            here = set(index)
            self._last = {i: value for i, value in self._last.items() if i in here}


def nominal_rates(view: View, rows: Ints) -> Floats:
    """Return the rates that running jobs would have on nominal machines, relative to the requested size."""
    jobs, profile = view.jobs, view.profile
    held = np.maximum(np.round(jobs.held[rows]), 1).astype(np.int64)
    kind = jobs.ps_kind[rows]
    plain = profile.rate(jobs.kind[rows], np.maximum(jobs.held_type[rows], 0), held, jobs.level[rows])
    plain = np.where(jobs.gpus[rows] < 1, plain * jobs.gpus[rows], plain)
    if (kind >= 0).any():
        plain = np.where(kind >= 0, profile.ps_rate(np.maximum(kind, 0), jobs.servers[rows], held), plain)
    return np.where(jobs.gpus[rows] > 0, plain / jobs.reference_rate[rows], 1.0)
