"""Spotlight's placer for gangs: a trained network chooses the nodes of each job, and any policy orders the jobs.

Decision: jobs are served in the order of the inner policy, and preempted if it preempts. The place of a gang is chosen
in stages: at each stage the network scores every node that has free GPUs, and the best one takes as many of the
remaining tasks as it has GPUs for, until all have a place. Tasks that go to one node are one group, which is what
the papers place. All nodes of a gang have the same GPU type.
State used: demands, placements, free resources, racks, speeds by GPU type and locality, run times (a job that has just
started is not preempted), and whatever the inner policy uses.
Parameters: `inner`, the policy that orders, with its own parameters in braces, e.g.
`spotlight:inner={las:quantum_s=60}`; `weights`, a file or the name of shipped ones; `min_run_s`, how long a job that
has started is not preempted.
Differences from the paper: it places operations of one network on the devices of one job and learns anew for each; this
network is trained once, by the same algorithm (`argosy.learn.placement.gangs`), on random gangs and clusters, and then
only decides. It is rewarded for short steps, and a little for nodes that it leaves full or untouched, because gangs
that come later need those. It places one job at a time, as the paper does. A queue at its limit preempts nobody.
References: Gao et al., Spotlight, ICML'18; Mirhoseini et al., Device placement optimization with reinforcement
learning, ICML'17.

    score(node) = V2 tanh(V1 x(node, stage) + c1) + c2,   node = argmax over the nodes that are possible
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.mechanism.compose import compose
from argosy.mechanism.plan import Plan
from argosy.policies.base import Floats, Ints, register
from argosy.policies.common.scores import one_hidden_layer
from argosy.policies.common.wrapper import Wrapper
from argosy.zoo import Weights, find

NETWORK = "gang-placer"
FEATURES = 12
SHAPES = {"v1": "fk", "c1": "k", "v2": "k", "c2": "o"}
Flags = NDArray[np.bool_]
Matrix = NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class Gang:
    """A gang of `tasks` GPUs, and the nodes that it may have. Arrays are by node."""

    tasks: int
    free: Ints  # GPUs that the gang may have
    gpus: Ints
    type: Ints
    rack: Ints
    speed: Floats  # of the job on this node, at one node's level
    across: tuple[float, float]  # speed over several nodes of a rack, and of several racks, relative to one node

    def start(self) -> Stage:
        """Return the first stage: only GPU types that have room for the whole gang count."""
        there = np.bincount(self.type, self.free)
        open_ = (self.free > 0) & (there[self.type] >= self.tasks)
        return Stage(self, self.tasks, np.zeros(len(self.free), bool), open_, -1, True, np.inf)


@dataclass(slots=True)
class Stage:
    """The state before a group of tasks is placed."""

    gang: Gang
    left: int
    taken: Flags
    open: Flags  # nodes that may be chosen
    rack: int  # of the nodes chosen so far
    one_rack: bool
    slowest: float

    def features(self) -> Matrix:
        """Return a row of numbers for each node."""
        gang, left = self.gang, self.left
        takes = np.minimum(gang.free, left)
        free = np.where(self.open, gang.free, 0)
        in_rack = np.bincount(gang.rack, free)[gang.rack]
        best = max(float(gang.speed[self.open].max(initial=0.0)), 1e-12)
        table = np.empty((len(gang.free), FEATURES), np.float32)
        table[:, 0] = takes / left
        table[:, 1] = gang.free >= left
        table[:, 2] = (gang.free - takes) / gang.gpus.clip(1)
        table[:, 3] = (gang.rack == self.rack) & self.one_rack if self.rack >= 0 else 1.0
        table[:, 4] = in_rack >= left
        table[:, 5] = np.minimum(in_rack / left, 1.0)
        table[:, 6] = gang.speed / best
        table[:, 7] = np.minimum(gang.speed, self.slowest) / best
        table[:, 8] = self.rack < 0
        table[:, 9] = 1.0 - gang.free / gang.gpus.clip(1)
        table[:, 10], table[:, 11] = gang.across
        return table

    def take(self, node: int) -> int:
        """Place the next group on a node; return its number of tasks."""
        gang = self.gang
        count = min(int(gang.free[node]), self.left)
        self.left -= count
        self.taken[node] = True
        self.open = self.open & ~self.taken & (gang.type == gang.type[node])
        rack = int(gang.rack[node])
        self.one_rack = self.one_rack and self.rack in (-1, rack)
        self.rack, self.slowest = rack, min(self.slowest, float(gang.speed[node]))
        return count


@dataclass(frozen=True, eq=False)
class GangPlacer:
    """The trained network: it places a gang, stage by stage."""

    arrays: dict[str, Matrix]

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Return the placer that these weights make; refuse those of another network."""
        hint = "name weights that were trained for spotlight"
        if weights.network != NETWORK:
            what = f"these weights are for a {weights.network!r} network, and a {NETWORK!r} network is needed"
            raise InputError(what, where=weights.source, hint=hint)
        sizes = {"f": FEATURES, "o": 1}
        for name, letters in SHAPES.items():
            array = weights.arrays.get(name)
            fits = array is not None and array.ndim == len(letters)
            if array is None or not fits or any(sizes.setdefault(k, n) != n for k, n in zip(letters, array.shape)):
                raise InputError(f"the weights have no fitting array {name!r}", where=weights.source, hint=hint)
        return cls({name: weights.arrays[name] for name in SHAPES})

    def scores(self, features: Matrix) -> Floats:
        return one_hidden_layer(features, self.arrays)

    def place(self, gang: Gang) -> dict[int, int] | None:
        """Return GPUs by node, or None if no GPU type has room for the gang."""
        stage, chosen = gang.start(), {}
        while stage.left:
            if not stage.open.any():
                return None
            node = int(np.where(stage.open, self.scores(stage.features()), -np.inf).argmax())
            chosen[node] = stage.take(node)
        return chosen


@register("spotlight", "a trained placer chooses each gang's nodes; any policy orders", "Gao et al., ICML'18")
class Spotlight(Wrapper):
    uses = frozenset({"demand", "service", "placement", "nodes", "profile"})

    def __init__(self, inner: str = "las", weights: str | GangPlacer = "spotlight", min_run_s: float = 300.0) -> None:
        self.wrap(inner, takes=("preemptive", "backfill", "every_s"))
        if not min_run_s >= 0:
            raise InputError(f"spotlight: min_run_s must be ≥ 0, is {min_run_s}")
        self.network = GangPlacer.of(find(weights)) if isinstance(weights, str) else weights
        self.min_run_s = min_run_s

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._limits = context.queue_limits

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        young = (jobs.state == 1) & (jobs.started + self.min_run_s > view.now)
        key = self.inner.rank(view)
        plan = compose(
            view,
            key,
            self._place,
            preemptive=self.preemptive,
            backfill=self.backfill,
            limits=self._limits,
            fixed=young if self.preemptive else None,
            fitting=True,
        )
        again = self.inner.wake_at(view)
        if self.preemptive and view.waiting and young.any():
            old_enough = float(jobs.started[young].min()) + self.min_run_s
            again = old_enough if again is None else min(again, old_enough)
        plan.wake_at = again
        return plan

    def _place(self, view: View, row: int, gpus: int, free: Ints) -> dict[int, int] | None:
        jobs, nodes = view.jobs, view.nodes
        kind, reference = int(jobs.kind[row]), max(float(jobs.reference_rate[row]), 1e-12)
        types = np.arange(int(nodes.type.max()) + 1)
        speed = np.asarray(view.profile.rate(kind, types, gpus, 1), np.float64) / reference
        best = max(float(speed.max()), 1e-12)
        wider = [float(np.max(view.profile.rate(kind, types, gpus, level))) / reference / best for level in (2, 3)]
        gang = Gang(gpus, free, nodes.gpus, nodes.type, nodes.rack, speed[nodes.type], (wider[0], wider[1]))
        return self.network.place(gang)
