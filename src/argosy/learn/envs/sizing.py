"""DL2's incremental sizing: each step grants one worker, one server or both, until the time slot is full.

    action 3i: job i +1 worker      3i+1: +1 server      3i+2: +1 of both      3J: end (for these J jobs)

A job begins with nothing; its first grant of a worker gives it its smallest size. More than J jobs are taken in batches
of J, by arrival. Rows are the features of the learned policies (`argosy.policies.learned.features`); the work left is
that of the run's estimator. As in the paper, rows do not show what is free in the cluster, but the mask takes it into
account. With a policy's rules (`argosy.policies.learned.rules`) some jobs are served before the learner is asked, and
the mask forbids what a policy with these rules does not do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.learn.envs.action_table import ActionTable
from argosy.learn.envs.host import Host
from argosy.policies.base import Floats, Ints, Sizes
from argosy.policies.common.time_slots import slot_at
from argosy.policies.learned.features import COLUMNS, CONTEXT, SERVERS, SHARE, WORKERS, JobFeatures, JobTypes
from argosy.policies.learned.kernels.constants import BOTH, KINDS, SERVER, WORKER
from argosy.policies.learned.rules import GrantRules, JobMemory, granted_sizes


class SizingTable(ActionTable):
    """Divides the cluster among the jobs, one time slot after the other."""

    sizing = True

    def __init__(
        self, rows: int, types: int, cap: int, *, context: bool = False, rules: GrantRules | None = None
    ) -> None:
        super().__init__(rows, types, COLUMNS + CONTEXT * context, KINDS, cap)
        self.rules = rules or GrantRules()
        self.newcomers = self.rules.newcomers
        self._share, self._w, self._u = types + SHARE, types + WORKERS, types + SERVERS

    def reset(self, host: Host, types: JobTypes) -> None:
        super().reset(host, types)
        self._memory = JobMemory()

    def begin(self) -> bool:
        view = self.host.view
        self._needs = needs = self.demand_reader.read(view, np.argsort(view.jobs.index))
        there = self.demand_reader.there(view)
        self._free = there.tolist()
        self._low, self._high, self._most = needs.low.tolist(), needs.high.tolist(), needs.servers.tolist()
        self._first, self._worker, self._server = (m.T.tolist() for m in (needs.first, needs.worker, needs.server))
        self._weigh = (self.demand_reader.per_share * self.rows).tolist()
        count = len(needs.rows)
        self._workers, self._servers = [0] * count, [0] * count
        self._used = [[0.0, 0.0, 0.0] for _ in range(count)]
        largest = np.maximum(needs.first, needs.worker) + needs.server
        self._largest = largest.max(axis=1, initial=0.0).tolist()  # while this much is free, any grant fits
        self._place = {row: k for k, row in enumerate(needs.rows.tolist())}
        self._jobs = view.jobs.index[needs.rows]
        self._features = JobFeatures.of(view, needs.rows, self._types.of(view, needs.rows), self.host.slot_s, there)
        self._steps = [0] * -(-count // self.rows)  # the number of steps for each batch of jobs
        self._goal: tuple[Ints, Ints] | None = None
        self._first_grant, self._served = [count] * count, 0  # how many jobs were served before each
        self._slot = slot_at(view.now, self.host.slot_s)
        for k in np.flatnonzero(self.rules.served_first(needs, self._memory.waited(self._jobs, self._slot))).tolist():
            self._take_smallest(k)
        return not self._open(0)

    def _take_smallest(self, k: int) -> None:
        """Grant a job its smallest size, if there is room."""
        need = [a + b * (self._most[k] > 0) for a, b in zip(self._first[k], self._server[k])]
        if all(amount <= free for amount, free in zip(need, self._free)):
            self._take(k, BOTH if self._most[k] else WORKER)

    def _open(self, start: int) -> bool:
        """Show the next batch of jobs with something to grant; if there is none, answer and return True."""
        while start < len(self._workers):
            self._start, self._followed = start, 0
            stop = min(start + self.rows, len(self._workers))
            self.clear()
            self._features.write(self.observation, self.types, slice(start, stop))
            for k in range(start, stop if self._served else start):
                self._show_grants(k)
            self._mask_all()
            if self._any:
                return False
            start = stop
        self._answer()
        return True

    def creditor(self) -> Callable[[Floats], list[float]]:
        """Return a function from the progress of all jobs to the credit of each step: its batch's progress."""
        jobs, steps, rows = self._jobs, self._steps, self.rows

        def credit(gained: Floats) -> list[float]:
            shares = np.add.reduceat(gained[jobs], np.arange(0, len(jobs), rows))
            found: list[float] = np.repeat(shares, steps).tolist()
            return found

        return credit

    def act(self, action: int) -> bool:
        self._steps[self._start // self.rows] += 1
        if action == self.end:
            return self._open(self._start + self.rows)
        i, what = divmod(action, KINDS)
        k, free = self._start + i, self._free
        self._take(k, what)
        self._show_grants(k)
        scarce = free[0] < self._largest[0] or free[1] < self._largest[1] or free[2] < self._largest[2]
        if scarce or self.rules.score_floor:
            self._mask_all()
        else:
            self._mask_one(i, k)
        return self._open(self._start + self.rows) if not self._any else False

    def _take(self, k: int, what: int) -> None:
        """Grant a unit: the same arithmetic as `argosy.policies.learned.kernels.units.take`."""
        used, free = self._used[k], self._free
        if what != SERVER:
            workers = self._workers[k]
            need = self._worker[k] if workers else self._first[k]
            for r in (0, 1, 2):
                used[r] += need[r]
                free[r] -= need[r]
            self._workers[k] = workers + 1 if workers else self._low[k]
        if what != WORKER:
            need = self._server[k]
            for r in (0, 1, 2):
                used[r] += need[r]
                free[r] -= need[r]
            self._servers[k] += 1
        if self._first_grant[k] == len(self._first_grant):
            self._first_grant[k] = self._served
            self._served += 1

    def _show_grants(self, k: int) -> None:
        """Update the columns of a job's row that change within a time slot."""
        row, used, (a, b, c) = self.observation[k - self._start], self._used[k], self._weigh
        row[self._w], row[self._u] = self._workers[k] / self.cap, self._servers[k] / self.cap
        row[self._share] = max(used[0] * a, used[1] * b, used[2] * c)

    def _mask_one(self, i: int, k: int) -> None:
        """Update the mask of this job, when so much is free that any grant fits."""
        mask, w, u = self.mask, self._workers[k] < self._high[k], self._servers[k] < self._most[k]
        was = mask[3 * i] or mask[3 * i + 1]
        mask[3 * i], mask[3 * i + 1], mask[3 * i + 2] = w, u, w and u
        if was and not (w or u):
            self._any -= 1

    def _mask_all(self) -> None:
        """Update the mask of all jobs of the batch: what each may still be granted, and whether it fits."""
        needs, here = self._needs, slice(self._start, self._start + self.rows)
        workers, servers = np.array(self._workers[here]), np.array(self._servers[here])
        free = np.array(self._free)[:, None]
        worker = np.where(workers > 0, needs.worker[:, here], needs.first[:, here])
        server = needs.server[:, here]
        w, u = workers < needs.high[here], servers < needs.servers[here]
        table = self.mask[:-1].reshape(-1, 3)[: len(workers)]
        table[:, 0] = w & (worker <= free).all(axis=0)
        table[:, 1] = u & (server <= free).all(axis=0)
        table[:, 2] = w & u & (worker + server <= free).all(axis=0)
        if self.rules.score_floor:
            self._keep_floor(table, workers)
        self._any = int(np.count_nonzero(table.any(axis=1)))  # jobs to which something can be granted

    def _keep_floor(self, table: NDArray[np.bool_], workers: Ints) -> None:
        """Allow only its smallest size for a job without workers, and no end while such a job can be granted it."""
        here = slice(self._start, self._start + self.rows)
        idle, both = workers == 0, self._needs.servers[here] > 0
        table[idle & both, :BOTH] = False
        table[idle & ~both, SERVER:] = False
        self.mask[-1] = not table[idle].any()

    def _answer(self) -> None:
        env_policy, view = self.host.env_policy, self.host.view
        assert env_policy is not None
        workers, servers = np.array(self._workers, np.int64), np.array(self._servers, np.int64)
        sizes = granted_sizes(self._needs, workers, servers, len(view.jobs))
        self._memory.remember(view.jobs.index, self._slot, sizes)
        if env_policy.advised is not None:  # GPU types and places come from the policy under the learner
            sizes = replace(env_policy.advised, workers=sizes.workers, servers=sizes.servers)
            self.faithful &= self._is_advised(sizes)
        elif env_policy.under is not None or env_policy.planner is not None:  # decides at other times, or not by size
            self.faithful = False
        order = np.array(self._first_grant, np.int64)
        self.host.answer(self.rules.placing_order(env_policy.advised_key, self._needs.rows, order), sizes)

    # -- following another policy ------------------------------------------------------------------------------------

    def _wanted(self) -> tuple[Ints, Ints]:
        if self._goal is None:
            env_policy, view = self.host.env_policy, self.host.view
            sizes = None if env_policy is None else env_policy.wanted(view, self._needs, self.demand_reader.there(view))
            if sizes is None:
                raise InputError("there is no policy to follow", hint="name one: under='drf:slot_s=1200'")
            assert sizes.servers is not None
            self._goal = sizes.workers, sizes.servers
            granted: list[tuple[int, int, int]] = getattr(env_policy and env_policy.under, "granted", [])
            reached = {row: workers for row, workers, _ in granted}
            lead_there = reached == {row: w for row, w in enumerate(sizes.workers.tolist()) if w}
            self._granted = granted if lead_there else None  # grants of another time slot do not lead to these sizes
        return self._goal

    def advice(self) -> int:
        """Return the grant that the policy would make next, or the end when no job lacks anything.

        If a policy lists its grants (`granted`: row, and the workers and servers that it has after the grant), their
        order is followed; otherwise, of the jobs that lack something, the one with the smallest share goes first.
        """
        wanted, servers = self._wanted()
        if self._granted is not None:
            return self._next_granted(self._granted, wanted, servers)
        here = slice(self._start, self._start + self.rows)
        rows, have = self._needs.rows[here], np.array(self._servers[here])
        n = len(rows)
        w = np.array(self._workers[here]) < wanted[rows]
        u = (wanted[rows] > 0) & (have < np.minimum(servers[rows], self._needs.servers[here]))
        action = 3 * np.arange(n) + np.where(w & u, 2, np.where(w, 0, 1))
        share = np.where((w | u) & self.mask[action], self.observation[:n, self._share], np.inf)
        best = int(share.argmin())
        return int(action[best]) if share[best] < np.inf else self.end

    def _next_granted(self, granted: list[tuple[int, int, int]], most_workers: Ints, most_servers: Ints) -> int:
        """Return the first grant that is not made yet and still possible; earlier ones do not become possible again.

        A policy may take back workers or servers between its grants. This mode cannot, so no job is granted more than
        it has in the end.
        """
        while self._followed < len(granted):
            row, workers, servers = granted[self._followed]
            k = self._place[row]
            if self._start <= k < self._start + self.rows:
                w = self._workers[k] < min(workers, most_workers[row])
                u = self._servers[k] < min(servers, most_servers[row], self._most[k])
                action = 3 * (k - self._start) + (2 if w and u else 0 if w else 1)
                if (w or u) and self.mask[action]:
                    return action
            self._followed += 1
        return self.end

    def _is_advised(self, chosen: Sizes) -> bool:
        workers, servers = self._wanted()
        assert chosen.servers is not None
        return bool((chosen.workers == workers).all() and (chosen.servers == servers)[workers > 0].all())
