"""A tiny real world for a planner: jobs work, end when their work is done, fall; nodes close and come back.

`Reality.run` follows a planner's decisions as a daemon would, and looks at each of them with mistrust.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from argosy.cluster.cluster import Cluster
from argosy.live.backends.base import Placement
from argosy.live.planner.messages import Active, Decision, JobFacts, NodeState, Update
from argosy.live.planner.planner import Planner

HORIZON_S = 1e6


@dataclass
class Real:
    """A job with its true duration and state."""

    facts: JobFacts
    left_s: float  # of work, with as many GPUs as it asked for
    placement: Placement | None = None
    first_start_s: float | None = None
    end_s: float | None = None

    @property
    def rate(self) -> float:
        if self.placement is None or self.placement.paused:
            return 0.0
        gpus = sum(len(part.devices) * part.milli / 1000 for part in self.placement.parts)
        return gpus / self.facts.gpus if self.facts.gpus else 1.0


class Reality:
    def __init__(self, cluster: Cluster, jobs: list[tuple[JobFacts, float]], seed: int = 0) -> None:
        self.cluster, self.now, self.rng = cluster, 0.0, np.random.default_rng(seed)
        self.jobs = {facts.id: Real(facts, work_s) for facts, work_s in jobs}
        self.coming = sorted(self.jobs, key=lambda id: (self.jobs[id].facts.submitted_s, id))
        self.states: dict[str, NodeState] = {node.name: "up" for node in cluster.nodes}
        self.planned: list[tuple[float, str, str]] = []  # what will happen to whom: (time, what, name)
        self.updates = self.falls = 0

    def plan(self, at_s: float, what: str, name: str = "") -> None:
        """Plan an event: `fall` (a running job crashes), or a node's new state."""
        heapq.heappush(self.planned, (at_s, what, name))

    def here(self) -> list[Real]:
        submitted = [j for j in self.jobs.values() if j.facts.submitted_s <= self.now]
        return [j for j in submitted if j.end_s is None]

    def run(self, planner: Planner, each: Callable[[Planner, Decision], Planner] | None = None) -> None:
        """Run until all jobs have ended; `each` is called after every decision and may replace the planner."""
        wake: float | None = None
        while self.coming or self.here():
            times = [self.jobs[self.coming[0]].facts.submitted_s] if self.coming else []
            times += [self.now + j.left_s / j.rate for j in self.here() if j.rate > 0]
            times += [self.planned[0][0]] if self.planned else []
            times += [] if wake is None else [wake]
            assert times and min(times) < HORIZON_S, f"nothing ever happens, and {len(self.here())} jobs are left"
            decision = planner.update(self.step(min(times)))
            self.updates += 1
            assert not decision.refused
            assert decision.wake_at_s is None or decision.wake_at_s > self.now
            self.follow(decision)
            wake = decision.wake_at_s
            if each is not None:
                planner = each(planner, decision)

    def step(self, to: float) -> Update:
        """Let time pass, and report what happened."""
        for job in self.here():
            job.left_s -= job.rate * (to - self.now)
        self.now = to
        ended = {j.facts.id: "completed" for j in self.here() if j.left_s <= 1e-6}
        for id in ended:
            self.jobs[id].end_s, self.jobs[id].placement = to, None
        stopped, nodes = [], {}
        while self.planned and self.planned[0][0] <= to:
            _, what, name = heapq.heappop(self.planned)
            if what == "fall":
                running = [j for j in self.here() if j.placement is not None]
                victims = [running[int(self.rng.integers(len(running)))]] if running else []
            else:
                nodes[name] = self.states[name] = what
                lost = [j for j in self.here() if j.placement and name in {p.node for p in j.placement.parts}]
                victims = lost if what == "down" else []
            for job in victims:
                self.falls += 1
                job.placement = None
                stopped.append(job.facts.id)
        arrived = []
        while self.coming and self.jobs[self.coming[0]].facts.submitted_s <= to:
            arrived.append(Active(self.jobs[self.coming.pop(0)].facts))
        return Update(to, tuple(arrived), ended, tuple(stopped), nodes)  # type: ignore[arg-type]

    def follow(self, decision: Decision) -> None:
        """Carry out the decision, where it is possible."""
        here = {j.facts.id: j for j in self.here()}
        assert set(decision.running) <= set(here), "somebody who is not there should run"
        for id, job in here.items():
            placement = decision.running.get(id)
            if placement is not None and (job.placement is None or job.placement.parts != placement.parts):
                self.check_start(job, placement)
            if placement is not None and not placement.paused and job.first_start_s is None:
                job.first_start_s = self.now
            job.placement = placement
        self.check_devices()
        self.check_limits()

    def check_start(self, job: Real, placement: Placement) -> None:
        facts, nodes = job.facts, {node.name: node for node in self.cluster.nodes}
        before = {part.node for part in job.placement.parts} if job.placement else set()
        for part in placement.parts:
            assert part.node in before or self.states[part.node] == "up", f"{part.node} is {self.states[part.node]}"
            assert all(0 <= d < nodes[part.node].gpus for d in part.devices)
        gpus = sum(len(part.devices) for part in placement.parts)
        if facts.gpus >= 1:
            assert (facts.min_gpus or facts.gpus) <= gpus <= (facts.max_gpus or facts.gpus)
        else:
            assert gpus == np.ceil(facts.gpus)

    def check_devices(self) -> None:
        held: dict[tuple[str, int], int] = {}
        for job in self.here():
            if job.placement is not None and not job.placement.paused:
                for part in job.placement.parts:
                    assert part.milli == 1000 or not (job.facts.exclusive and job.facts.gpus >= 1), "it must not share"
                    for device in part.devices:
                        held[part.node, device] = held.get((part.node, device), 0) + part.milli
        assert all(milli <= 1000 for milli in held.values()), held

    def check_limits(self) -> None:
        for queue in self.cluster.queues:
            if queue.limit_gpus is not None:
                mine = [
                    j for j in self.here() if j.facts.queue == queue.name and j.placement and not j.placement.paused
                ]
                held = sum(
                    len(p.devices) * p.milli / 1000 for j in mine for p in (j.placement.parts if j.placement else ())
                )
                assert held <= queue.limit_gpus + 1e-9
