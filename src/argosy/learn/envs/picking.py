"""The modes "pick" and "joint": which job starts next, and in the joint mode at which size.

    action K·i + k: start job i at its k-th size      K·J: no more jobs for now

Rows are the J jobs that have waited longest. "pick" has one size, the one asked for; "joint" has the job's smallest,
then twice that and so on up to its largest, with as many servers as workers for elastic jobs that have servers. A pick
is carried out at once: the next observation shows what is free after it. A job that finds no room is not offered again
before something happens. Running jobs go on as they are. A row is

    type (one-hot) | hours waited | hours expected | dominant share asked for | GPUs free | jobs waiting / J

with hours in hundreds and GPUs as a share of all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import JobState
from argosy.errors import InputError
from argosy.learn.envs.action_table import ActionTable
from argosy.learn.envs.host import Host
from argosy.policies.base import Floats, Ints, Sizes
from argosy.policies.common.demands import NO_GPU, Demands
from argosy.policies.common.sizes import current_sizes
from argosy.policies.learned.features import MOST, JobTypes, show_types

COLUMNS = 5  # after the types
HOURS_UNIT_S = 100 * 3600.0  # hours in hundreds
ASK_AGAIN_S = 1200.0  # if no job runs and none was started
RUNS, CHOSEN, WAITS = 0.0, 0.5, 1.0  # ranks


class PickingTable(ActionTable):
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
        """Set which sizes there are [size, job], with how many servers, and what they take [resource, size, job]."""
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
        """Return which sizes of which jobs might fit, by the cluster's totals."""
        return np.asarray((self._need <= free[:, None, None]).all(axis=0))

    def act(self, action: int) -> bool:
        if action == self.end:
            return self._close()
        i, k = divmod(action, self.choices)
        return self._start(int(self._window[i]), k)

    def _start(self, job: int, k: int) -> bool:
        """Start this job, and leave the rest as it is; no time passes."""
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
        """End the decision; if no job runs and none was started, ask again later, or nothing might ever happen."""
        engine = self.host.engine
        if self._here.any() and not engine.running:
            self._hold(engine.now + ASK_AGAIN_S)
        return True

    def advice(self) -> int:
        """Return the first job that fits, in the order of the policy under the learner."""
        env_policy = self.host.env_policy
        assert env_policy is not None
        for job in np.lexsort((np.arange(len(self._waiting)), env_policy.advised_key[self._waiting])).tolist():
            if not self._here[job]:
                continue
            asked = max(1, int(np.ceil(self.host.view.jobs.gpus[self._waiting[job]])))
            sizes = np.flatnonzero(self._workers[:, job] == asked)
            if not len(sizes):
                raise InputError(f"a job requests {asked} GPUs, which this mode does not offer", hint="use mode='pick'")
            if self._fits[sizes[0], job]:
                place = int(np.searchsorted(self._window, job))
                if place >= len(self._window):
                    hint = "make the environment with more rows (jobs=)"
                    raise InputError(f"{self._here.sum()} jobs wait, and the next one is beyond the window", hint=hint)
                return place * self.choices + int(sizes[0])
            if not env_policy.backfill:
                break
        return self.end
