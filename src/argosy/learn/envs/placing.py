"""Two agents for one decision: the first picks a job, the second the nodes it runs on.

    order   action i: job i is next        J: no more jobs for now, or it is the other agent's turn
    place   action n: node n               N: it is the other agent's turn

A node gives the gang as many of its free GPUs as the gang still needs. The placement agent names nodes, all of one GPU
type, until the gang is complete; then the job starts. Every job that is offered can be placed completely. Rows of the
ordering agent are those of `argosy.learn.envs.picking`; a row of the placement agent is a node:

    up | GPUs | free GPUs | GPUs it would give | GPUs the gang lacks | taken for it | speed | hours expected | type

with GPUs relative to the largest node, the job's hours in hundreds and the GPU type one-hot. The speed is an estimate,
measured through the jobs that ran on the node; 1 where none has shown it. A job that needs a share
of a device is placed on a node with a whole device free.
"""

from __future__ import annotations

import numpy as np

from argosy.errors import InputError
from argosy.learn.envs.host import Host
from argosy.learn.envs.picking import HOURS_UNIT_S, RUNS, PickingTable
from argosy.policies.learned.features import MOST, JobTypes

NODE_COLUMNS = 8  # apart from the one-hot type


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
        from argosy.learn.envs.kernels import node_rows  # imports Numba

        super().reset(host, types)
        self._node_kernels = node_rows
        context = host.engine.context
        self._widest = max(1, int(context.node_gpus.max(initial=0)))
        self._node_types = context.node_types
        self._taken, self._open = np.zeros(self.nodes, np.int64), np.zeros(self.nodes, np.bool_)
        self.clear_nodes()

    def _make_space(self, jobs: int) -> None:
        super()._make_space(jobs)
        self._gives = np.zeros((self._space, self.nodes), np.int64)

    def clear_nodes(self) -> None:
        self.chosen = None
        self.node_observation.fill(0.0)
        self.node_mask.fill(False)
        self.node_mask[-1] = True

    def _show(self) -> bool:
        """Show the jobs that wait now, and which of them the free parts of nodes of one GPU type hold completely."""
        jobs, nodes = self._jobs, self.host.view.nodes
        self._shown, valid = self._node_kernels.show_placeable(
            self._count,
            self.rows,
            self._waiting,
            self._here,
            self._workers,
            MOST,
            jobs.gpus,
            jobs.cpus,
            jobs.memory_gib,
            jobs.queue,
            jobs.types,
            nodes.state,
            nodes.free,
            nodes.free_cpus,
            nodes.free_memory_gib,
            nodes.owner,
            nodes.type,
            self._gang,
            self._gives,
            self._fits,
            self._table,
            self._slack[0],
            self._gpus,
            self._window,
            self.observation,
            self.mask,
        )
        return not valid and self._close()

    def _start(self, job: int, k: int) -> bool:
        """Let the placement agent name the nodes of this job before it starts."""
        self.chosen, self._lacks = job, int(self._workers[0, job])
        self._named = list[tuple[int, int]]()  # nodes, with the GPUs that they give
        self.clear()
        self._show_nodes(begins=True)
        return False

    def _show_nodes(self, *, begins: bool) -> None:
        assert self.chosen is not None
        nodes = self.host.view.nodes
        left = float(self._jobs.expected_left_s[self._waiting[self.chosen]]) / HOURS_UNIT_S
        self._node_kernels.show_nodes(
            begins,
            self.chosen,
            self._lacks,
            min(left, MOST),
            self._widest,
            self._gives,
            self._open,
            self._taken,
            nodes.state,
            nodes.gpus,
            nodes.free,
            nodes.speed,
            self._node_types,
            self._gang,
            NODE_COLUMNS,
            self.node_observation,
            self.node_mask,
        )

    def place(self, node: int) -> bool:
        """Take one more node; return True if the gang is complete and no other job can be started."""
        job = self.chosen
        assert job is not None
        count = min(self._lacks, int(self._gives[job, node]))
        self._taken[node] = count
        self._named.append((node, count))
        self._lacks -= count
        if self._lacks:
            self._open &= self._node_types == self._node_types[node]
            self._show_nodes(begins=False)
            return False
        row = int(self._waiting[job])
        cpu_only = self._jobs.gpus[row] == 0
        self.host.start(row, [(n, 0) for n, _ in self._named] if cpu_only else self._named)
        self._here[job], self._counts[row], self._rank[row] = False, self._workers[0, job], RUNS
        self.host.amend(row, RUNS, self._counts[row], self._helpers[row])
        self.clear_nodes()
        return self._show()
