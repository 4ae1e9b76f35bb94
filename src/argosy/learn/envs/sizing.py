"""DL2's incremental sizing: from nothing, one worker, one server or one of both at a time, until the slot is full.

    action 3i: job i +1 worker      3i+1: +1 server      3i+2: +1 of both      3J: no more (for these J jobs)

The first worker of a job is its smallest size. More than J jobs are taken in batches of J by arrival. A row is

    type (one-hot) | slots it has run | slots of work left | dominant share × J | workers / cap | servers / cap

with slots in hundreds, work at the requested size as the run's estimator has it, and the last three as allotted so far
in this slot. What is left in the cluster is no part of it, as in the paper; the mask knows. With `context` a row goes
on, with what the paper leaves out and loads differ in, fixed over a slot:

    slots since its arrival | GPUs there are per job present, up to 32, / 16 | CPUs there are per job, up to 128, / 64

A job with workers and no servers (or the reverse), where it needs both, does not run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from argosy.errors import InputError
from argosy.learn.envs.board import MOST, SCALE, Board
from argosy.policies.base import Floats, Ints, Sizes

COLUMNS, CONTEXT_COLUMNS = 5, 3
RAN, LEFT, SHARE, WORKERS, SERVERS = range(COLUMNS)  # after the types
MOST_GPUS, MOST_CPUS = 32.0, 128.0  # per job


class Sizing(Board):
    """One slot after the other."""

    sizing = True

    def __init__(self, rows: int, types: int, cap: int, *, context: bool = False) -> None:
        super().__init__(rows, types, COLUMNS + CONTEXT_COLUMNS * context, 3, cap)
        self._context = context
        self._share, self._w, self._u = types + SHARE, types + WORKERS, types + SERVERS

    def begin(self) -> bool:
        view = self.host.view
        self._needs = needs = self.demand_reader.read(view, np.argsort(view.jobs.index))
        self._free = self.demand_reader.there(view).tolist()
        self._low, self._high, self._most = needs.low.tolist(), needs.high.tolist(), needs.servers.tolist()
        self._first, self._worker, self._server = (m.T.tolist() for m in (needs.first, needs.worker, needs.server))
        self._weigh = (self.demand_reader.per_share * self.rows).tolist()
        count = len(needs.rows)
        self._workers, self._servers = [0] * count, [0] * count
        self._used = [[0.0, 0.0, 0.0] for _ in range(count)]
        largest = np.maximum(needs.first, needs.worker) + needs.server
        self._largest = largest.max(axis=1, initial=0.0).tolist()  # while that is free, nobody is refused
        self._shown = self._known_columns()
        self._place = {row: k for k, row in enumerate(needs.rows.tolist())}
        self._jobs = view.jobs.index[needs.rows]
        self._steps = [0] * -(-count // self.rows)  # by batch of jobs
        self._goal: tuple[Ints, Ints] | None = None
        return not self._open(0)

    def _known_columns(self) -> dict[int, Floats]:
        """What does not change over the slot, by column."""
        view, rows, types = self.host.view, self._needs.rows, self.types
        jobs, scale = view.jobs, SCALE * self.host.slot_s
        shown = {
            types + RAN: jobs.executed_s[rows] / scale,
            types + LEFT: np.minimum(jobs.expected_left_s[rows] / scale, MOST),
        }
        if self._context:
            gpus, cpus, _ = self._free
            since, each = (view.now - jobs.submitted[rows]) / scale, np.ones(len(rows))
            shown[types + COLUMNS] = since
            shown[types + COLUMNS + 1] = each * (min(gpus / len(rows), MOST_GPUS) / 16)
            shown[types + COLUMNS + 2] = each * (min(cpus / len(rows), MOST_CPUS) / 64)
        return shown

    def _open(self, start: int) -> bool:
        """The batch of jobs from here on that has anything to choose; True if there is none, and the slot is over."""
        while start < len(self._workers):
            self._start, self._turn = start, 0
            stop = min(start + self.rows, len(self._workers))
            self.clear()
            self.show_types(self.observation, self.host.view.jobs.index[self._needs.rows[start:stop]])
            for column, values in self._shown.items():
                self.observation[: stop - start, column] = values[start:stop]
            self._mask_all()
            if self._any:
                return False
            start = stop
        self._answer()
        return True

    def creditor(self) -> Callable[[Floats], list[float]]:
        """For the slot as it is now: from the progress of all jobs since, what each step's batch of jobs has gained."""
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
        i, what = divmod(action, 3)
        k = self._start + i
        used, free, row = self._used[k], self._free, self.observation[i]
        if what != 1:
            workers = self._workers[k]
            need = self._worker[k] if workers else self._first[k]
            for r in (0, 1, 2):
                used[r] += need[r]
                free[r] -= need[r]
            self._workers[k] = workers = workers + 1 if workers else self._low[k]
            row[self._w] = workers / self.cap
        if what != 0:
            need = self._server[k]
            for r in (0, 1, 2):
                used[r] += need[r]
                free[r] -= need[r]
            self._servers[k] = servers = self._servers[k] + 1
            row[self._u] = servers / self.cap
        a, b, c = self._weigh
        row[self._share] = max(used[0] * a, used[1] * b, used[2] * c)
        if free[0] < self._largest[0] or free[1] < self._largest[1] or free[2] < self._largest[2]:
            self._mask_all()
        else:
            self._mask_one(i, k)
        return self._open(self._start + self.rows) if not self._any else False

    def _mask_one(self, i: int, k: int) -> None:
        """What this job may still have, where there is enough of everything."""
        mask, w, u = self.mask, self._workers[k] < self._high[k], self._servers[k] < self._most[k]
        was = mask[3 * i] or mask[3 * i + 1]
        mask[3 * i], mask[3 * i + 1], mask[3 * i + 2] = w, u, w and u
        if was and not (w or u):
            self._any -= 1

    def _mask_all(self) -> None:
        """Everything that a job may still have and that there is."""
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
        self._any = int(np.count_nonzero(table[:, 0] | table[:, 1]))  # jobs that something can be granted

    def _chosen(self) -> tuple[Ints, Ints]:
        """Workers and servers by row of the view."""
        needs, count = self._needs, len(self._workers)
        workers, servers = np.array(self._workers, np.int64), np.array(self._servers, np.int64)
        both = needs.servers > 0
        runs = (workers > 0) & ((servers > 0) | ~both)
        w, u = np.zeros(count, np.int64), np.zeros(count, np.int64)
        w[needs.rows], u[needs.rows] = np.where(runs, workers, 0), np.where(both, servers * runs, needs.fixed)
        return w, u

    def _answer(self) -> None:
        seat = self.host.seat
        assert seat is not None
        workers, servers = self._chosen()
        sizes = Sizes(workers, servers)
        if seat.advised is not None:  # types and places are the other policy's
            sizes = replace(seat.advised, workers=workers, servers=servers)
            self.faithful &= self._is_advised(sizes)
        elif seat.under is not None or seat.planner is not None:  # at other times, or not by size
            self.faithful = False
        self.host.answer(seat.advised_key, sizes)

    # -- towards what another policy would do ------------------------------------------------------------------------

    def _wanted(self) -> tuple[Ints, Ints]:
        if self._goal is None:
            seat, view = self.host.seat, self.host.view
            sizes = None if seat is None else seat.wanted(view, self._needs, self.demand_reader.there(view))
            if sizes is None:
                raise InputError("there is no policy to follow", hint="name one: under='drf:slot_s=1200'")
            assert sizes.servers is not None
            self._goal = sizes.workers, sizes.servers
            granted: list[tuple[int, int, int]] = getattr(seat and seat.under, "granted", [])
            reached = {row: workers for row, workers, _ in granted}
            lead_there = reached == {row: w for row, w in enumerate(sizes.workers.tolist()) if w}
            self._turns = granted if lead_there else None  # those of another slot do not
        return self._goal

    def advice(self) -> int:
        """The unit that the policy would grant next; the end when nobody lacks any.

        A policy that tells its turns (`granted`: row, and the workers and servers that it then has) is followed in
        them, any other by the smallest share of those who lack something.
        """
        wanted, servers = self._wanted()
        if self._turns is not None:
            return self._next_in_turn(self._turns, wanted, servers)
        here = slice(self._start, self._start + self.rows)
        rows, have = self._needs.rows[here], np.array(self._servers[here])
        n = len(rows)
        w = np.array(self._workers[here]) < wanted[rows]
        u = (wanted[rows] > 0) & (have < np.minimum(servers[rows], self._needs.servers[here]))
        action = 3 * np.arange(n) + np.where(w & u, 2, np.where(w, 0, 1))
        share = np.where((w | u) & self.mask[action], self.observation[:n, self._share], np.inf)
        best = int(share.argmin())
        return int(action[best]) if share[best] < np.inf else self.end

    def _next_in_turn(self, granted: list[tuple[int, int, int]], most_workers: Ints, most_servers: Ints) -> int:
        """The first step that is not reached yet and still possible; those before it never come back in this slot.

        A step that takes servers in exchange for workers can not be undone here: nobody gets more than in the end.
        """
        while self._turn < len(granted):
            row, workers, servers = granted[self._turn]
            k = self._place[row]
            if self._start <= k < self._start + self.rows:
                w = self._workers[k] < min(workers, most_workers[row])
                u = self._servers[k] < min(servers, most_servers[row], self._most[k])
                action = 3 * (k - self._start) + (2 if w and u else 0 if w else 1)
                if (w or u) and self.mask[action]:
                    return action
            self._turn += 1
        return self.end

    def _is_advised(self, chosen: Sizes) -> bool:
        workers, servers = self._wanted()
        assert chosen.servers is not None
        return bool((chosen.workers == workers).all() and (chosen.servers == servers)[workers > 0].all())
