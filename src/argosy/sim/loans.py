"""Nodes that another cluster lends for a time: how many is its decision, which ones go back is the policy's.

A loan's nodes belong to a queue of their own (the inference cluster's), which keeps them while they are not on loan.
When fewer are lent than before, a policy that answers `reclaim` chooses which go back; otherwise the last ones do.
Elastic jobs then shrink to what they hold elsewhere, if that is enough for them, and all other jobs on these nodes are
suspended, in an orderly way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.errors import PolicyError
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Plan

if TYPE_CHECKING:
    from argosy.sim.engine import Engine

Ints = NDArray[np.int64]
Event = tuple[float, int, int, float]


class Loans:
    """The loans of a cluster: when each changes, and what happens then."""

    def __init__(self, cluster: Cluster, queues: tuple[str, ...]) -> None:
        index = {node.name: i for i, node in enumerate(cluster.nodes)}
        self._loans = cluster.loans
        self._nodes = [np.array([index[name] for name in loan.nodes], np.int64) for loan in cluster.loans]
        self._queue = [queues.index(loan.queue) for loan in cluster.loans]

    def __bool__(self) -> bool:
        return bool(self._loans)

    def take_back_all(self, world: L.World) -> None:
        """Give every node to its owner, before the run begins."""
        for nodes, queue in zip(self._nodes, self._queue):
            world.ni[L.N_OWNER, nodes] = queue

    def steps(self, begin: float, end: float) -> list[Event]:
        """Return the events, from begin until before end, at which the number of nodes on loan changes."""
        events = []
        for number, loan in enumerate(self._loans):
            for step in range(int(np.ceil(begin / loan.step_s)), int(np.ceil(end / loan.step_s))):
                count = loan.counts[step % len(loan.counts)]
                if step == 0 or count != loan.counts[(step - 1) % len(loan.counts)]:
                    events.append((step * loan.step_s, L.EXTERNAL_TICK, 1 + number, float(count)))
        return events

    def change(self, engine: Engine, number: int, count: int) -> list[Event]:
        """Return the events that lend or take back nodes now, so that `count` of this loan are lent."""
        world, nodes = engine.world, self._nodes[number]
        lent = world.ni[L.N_OWNER, nodes] < 0
        more = count - int(lent.sum())
        if more >= 0:
            return [(engine.now, L.EXTERNAL_RELEASE, int(node), 0.0) for node in nodes[~lent][:more]]
        back = self._chosen(engine, nodes[lent], -more)
        _shrink(engine, set(back.tolist()))
        return [(engine.now, L.EXTERNAL_RESERVE, int(node), float(self._queue[number])) for node in back]

    def _chosen(self, engine: Engine, lent: Ints, count: int) -> Ints:
        if "reclaim" not in engine.policy.answers:
            return lent[len(lent) - count :]
        engine.refresh_view()
        back = np.unique(np.asarray(engine.policy.reclaim(engine.view, lent.copy(), count), np.int64))
        if len(back) != count or not np.isin(back, lent).all():
            name, given = engine.policy.name, back.tolist()
            raise PolicyError(f"policy {name!r} gave back nodes {given}, but must give back {count} of {lent.tolist()}")
        return back


def _shrink(engine: Engine, back: set[int]) -> None:
    """Shrink elastic jobs on these nodes to what they hold elsewhere, where a policy sizes them and it suffices."""
    jobs = engine.jobs
    if not (engine.rules.elastic or "plan" in engine.policy.answers):
        return
    plan, present = Plan.keep(engine.view), jobs.present()
    for row in np.flatnonzero(present).tolist():
        if jobs.state[row] != L.RUNNING or jobs.max_gpus[row] <= jobs.min_gpus[row] or jobs.gpus[row] < 1:
            continue
        parts = jobs.parts(row)
        stays = [part for part in parts if part.node not in back]
        left = sum(part.devices.bit_count() for part in stays)
        whole = jobs.peer[row] < 0 and not any(part.servers for part in parts)
        if whole and len(stays) < len(parts) and left >= max(jobs.min_gpus[row], 1):
            gpus = {part.node: part.devices.bit_count() for part in stays}
            plan.run(row, gpus, devices={part.node: part.devices for part in stays})
    if plan.placements:
        engine.carry_out(plan)
