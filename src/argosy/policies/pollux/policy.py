"""Pollux: GPUs and batch sizes of all jobs together, so that their goodputs grow fairly.

Decision: goodput is throughput times statistical efficiency: what a job gains per second, given that samples of a large
batch are worth less. For every job the best batch at each size is known from its own measurements. A genetic search
goes through allocations (GPUs of each job on each node) for the largest power mean of the jobs' speed-ups, relative to
a fair share of the cluster. A job whose allocation changes counts less, because a restart takes time. Jobs take the
batch that is best where they are, and a new one as their gradient noise scale grows.
State used: demands, service, what jobs hold, nodes; step times, batch sizes and noise scales that jobs report;
profiles of jobs with fixed batches.
Parameters: `p`, the power of the mean: -1 as published, 0 the geometric mean; `every_s`, how often it decides if
nothing happens; `restart_s`, what a restart is thought to cost; `avoid`, whether at most one job that spans nodes may
be on a node (interference); `growth`, how many times as many GPUs as ever measured a job may get; `cap`, most GPUs of a
job; `speeds`: `fitted`, each job's own fit, or `profile`, the models that ship; `population`, `generations`, of the
search, which ends when the best fitness has not grown for `patience` generations; `authors`, the rules of the authors'
simulator: decisions in rounds only, ncf on one GPU with its largest batch, always all generations.
Differences from the paper: the search begins with one allocation more, which is made job by job. Jobs with a fixed
batch take part with the speeds of their profile, rigid ones with all of their GPUs or none. Shares of a GPU and
CPU-only jobs are placed first, by arrival. Allocations are also held to CPUs, memory, GPU types, reservations and
limits of queues; a job is on GPUs of one type, whose differences the search does not know, as in the paper. The fit is
by Levenberg and Marquardt instead of L-BFGS-B. The size of the cluster is fixed.
References: Qiao et al., Pollux, OSDI'21; petuum/adaptdl, branch osdi21-artifact.

    SPEEDUP_j(A) = goodput_j(A) / goodput_j(fair share) · (age − n·d) / (age + d) if the allocation changes
    FITNESS(A) = (1/J Σ_j SPEEDUP_j(A)^p)^(1/p)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.mechanism.plan import Plan
from argosy.policies.base import Ints, Policy, register
from argosy.policies.pollux.problem import Population, Problem
from argosy.policies.pollux.realise import realise
from argosy.policies.pollux.small_jobs import place_small
from argosy.policies.pollux.speedups import Speedups
from argosy.slack import TIME_SLACK_S


@register("pollux", "GPUs and batch sizes by goodput, from a genetic search over allocations", "Qiao et al., OSDI'21")
class Pollux(Policy):
    uses = frozenset({"demand", "service", "placement", "nodes", "profile", "efficiency"})
    preemptive = True
    seeded = True

    def __init__(
        self,
        p: float = -1.0,
        every_s: float = 60.0,
        restart_s: float = 30.0,
        avoid: bool = True,
        growth: int = 2,
        cap: int = 64,
        speeds: str = "fitted",
        population: int = 100,
        generations: int = 100,
        patience: int = 30,
        authors: bool = False,
    ) -> None:
        if speeds not in ("fitted", "profile"):
            raise InputError(f"pollux: speeds must be fitted or profile, is {speeds!r}")
        if not p <= 0:
            raise InputError(f"pollux: p must be at most 0 (0: geometric mean), is {p}")
        least = {"every_s": (every_s, 1.0), "restart_s": (restart_s, 0.0), "growth": (growth, 1), "cap": (cap, 1)}
        least |= {"population": (population, 4), "generations": (generations, 1), "patience": (patience, 1)}
        for name, (value, at_least) in least.items():
            if not at_least <= value < np.inf:
                raise InputError(f"pollux: {name} must be a number ≥ {at_least:g}, is {value}")
        self.p, self.every_s, self.restart_s, self.avoid = p, every_s, restart_s, avoid
        self.growth, self.cap, self.speeds = growth, cap, speeds
        self.population, self.generations, self.authors = population, generations, authors
        self.patience = generations if authors else patience

    def reset(self, context: Context) -> None:
        self._context = context
        self._speedups = Speedups(context, cap=self.cap, growth=self.growth, profiled=self.speeds == "profile")
        self._population = Population(self.population)
        self._decisions = 0
        self._restarts: dict[int, int] = {}
        self._next_s = -np.inf

    def plan(self, view: View) -> Plan:
        if self.authors and view.now < self._next_s - TIME_SLACK_S:
            plan = Plan.keep(view)
            plan.wake_at = self._next_s
            return plan
        self._next_s = (np.floor(view.now / self.every_s + TIME_SLACK_S) + 1.0) * self.every_s
        self._speedups.observe(view)
        plan, reserved = place_small(view, len(self._context.queue_limits))
        problem = Problem.of(
            view,
            self._context,
            self._speedups,
            reserved,
            self._restarts_of(view),
            self.restart_s,
            authors=self.authors,
        )
        seed = self._context.seed * 1_000_003 + self._decisions
        self._decisions += 1
        chosen = self._population.search(
            problem,
            self.p,
            avoid=self.avoid,
            greedy=not self.authors,
            generations=self.generations,
            patience=self.patience,
            seed=seed,
        )
        realise(view, problem, chosen, plan)
        for row in plan.placements:
            if view.jobs.executed_s[row] > 0:
                index = int(view.jobs.index[row])
                self._restarts[index] = self._restarts.get(index, 0) + 1
        plan.wake_at = self._next_s if len(view.jobs) else None
        return plan

    def state(self) -> dict[str, Any]:
        restarts = {str(index): count for index, count in self._restarts.items()}
        known = {"beliefs": self._speedups.state(), "population": self._population.state()}
        return {"decisions": self._decisions, "restarts": restarts, **known}

    def restore(self, state: dict[str, Any]) -> None:
        self._decisions = int(state["decisions"])
        self._restarts = {int(index): int(count) for index, count in state["restarts"].items()}
        self._speedups.restore(state["beliefs"])
        self._population.restore(state["population"])

    def _restarts_of(self, view: View) -> Ints:
        """Return how often each job was restarted, and forget jobs that have left."""
        index = view.jobs.index.tolist()
        self._restarts = {i: self._restarts[i] for i in index if i in self._restarts}
        return np.array([self._restarts.get(i, 0) for i in index], np.int64)
