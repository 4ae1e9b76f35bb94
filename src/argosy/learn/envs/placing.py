"""Two agents for one decision: the first picks a job, the second the nodes it runs on.

    order   action i: job i is next        J: no more jobs for now, or the other agent acts
    place   action n: node n               N: the other agent acts

A node gives the gang as many GPUs as it has for it; the placement agent names nodes, all of one GPU type, until the
gang is complete, and then it starts. Every job that is offered can be placed completely. Rows of the ordering agent are
those of `argosy.learn.envs.picking`; a row of the placement agent is a node:

    up | GPUs | free GPUs | GPUs it would give | GPUs the gang lacks | taken for it | speed | hours expected | type

with GPUs relative to the largest node, the job's hours in hundreds and the GPU type one-hot. A share of a device is
placed on a node with a whole one free.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.envs.host import Host
from argosy.learn.envs.picking import HOURS_UNIT_S, RUNS, PickingTable
from argosy.mechanism.plan import Plan
from argosy.policies.base import Floats, Ints
from argosy.policies.learned.features import MOST, JobTypes
from argosy.slack import GPU_SLACK

NODE_COLUMNS = 8  # beside the one-hot type


class PlacingTable(PickingTable):
    """The ordering agent picks jobs, and the placement agent names their nodes."""

    def __init__(self, rows: int, types: int, nodes: int, gpu_types: int) -> None:
        super().__init__(rows, types, 1 << 30, joint=False)
        self.nodes = nodes
        self.node_observation = np.zeros((nodes, NODE_COLUMNS + gpu_types), np.float32)
        self.node_mask = np.zeros(nodes + 1, np.bool_)
        self.chosen: int | None = None  # the job to be placed, while the placement agent acts

    def reset(self, host: Host, types: JobTypes) -> None:
        if host.engine.context.ps_kinds:
            hint = "use argosy/Cluster-v0, or a scenario without them"
            raise InputError("jobs with parameter servers cannot be placed node by node", hint=hint)
        super().reset(host, types)
        context = host.engine.context
        self._widest = max(1, int(context.node_gpus.max(initial=0)))
        self._node_types = context.node_types[:, None] == np.arange(len(context.gpu_types))
        self.clear_nodes()

    def clear_nodes(self) -> None:
        self.chosen = None
        self.node_observation.fill(0.0)
        self.node_mask.fill(False)
        self.node_mask[-1] = True

    def _room(self, free: Floats) -> NDArray[np.bool_]:
        """Return which jobs the free parts of nodes of one GPU type can hold completely."""
        jobs, nodes = self.host.view.jobs, self.host.view.nodes
        window = np.flatnonzero(self._here)[: self.rows]
        rows = self._waiting[window]
        gpus = jobs.gpus[rows, None]
        room = np.where(gpus > 0, nodes.free, MOST)
        for there, need in ((nodes.free_cpus, jobs.cpus), (nodes.free_memory_gib, jobs.memory_gib)):
            per_gpu = np.maximum(need[rows, None] / np.maximum(gpus, 1), 1e-9)
            room = np.minimum(room, np.floor(there / per_gpu + GPU_SLACK))
        mine = (nodes.owner < 0) | (nodes.owner == jobs.queue[rows, None])
        accepted = (jobs.types[rows, None] >> nodes.type & 1 > 0) | (gpus == 0)
        self._gives = np.zeros((len(self._waiting), self.nodes), np.int64)
        self._gives[window] = np.where((nodes.state == 0) & mine & accepted, np.maximum(room, 0), 0)
        fits = np.zeros((1, len(self._waiting)), bool)
        fits[0, window] = (self._gives[window] @ self._node_types >= self._workers[0, window, None]).any(axis=1)
        return fits

    def _start(self, job: int, k: int) -> bool:
        """Let the placement agent name the nodes of this job before it starts."""
        self.chosen, self._lacks = job, int(self._workers[0, job])
        self._taken = np.zeros(self.nodes, np.int64)
        self._open = (self._gives[job] @ self._node_types >= self._lacks)[self._type_of()]
        self.clear()
        self._show_nodes()
        return False

    def _type_of(self) -> Ints:
        return np.asarray(self._node_types.argmax(axis=1))

    def _show_nodes(self) -> None:
        assert self.chosen is not None
        view, table = self.host.view, self.node_observation
        nodes, gives = view.nodes, self._gives[self.chosen] * self._open * (self._taken == 0)
        left = float(view.jobs.expected_left_s[self._waiting[self.chosen]]) / HOURS_UNIT_S
        amounts = (nodes.gpus, nodes.free, np.minimum(gives, self._lacks), self._lacks, self._taken)
        table[:, 0] = nodes.state == 0
        for column, amount in enumerate(amounts, 1):
            table[:, column] = np.asarray(amount) / self._widest
        table[:, 6], table[:, 7], table[:, NODE_COLUMNS:] = nodes.speed, min(left, MOST), self._node_types
        self.node_mask[:-1] = gives > 0
        self.node_mask[-1] = False

    def place(self, node: int) -> bool:
        """Take one more node; return True if the gang is complete and no other job can be started."""
        job = self.chosen
        assert job is not None
        count = min(self._lacks, int(self._gives[job, node]))
        self._taken[node] = count
        self._lacks -= count
        self._open &= self._node_types[:, self._node_types[node].argmax()]
        if self._lacks:
            self._show_nodes()
            return False
        engine, row = self.host.engine, int(self._waiting[job])
        plan = Plan.keep(engine.view)
        cpu_only = engine.view.jobs.gpus[row] == 0
        plan.run(row, {int(n): 0 if cpu_only else int(self._taken[n]) for n in np.flatnonzero(self._taken)})
        engine.decide(plan)
        self._here[job], self._counts[row], self._rank[row] = False, self._workers[0, job], RUNS
        self._hold()
        self.clear_nodes()
        return self._show()
