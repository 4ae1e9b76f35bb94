"""Dual-agent: one agent orders the jobs, the other places each by what it believes about the speeds of machines.

Decision: at each event, and every ten minutes, the ordering agent gives every job a key; jobs are served by increasing
key, with preemption. The placement agent scores the places that a job could have: single nodes, parts of a rack,
several racks. It believes in a speed of each machine, by a Gaussian process over the graph of machines, from the rates
that running jobs show. A running job moves when the belief says that it saves more time elsewhere than the move costs.
State used: demands, service, placements, nodes, profiles, measured rates, work done (and declared), costs of moves,
what became of jobs that have ended. No durations, no estimates, no true speeds.
Parameters: `weights`, a file or the name of shipped ones, `hand` for the rule that training begins with; `belief`:
graph, mean-field (each machine for itself) or off (all machines are alike); `agents`: both, ordering (placement as
rack-aware, no moves) or placement (order as las); `communicate`: whether the agents see what the other has squeezed;
`squeeze`: mean, or attention, where each job weighs machines and jobs by itself (default: as the weights were trained);
`every_s`, how often it decides if nothing happens; `min_run_s`, how long a job runs before it makes way or moves.
Differences from the paper: its text, code and numbers are not public; only that there are two agents trained jointly,
squeeze-and-communicate, and a random-walk Gaussian process is known. All formulas are our reconstruction. Unlike the
reconstruction in algorithms.md, jobs are preempted, and weights are trained by evolution strategies on whole runs.
References: Xing et al., A dual-agent scheduler for distributed deep learning jobs on public cloud, KDD'23.

    key_j = t · f_j + v · k_j,        score(place) = s · φ + w · σ(E φ + F k_j + d)        (see agents.py)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy import zoo
from argosy.cluster.view import Context, Overhead, View
from argosy.errors import InputError
from argosy.mechanism.compose import Walk
from argosy.mechanism.plan import Plan, Reason, Why
from argosy.policies.base import Event, Floats, Policy, register
from argosy.policies.common.influences import Feature, in_words, occluded, seconds, yes_or_no
from argosy.policies.common.remaining_work import RemainingWork
from argosy.policies.common.scores import comparable
from argosy.policies.dual_agent.agents import KIND, SQUEEZES, Agents, first_weights
from argosy.policies.dual_agent.measurements import MachineBelief, nominal_rates
from argosy.policies.dual_agent.placer import Placer
from argosy.policies.dual_agent.places import Machines

BELIEFS = ("graph", "mean-field", "off")
AGENTS = ("both", "ordering", "placement")
PRIOR = 20  # ended jobs that the prior distribution of lengths counts as
UNIT = 0.25  # of the logarithms of times in features
LEAST_GAIN, COST = 0.09, 1.1  # in log speed, and how often its cost a move must save; weights change both
HAND = "hand"
FEATURES = (  # of jobs, in words; as in `agents.JOB`
    Feature("GPU time it has had", seconds, lambda x: 60.0 * float(np.expm1(x / UNIT))),
    Feature("work left", seconds, lambda x: 60.0 * float(np.expm1(x / UNIT))),
    Feature("GPUs", undo=lambda x: float(np.expm1(x / UNIT))),
    Feature("whether it runs", yes_or_no),
    Feature("waiting time", seconds, lambda x: 60.0 * float(np.expm1(x / UNIT))),
    Feature("believed speed of its machines"),
    Feature("time it has run", seconds, lambda x: 60.0 * float(np.expm1(x / UNIT))),
    Feature("preemptions", undo=lambda x: float(np.expm1(x / UNIT))),
)


@register(
    "dual-agent", "two learned agents order and place jobs; machine speeds are believed in", "Xing et al., KDD'23"
)
class DualAgent(Policy):
    """Orders by one network, places by another, and keeps a belief about the machines."""

    uses = frozenset(
        {"demand", "service", "placement", "nodes", "profile", "rate", "progress", "declared", "history", "overhead"}
    )
    preemptive = True

    def __init__(
        self,
        weights: str | Agents = "dual-agent",
        belief: str = "graph",
        agents: str = "both",
        communicate: bool = True,
        squeeze: str = "",
        every_s: float = 600.0,
        min_run_s: float = 300.0,
    ) -> None:
        self.network = weights if isinstance(weights, Agents) else load(weights)
        squeeze = squeeze or self.network.squeeze
        choices = (("belief", belief, BELIEFS), ("agents", agents, AGENTS), ("squeeze", squeeze, SQUEEZES))
        for name, value, allowed in choices:
            if value not in allowed:
                raise InputError(f"dual-agent: {name} must be one of {', '.join(allowed)}, is {value!r}")
        if not 1 <= every_s < np.inf or not 0 <= min_run_s < np.inf:
            raise InputError(f"dual-agent: every_s must be at least 1 and min_run_s at least 0: {every_s}, {min_run_s}")
        self.network = self.network.with_squeeze(squeeze)
        self.belief, self.agents, self.communicate = belief, agents, communicate
        self.every_s, self.min_run_s = every_s, min_run_s

    def reset(self, context: Context) -> None:
        self._context = context
        self._costs = context.costs()
        self._remaining = RemainingWork(PRIOR)
        self.believed: MachineBelief | None = None
        self._restored: dict[str, Any] = {}
        self._seen: tuple[Any, Floats, Floats] | None = None  # jobs, their features and the machines' when ordered

    def plan(self, view: View) -> Plan:
        machines = self._machines(view)
        left = self._remaining.of(view)
        key, message = self._order(view, machines, left)
        placer = self.placement_agent(view, machines, message)
        young = (view.jobs.state == 1) & (view.now - view.jobs.started < self.min_run_s)
        plan = self._walk(view, key, placer, young)
        if self.belief != "off" and self.agents != "ordering":
            self._move(view, plan, placer, key, left, young)
        if len(view.jobs):
            plan.wake_at = float(np.floor(view.now / self.every_s) + 1) * self.every_s
        return plan

    def _walk(self, view: View, key: Floats, placer: Placer, young: NDArray[np.bool_]) -> Plan:
        """Serve jobs by increasing key; a gang is spread further than it needs to only if all else fails."""
        jobs = view.jobs
        walk = Walk(view, placer, None, self._context.queue_limits, young, fitting=True)
        order = [int(row) for row in np.lexsort((jobs.index, key))]
        yields = np.where((jobs.state == 1) & ~young & (jobs.gpus >= 1), jobs.held, 0.0)[order]
        behind = yields.sum() - np.cumsum(yields)  # GPUs that jobs after each hold and may lose
        failed: list[tuple[float, float, int]] = []  # demands that found no place are not tried again
        for position, row in enumerate(order):
            if jobs.state[row] != 0 or row in walk.plan.reasons:
                continue
            asked = (float(jobs.gpus[row]), float(jobs.cpus[row] / max(jobs.gpus[row], 1)), int(jobs.types[row]))
            if any(asked[0] >= g and asked[1] >= c and asked[2] == t and g >= 1 for g, c, t in failed):
                walk.plan.reasons[row] = Reason(Why.OUTRANKED, "better ranked jobs with smaller demands wait")
                continue
            for placer.strict in (True, False):
                if walk.start(row):
                    break
                enough = behind[position] + walk.free.gpus.sum() >= jobs.gpus[row]
                if enough and behind[position] > 0 and walk.make_way(row, order[position + 1 :]):
                    break
            else:
                failed.append(asked)
        return walk.plan

    def _machines(self, view: View) -> Machines:
        nodes = view.nodes
        n = len(nodes)
        mean, deviation = np.zeros(n), np.zeros(n)
        if self.belief != "off":
            if self.believed is None:
                graph = self.belief == "graph"
                self.believed = MachineBelief(nodes.rack.copy(), nodes.type.copy(), graph=graph)
                if self._restored:
                    self.believed.restore(self._restored)
            self.believed.update(view)
            if self.agents != "ordering":
                best = self.believed.best
                mean, deviation = comparable(best.mean), comparable(best.deviation)
        return Machines(nodes.rack, nodes.type, nodes.gpus, mean, deviation)

    def _order(self, view: View, machines: Machines, left: Floats) -> tuple[Floats, Floats]:
        jobs, nodes = view.jobs, view.nodes
        runs = jobs.state == 1
        speed = np.zeros(len(jobs))
        for row in np.flatnonzero(runs).tolist():
            speed[row] = min((machines.mean[part.node] for part in view.placement(row)), default=0.0)
        features = np.stack(
            [
                UNIT * np.log1p(jobs.attained / 60.0),
                UNIT * np.log1p(left / 60.0),
                UNIT * np.log1p(jobs.gpus),
                runs.astype(np.float64),
                UNIT * np.log1p(jobs.waiting_s / 60.0),
                speed,
                UNIT * np.log1p(jobs.executed_s / 60.0),
                UNIT * np.log1p(jobs.preemptions),
            ],
            axis=1,
        )
        racks = np.bincount(machines.rack)
        rack_mean = np.bincount(machines.rack, machines.mean) / np.maximum(racks, 1)
        around = np.stack(
            [
                nodes.free / np.maximum(nodes.gpus, 1),
                machines.mean,
                machines.deviation,
                UNIT * np.log1p(nodes.gpus),
                machines.mean - rack_mean[machines.rack],
            ],
            axis=1,
        )
        key, message = self.order_jobs(features, around)
        self._seen = jobs.index.copy(), features, around
        if not self.communicate:
            message = np.zeros_like(message)
        return (jobs.attained.copy() if self.agents == "placement" else key), message

    def because(self, job: int) -> str:
        if self._seen is None or self.agents == "placement":
            return ""
        index, features, around = self._seen
        rows = np.flatnonzero(index == job)
        if not len(rows) or len(index) < 2:
            return ""
        row, keys = int(rows[0]), []
        for one in np.concatenate([features[row : row + 1], occluded(features, row)]):
            changed = features.copy()
            changed[row] = one
            keys.append(self.network.order(changed, around, self.communicate)[0][row])
        moved = np.array(keys[1:]) - keys[0]  # the smallest key is served first
        return in_words(FEATURES, moved, features[row], features.mean(axis=0), len(index))

    def order_jobs(self, jobs: Floats, machines: Floats) -> tuple[Floats, Floats]:
        """Return the key of each job, and its message to the placement agent; training draws the order instead."""
        return self.network.order(jobs, machines, self.communicate)

    def placement_agent(self, view: View, machines: Machines, message: Floats) -> Placer:
        """Return the placement agent of this decision; training draws places instead."""
        return Placer(view, machines, self.network, message)

    def _move(self, view: View, plan: Plan, placer: Placer, key: Floats, left: Floats, young: Any) -> None:
        """Move running jobs to places that are free after the plan, where that saves more time than it costs."""
        jobs, nodes = view.jobs, view.nodes
        margin, cost = np.array([LEAST_GAIN, COST]) * np.exp(self.network.arrays["r"])
        stays = (jobs.state == 1) & (jobs.gpus >= 1) & (jobs.servers == 0) & (jobs.peer < 0) & ~young
        rows = np.array([row for row in np.flatnonzero(stays).tolist() if row not in plan.stops | set(plan.placements)])
        if not len(rows):
            return
        free = nodes.free.copy()
        spare = np.stack([nodes.free_cpus, nodes.free_memory_gib])
        units = np.stack([jobs.cpus, jobs.memory_gib]) / np.maximum(jobs.gpus, 1)
        for row in plan.stops:
            for part in view.placement(row):
                if part.milli == 1000:
                    free[part.node] += part.devices.bit_count()
        for row, planned in plan.placements.items():
            for node, count in planned.gpus.items():
                free[node] -= count
                spare[:, node] -= (count + planned.servers.get(node, 0)) * units[:, row]
        free = np.maximum(free, 0)
        nominal = nominal_rates(view, rows)
        for k in np.argsort(key[rows], kind="stable").tolist():
            row = int(rows[k])
            here = {part.node: part.devices.bit_count() for part in view.placement(row)}
            speed = min(placer.machines.mean[node] for node in here)
            if free.max(initial=0) < 1 or (placer.machines.mean[free > 0].max(initial=-np.inf) < speed + margin):
                continue
            trial = placer.open_to(row, free)
            gpus = int(jobs.held[row])
            for node, count in here.items():
                if nodes.state[node] == 0:
                    trial[node] += count
            place = placer(view, row, gpus, trial)
            if place is None or place == here:
                continue
            before = np.log(max(nominal[k], 1e-9)) + speed
            after = placer.rate_of(row, place)
            overhead = float(self._costs[jobs.kind[row], Overhead.MIGRATE])
            saved = left[row] * (np.exp(-before) - np.exp(-after))
            if after < before + margin or saved < cost * overhead:
                continue
            more = {node: count - here.get(node, 0) for node, count in place.items()}
            if any(free[n] < c or (spare[:, n] < c * units[:, row]).any() for n, c in more.items() if c > 0):
                continue
            plan.run(row, place)
            for node in set(place) | set(here):
                changed = place.get(node, 0) - here.get(node, 0)
                free[node] -= max(changed, 0)  # what it leaves is free from the next decision on
                spare[:, node] -= max(changed, 0) * units[:, row]

    def on_event(self, event: Event) -> None:
        self._remaining.on_event(event)

    def state(self) -> dict[str, Any]:
        belief = {} if self.believed is None else self.believed.state()
        return self._remaining.state() | {"belief": belief}

    def restore(self, state: dict[str, Any]) -> None:
        self._remaining.restore(state)
        self._restored = dict(state["belief"])


def load(name: str) -> Agents:
    """Read weights by name or from a file; raise InputError if they are for other networks."""
    if name == HAND:
        return Agents(first_weights())
    weights = zoo.find(name)
    if weights.network != KIND:
        hint = f"dual-agent takes weights of the network {KIND!r}: argosy train dual-agent -o mine.safetensors"
        raise InputError(f"these weights are for the network {weights.network!r}", where=weights.source, hint=hint)
    return Agents(weights.arrays, weights.source, str(weights.about.get("squeeze", "mean")))
