"""The modes "pick" and "joint": which job starts next, and in the joint mode at which size.

    action K·i + k: start job i at its k-th size      K·J: no more jobs for now

Rows are the J jobs that have waited longest. "pick" has one size, the requested one; "joint" has the job's smallest,
then twice that and so on up to its largest, with as many servers as workers for elastic jobs that have servers. A pick
is carried out at once: the next observation shows what is free after it. A size that cannot be placed, and the
job's larger ones, are not offered again in the same decision. Running jobs go on as they are. A row is

    type (one-hot) | hours waited | hours expected | dominant share requested | GPUs free | jobs waiting / J

with hours in hundreds and GPUs as a share of all.
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import JobState
from argosy.errors import InputError
from argosy.learn.envs.action_table import ActionTable
from argosy.learn.envs.host import Host
from argosy.policies.learned.features import MOST, JobTypes
from argosy.slack import GPU_SLACK

COLUMNS = 5  # after the types
HOURS_UNIT_S = 100 * 3600.0  # the unit of hours in observations: 100 hours
ASK_AGAIN_S = 1200.0  # when to ask again if no job runs and none was started
RUNS, CHOSEN, WAITS = 0.0, 0.5, 1.0  # ranks
UNKNOWN = -2  # a job whose type has not been found yet
WAITING = int(JobState.WAITING)


class PickingTable(ActionTable):
    """Starts one job after the other."""

    _space = 0  # jobs for which the arrays below have room

    def __init__(self, rows: int, types: int, cap: int, *, joint: bool) -> None:
        super().__init__(rows, types, COLUMNS, cap.bit_length() if joint else 1, cap)
        self._joint = joint
        self._window = np.zeros(rows, np.int64)  # the waiting job of each row
        self._free = np.zeros(3)

    def reset(self, host: Host, types: JobTypes) -> None:
        from argosy.learn.envs.kernels import waiting_rows  # imports Numba

        super().reset(host, types)
        self._kernels = waiting_rows
        nodes = host.view.nodes  # its columns are the engine's own arrays for the whole run
        self._there = (nodes.state, nodes.free, nodes.free_cpus, nodes.free_memory_gib)
        context, reader = host.engine.context, self.demand_reader
        self._gpus = max(1.0, float(reader.capacity[0]))
        self._slack, self._per_share = GPU_SLACK * reader.capacity, reader.per_share
        known = types.of_trace if types.of_trace is not None else np.full(len(host.trace), -1, np.int64)
        self._type_of = np.where(known >= 0, known, UNKNOWN)  # by the index of the job
        self._gang = np.zeros(len(context.gpu_types), np.int64)
        self._shapes, self._nodes = np.zeros((0, 5)), b""
        self._jobs, self._count = host.engine.full_columns, 0

    def _make_space(self, jobs: int) -> None:
        """Make the arrays that kernels write to: of all jobs of the view, and of those that wait ([size, job])."""
        self._space = space = 2 * jobs
        choices = self.choices
        self._counts, self._helpers = np.zeros((2, space), np.int64)
        self._rank = np.zeros(space)
        self._waiting = np.zeros(space, np.int64)  # rows of the view, in order of arrival
        self._here = np.zeros(space, np.bool_)  # still waiting
        self._workers, self._servers = np.zeros((2, choices, space), np.int64)
        self._possible, self._fits = np.zeros((2, choices, space), np.bool_)
        self._need = np.zeros((choices, space, 3))
        self._table = np.zeros((space, self.types + COLUMNS), np.float32)

    def begin(self) -> bool:
        host, view = self.host, self.host.view
        self._jobs = jobs = host.engine.full_columns
        n = len(view.jobs)
        if n > self._space:
            self._make_space(n)
        self._count = self._kernels.find_waiting(
            n,
            jobs.state,
            jobs.index,
            jobs.min_gpus if self._joint else jobs.gpus,
            jobs.held,
            jobs.servers,
            view.running,
            view.free_gpus,
            self._waiting,
            self._counts,
            self._helpers,
            self._rank,
        )
        if not self._count:
            return False  # the environment policy has answered: running jobs go on, and no other can start
        self._started: tuple[int, float, int, int] | None = None  # the last pick, as it is held from the next one on
        self._hold()
        if self._joint:
            self._look_at_nodes()
        if not self._offer():
            rows = self._waiting[: self._count]
            self._type_of[jobs.index[rows]] = self._types.of(view, rows)
            self._offer()
        return not self._show()

    def _offer(self) -> bool:
        """Set the sizes of waiting jobs and what they show; return False if the type of a job is not known yet."""
        jobs = self._jobs
        return bool(
            self._kernels.offer_sizes(
                self._waiting,
                self._count,
                self._joint,
                self.cap,
                self.host.view.now,
                HOURS_UNIT_S,
                MOST,
                self._per_share,
                self._shapes,
                self._gang,
                jobs.index,
                jobs.submitted,
                jobs.expected_left_s,
                jobs.gpus,
                jobs.cpus,
                jobs.memory_gib,
                jobs.min_gpus,
                jobs.max_gpus,
                jobs.ps,
                jobs.ps_kind,
                jobs.types,
                self._type_of,
                self.types,
                self._workers,
                self._servers,
                self._possible,
                self._need,
                self._table,
                self._here,
            )
        )

    def _look_at_nodes(self) -> None:
        """Count nodes of one shape together; shapes change only when nodes fail or come back."""
        nodes = self.host.view.nodes
        seen = nodes.state.tobytes()
        if seen != self._nodes:
            up = (nodes.state == 0) & (nodes.gpus > 0)
            rows = np.stack([nodes.type, nodes.gpus, nodes.cpus, nodes.memory_gib], axis=1)[up]
            shapes, counts = np.unique(rows, axis=0, return_counts=True)
            self._nodes, self._shapes = seen, np.column_stack([shapes, counts]).astype(np.float64)

    def _hold(self, wake_at: float | None = None) -> None:
        """Tell the engine to start only jobs that were picked."""
        n = len(self.host.view.jobs)
        self.host.amend(slice(n), self._rank[:n], self._counts[:n], self._helpers[:n], wake_at)

    def _show(self) -> bool:
        """Show the jobs that wait now, and what might fit; return True if none of them can be started."""
        self._shown, valid = self._kernels.show_fitting(
            self._count,
            *self._there,
            self._slack,
            self._need,
            self._possible,
            self._here,
            self._free,
            self._fits,
            self._table,
            self._gpus,
            self._window,
            self.observation,
            self.mask,
        )
        return not valid and self._close()

    def act(self, action: int) -> bool:
        if action == self.end:
            return self._close()
        i, k = divmod(action, self.choices)
        return self._start(int(self._window[i]), k)

    def _start(self, job: int, k: int) -> bool:
        """Start this job and no other; no time passes."""
        host, row = self.host, int(self._waiting[job])
        workers, servers = int(self._workers[k, job]), int(self._servers[k, job])
        if self._started is not None:
            host.amend(*self._started)
        host.amend(row, CHOSEN, workers, servers)
        host.apply()
        if self._jobs.state[row] == WAITING:
            self._possible[k:, job] = False
            host.amend(row, WAITS, 0, int(self._helpers[row]))
        else:
            self._counts[row], self._helpers[row], self._rank[row] = workers, servers, RUNS
            self._here[job] = False
            self._started = row, RUNS, workers, servers
        return self._show()

    def _close(self) -> bool:
        """End the decision; if no job runs and none was started, set a timer, or no event might ever follow."""
        engine = self.host.engine
        if not engine.running and self._here[: self._count].any():
            self._hold(engine.now + ASK_AGAIN_S)
        return True

    def advice(self) -> int:
        """Return the first job that fits, in the order of the policy under the learner."""
        env_policy = self.host.env_policy
        assert env_policy is not None
        waiting = self._waiting[: self._count]
        for job in np.lexsort((np.arange(len(waiting)), env_policy.advised_key[waiting])).tolist():
            if not self._here[job]:
                continue
            asked = max(1, int(np.ceil(self.host.view.jobs.gpus[waiting[job]])))
            sizes = np.flatnonzero(self._workers[:, job] == asked)
            if not len(sizes):
                raise InputError(f"a job requests {asked} GPUs, which this mode does not offer", hint="use mode='pick'")
            if self._fits[sizes[0], job]:
                place = int(np.searchsorted(self._window[: self._shown], job))
                if place >= self._shown:
                    wait = self._here[: self._count].sum()
                    what = f"{wait} jobs wait, and the next one to start is not among the {self.rows} shown"
                    raise InputError(what, hint="make the environment with more rows (jobs=)")
                return place * self.choices + int(sizes[0])
            if not env_policy.backfill:
                break
        return self.end
