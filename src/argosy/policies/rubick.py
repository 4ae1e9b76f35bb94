"""Rubick: GPUs and execution plans are chosen together, so that jobs run fastest compared with what their users chose.

Decision: every job bids for each size that it takes, with the fastest of its execution plans there (a curve of its
sensitivity to GPUs). A bid is worth its speed relative to the user's own plan on the GPUs that the user asked for.
The bids worth most together are taken: GPUs move from jobs that lose little without them to those that gain most.
Guaranteed jobs come first: their smallest size is the cheapest with which they are as fast as their users expect. A
change counts less for the restart that it costs.
State used: demands, priorities, waiting times, what jobs hold, throughput profiles, what restarts cost.
Parameters: `every_s`, how often it decides if nothing happens; `guaranteed`, jobs of a higher priority than this are
guaranteed; `patience_s`, so are jobs that have waited for this long, until they end; `gain`, by which share a size must
be faster than a smaller one; `horizon_s`, the time within which a change must pay for its restart.
Differences from the paper: CPUs and bandwidth follow the GPUs, they are not traded on their own. GPUs are not moved one
by one between neighbours on the slopes; the mechanism's choice among the bids has their sum as its objective. Paper
and released code differ, too (the code shrinks no job); this follows the paper. Patience is ours: without it, large
best-effort jobs starve. The plans, their memory and their speeds: argosy/perf/execution_plans.py.
References: Zhang et al., Rubick, MLSys'25, arXiv 2408.08586; artifact AlibabaPAI/reconfigurable-dl-scheduler. Of the
paper only the abstract and notes were at hand, and the artifact: the policy is a reconstruction from these.

    max Σ_j T_j(n_j, best plan) / T_j(asked, user's plan)      Σ_j n_j ≤ GPUs,    n_j ≥ minimum_j
    minimum_j = min {n: T_j(n, best plan) ≥ T_j(asked, user's plan)} of guaranteed jobs, 0 of others
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.mechanism.bids import Bids
from argosy.policies.base import Policy, register
from argosy.policies.common.candidates import Candidates, CandidateTable
from argosy.slack import RELATIVE_SLACK

FIRST = 100.0  # what a guaranteed job's bid is worth more than others, for each GPU of its smallest size
RUNS = 1.5  # the factor on this worth for a job that runs
WAITED_LONG = 0.4  # the most that is added to the factor 1 of a waiting job; it grows with the wait


@register("rubick", "execution plans and GPUs chosen together, where they speed jobs up most", "Zhang et al., MLSys'25")
class Rubick(Policy):
    uses = frozenset({"demand", "service", "placement", "profile", "overhead"})
    preemptive = True
    reconfigures = True

    def __init__(
        self,
        every_s: float = 600.0,
        guaranteed: float = 50.0,
        patience_s: float = 7200.0,
        gain: float = 0.01,
        horizon_s: float = 1800.0,
    ) -> None:
        least = {"every_s": (every_s, 1.0), "patience_s": (patience_s, 0.0), "horizon_s": (horizon_s, 1.0)}
        for name, (value, at_least) in least.items():
            if not value >= at_least:
                raise InputError(f"rubick: {name} must be a time ≥ {at_least:g}, is {value}")
        if not 0 <= gain < 1:
            raise InputError(f"rubick: gain must be at least 0 and below 1, is {gain}")
        if not -np.inf < guaranteed < np.inf:
            raise InputError(f"rubick: guaranteed must be a priority, is {guaranteed}")
        self.every_s, self.guaranteed, self.patience_s = every_s, guaranteed, patience_s
        self.gain, self.horizon_s = gain, horizon_s

    def reset(self, context: Context) -> None:
        self._candidates = CandidateTable(context)
        self._promised: set[int] = set()  # jobs that have waited for long: they are guaranteed until they end

    def bid(self, view: View) -> Bids:
        jobs = view.jobs
        c = self._candidates.of(view)
        index = jobs.index.tolist()
        long = jobs.index[(jobs.state != 1) & (jobs.waiting_s >= self.patience_s)].tolist()
        self._promised = (self._promised | set(long)) & set(index)
        first = (jobs.priority > self.guaranteed) | np.array([i in self._promised for i in index], bool)
        running = jobs.state[c.job] == 1
        value = c.speed * np.where(running & ~c.present, self.horizon_s / (self.horizon_s + c.overhead_s), 1.0)
        value = value * jobs.weight[c.job]
        reaches = c.speed >= 1 - RELATIVE_SLACK
        minimum = np.full(len(jobs), np.inf)
        np.minimum.at(minimum, c.job[reaches], c.workers[reaches])
        guaranteed = first[c.job] & np.isfinite(minimum[c.job])
        urgent = 1 + WAITED_LONG * (1 - np.exp(-jobs.waiting_s / max(self.patience_s, 1.0)))[c.job]
        bonus = FIRST * minimum[c.job] * np.where(running, RUNS, urgent)
        value = np.where(guaranteed & reaches, value + bonus, value)
        kept = self._worthwhile(c) & (~guaranteed | reaches | c.present)
        taken = np.flatnonzero(kept)

        def because(bid: int) -> str:
            return self._because(view, c, int(taken[bid]))

        return Bids(c.job[taken], c.type[taken], c.workers[taken], value[taken], c.servers[taken], because=because)

    def _worthwhile(self, c: Candidates) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which sizes are faster than the next smaller one that is kept; a job's present size always is."""
        keep = np.ones(len(c.job), bool)
        before, best = (-1, -1), 0.0
        for i in np.lexsort((c.workers, c.type, c.job)).tolist():
            here = (int(c.job[i]), int(c.type[i]))
            if here != before:
                before, best = here, 0.0
            keep[i] = c.present[i] or c.speed[i] > best * (1 + self.gain)
            if keep[i]:
                best = max(best, float(c.speed[i]))
        return keep

    def _because(self, view: View, c: Candidates, i: int) -> str:
        gpus = int(c.workers[i])
        plan = view.profile.plan_of(int(view.jobs.kind[c.job[i]]), int(c.type[i]), gpus, 1) if c.type[i] >= 0 else ""
        return f"{plan or 'its plan'} on {gpus} GPUs runs at {c.speed[i]:.2f} times the speed that was asked for"

    def wake_at(self, view: View) -> float | None:
        return view.now + self.every_s if len(view.jobs) else None

    def state(self) -> dict[str, Any]:
        return {"promised": sorted(self._promised)}

    def restore(self, state: dict[str, Any]) -> None:
        self._promised = set(state["promised"])
