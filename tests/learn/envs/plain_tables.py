"""The tables of waiting jobs and of nodes in plain NumPy: the specification of the compiled ones.

They do the same as `argosy.learn.envs.picking` and `argosy.learn.envs.placing`, step by step and without kernels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import JobState
from argosy.errors import InputError
from argosy.learn.envs.action_table import ActionTable
from argosy.learn.envs.host import Host
from argosy.learn.envs.picking import ASK_AGAIN_S, CHOSEN, COLUMNS, HOURS_UNIT_S, RUNS, WAITS
from argosy.learn.envs.placing import NODE_COLUMNS
from argosy.mechanism.plan import Plan
from argosy.policies.base import Floats, Ints, Sizes
from argosy.policies.common.demands import NO_GPU, Demands
from argosy.policies.common.sizes import current_sizes
from argosy.policies.learned.features import MOST, JobTypes, show_types
from argosy.slack import GPU_SLACK


class PlainPickingTable(ActionTable):
    """Starts one job after the other."""

    def __init__(self, rows: int, types: int, cap: int, *, joint: bool) -> None:
        super().__init__(rows, types, COLUMNS, cap.bit_length() if joint else 1, cap)
        self._joint = joint

    def reset(self, host: Host, types: JobTypes) -> None:
        super().reset(host, types)
        self._gpus = max(1.0, float(self.demand_reader.capacity[0]))

    def begin(self) -> bool:
        view = self.host.view
        jobs = view.jobs
        waiting = np.flatnonzero(jobs.state == JobState.WAITING)
        if not len(waiting) or self._is_full(waiting):
            return False  # the environment policy has answered: running jobs go on, and no other can start
        self._waiting = waiting = waiting[np.argsort(jobs.index[waiting])]
        kept = current_sizes(view)
        assert kept.servers is not None
        self._counts, self._helpers = kept.workers.copy(), kept.servers.copy()
        self._rank = np.where(self._counts == 0, WAITS, RUNS)
        self._hold()
        self._offer(self.demand_reader.read(view, waiting))
        self._table = self._rows()
        self._here = np.ones(len(waiting), bool)  # still waiting
        return not self._show()

    def _is_full(self, waiting: Ints) -> bool:
        """Return whether all waiting jobs need more whole devices than are free."""
        view = self.host.view
        least = float((view.jobs.min_gpus if self._joint else view.jobs.gpus)[waiting].min())
        return view.running > 0 and least >= 1 and least > view.free_gpus

    def _offer(self, needs: Demands) -> None:
        """Set the sizes [size, job], their numbers of servers, and what they need [resource, size, job]."""
        jobs = self.host.view.jobs
        gpus = jobs.gpus[self._waiting]
        asked = np.maximum(np.ceil(gpus), 1).astype(np.int64)
        if self._joint:
            sizes = needs.low << np.arange(self.choices)[:, None]
            self._workers = np.minimum(sizes, needs.high)
            self._possible = np.ones(sizes.shape, bool)
            self._possible[1:] = sizes[:-1] < needs.high
            servers = self._workers
        else:
            self._workers, self._possible = asked[None, :], np.ones((1, len(asked)), bool)
            servers = jobs.ps[self._waiting][None, :]
        self._servers = np.where(needs.servers > 0, servers, needs.fixed)
        worker = np.where(gpus >= 1, needs.worker, needs.worker * NO_GPU)
        self._need = worker[:, None, :] * self._workers + needs.server[:, None, :] * self._servers

    def _rows(self) -> NDArray[np.float32]:
        """Return the columns of the waiting jobs that do not change during the decision."""
        view, waiting, types = self.host.view, self._waiting, self.types
        table = np.zeros((len(waiting), types + COLUMNS), np.float32)
        show_types(table, self._types.of(view, waiting))
        table[:, types] = (view.now - view.jobs.submitted[waiting]) / HOURS_UNIT_S
        table[:, types + 1] = np.minimum(view.jobs.expected_left_s[waiting] / HOURS_UNIT_S, MOST)
        table[:, types + 2] = (self._need[:, 0] * self.demand_reader.per_share[:, None]).max(axis=0)
        return table

    def _hold(self, wake_at: float | None = None) -> None:
        """Tell the engine to start only jobs that were picked."""
        self.host.answer(self._rank, Sizes(self._counts, self._helpers), wake_at)

    def _show(self) -> bool:
        """Show the jobs that wait now; return True if none of them can be started."""
        free = self.demand_reader.free(self.host.view)
        here = np.flatnonzero(self._here)
        self._window = window = here[: self.rows]
        self._fits = self._possible & self._here & self._room(free)
        n, seen = len(window), self.observation
        seen[:n], seen[n:] = self._table[window], 0.0
        seen[:n, -2], seen[:n, -1] = free[0] / self._gpus, len(here) / self.rows
        self.mask[:-1] = False
        self.mask[: n * self.choices] = self._fits[:, window].T.reshape(-1)
        return not self.mask[:-1].any() and self._close()

    def _room(self, free: Floats) -> NDArray[np.bool_]:
        """Return which sizes of which jobs might fit, judged by the cluster's totals."""
        return np.asarray((self._need <= free[:, None, None]).all(axis=0))

    def act(self, action: int) -> bool:
        if action == self.end:
            return self._close()
        i, k = divmod(action, self.choices)
        return self._start(int(self._window[i]), k)

    def _start(self, job: int, k: int) -> bool:
        """Start this job and no other; no time passes."""
        row = int(self._waiting[job])
        before = self._helpers[row]
        self._counts[row], self._helpers[row] = self._workers[k, job], self._servers[k, job]
        self._rank[row] = CHOSEN
        self._hold()
        self.host.apply()
        if self.host.engine.jobs.state[row] == JobState.WAITING:
            self._counts[row], self._helpers[row], self._rank[row] = 0, before, WAITS
            self._possible[k:, job] = False
            self._hold()
        else:
            self._here[job], self._rank[row] = False, RUNS
        return self._show()

    def _close(self) -> bool:
        """End the decision; if no job runs and none was started, set a timer, or no event might ever follow."""
        engine = self.host.engine
        if self._here.any() and not engine.running:
            self._hold(engine.now + ASK_AGAIN_S)
        return True


class PlainPlacingTable(PlainPickingTable):
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
