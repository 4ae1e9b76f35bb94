"""Gandiva: jobs start at once where possible and take turns under overload; placements improve while jobs run.

Decision: jobs are placed as they come (five steps, in `placement.py`): on free GPUs of servers with jobs of the
same size, of empty servers, of any servers; if none are free, jobs of one size take turns on the same GPUs, a quantum
each. Under overload two jobs that take turns are packed on the same GPUs as a trial, those that use a GPU least first,
and the pair is kept if both together do more than by taking turns. When GPUs become free, jobs that take turns move
there, then packed ones; jobs that are split over servers are joined, and small ones make room for them; elastic jobs
grow into idle GPUs of their server, and shrink again when another job needs them (`moves.py`).
State used: demands, placements, free devices, waiting and running times, measured speeds, and the utilisation and
memory that a GPU shows while one job has it alone. No durations.
Parameters: `quantum_s`, the length of a turn; `max_height`, how many jobs may take turns on a GPU; `profile_s`, how
long a job is observed alone before it is packed, and how long packed or grown jobs run before the change is judged;
`max_utilisation`, the sum above which a pair is not tried (2: all are); `move_every_s`, the least time between two
moves of a job; `patience_s`, how long a job may wait before no other may overtake it; `pack`, `migrate`, `grow`, to
switch these off.
Differences from the paper: a server's turns are arranged per set of GPUs, so only jobs of one size take turns, and
packed pairs take no turns with others; the height is bounded; no job overtakes one that has waited too long; only
jobs on whole GPUs of one server, without parameter servers, take turns or are packed, the others wait for free GPUs;
an elastic job starts at the size it asks for, and never gets less.
References: Xiao et al., Gandiva: introspective cluster scheduling for deep learning, OSDI'18.

    keep a and b together if rate(a | b) / rate(a) + rate(b | a) / rate(b) > 1
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.mechanism.plan import Plan, Reason, Why
from argosy.perf.footprint import gpu_memory_gib
from argosy.policies.base import Policy, register
from argosy.policies.gandiva import moves
from argosy.policies.gandiva.packing import Packing
from argosy.policies.gandiva.placement import find_crowd, find_free, why_it_waits
from argosy.policies.gandiva.usage import Usage


@register("gandiva", "time slices, packing by trial, migration; no durations needed", "Xiao et al., OSDI'18")
class Gandiva(Policy):
    uses = frozenset({"demand", "service", "placement", "nodes", "rate", "profile"})
    preemptive = True
    keeps_books = True

    def __init__(
        self,
        quantum_s: float = 60.0,
        max_height: int = 2,
        profile_s: float = 60.0,
        max_utilisation: float = 2.0,
        move_every_s: float = 600.0,
        patience_s: float = 3600.0,
        pack: bool = True,
        migrate: bool = True,
        grow: bool = True,
    ) -> None:
        above_0 = {"quantum_s": quantum_s, "profile_s": profile_s}
        from_0 = {"max_utilisation": max_utilisation, "move_every_s": move_every_s, "patience_s": patience_s}
        for name, value in (above_0 | from_0).items():
            if not (value >= 0 and (value > 0 or name in from_0)):
                raise InputError(f"gandiva: {name} must be {'≥' if name in from_0 else '>'} 0, is {value}")
        if max_height < 1:
            raise InputError(f"gandiva: max_height must be ≥ 1, is {max_height}")
        self.quantum_s, self.max_height, self.profile_s = quantum_s, max_height, profile_s
        self.max_utilisation, self.move_every_s, self.patience_s = max_utilisation, move_every_s, patience_s
        self.pack, self.migrate, self.grow = pack, migrate, grow
        if not pack:
            self.uses = self.uses - {"profile"} if grow else self.uses - {"profile", "rate"}

    def reset(self, context: Context) -> None:
        self._context = context
        self._turns: dict[int, tuple[int, int]] = {}  # job → node and devices on which it takes turns
        self._usage: Usage | None = None  # of the last decision; what it says, the view would say, too
        self._moved: dict[int, float] = {}  # job → when
        self._grown: dict[int, tuple[float, float]] = {}  # job → its speed before it grew, and when it grew
        self._stunted: set[int] = set()  # jobs that did not become faster by growing
        memory_gib = [gpu_memory_gib(name) for name in context.gpu_types]
        self._packing = Packing(memory_gib, self.profile_s, self.max_utilisation)

    def plan(self, view: View) -> Plan:
        plan = Plan.keep(view)
        rows = {index: row for row, index in enumerate(view.jobs.index.tolist())}
        self._forget(rows.keys(), view)
        turns = {rows[index]: group for index, group in self._turns.items()}
        usage = Usage(view, self._context, turns, self._packing.pairs_by_row(rows), self._usage)
        self._usage = usage
        self._wake_at = np.inf
        if self.pack:
            self._wake(self._packing.judge(usage, view, rows))
        if self.grow:
            self._judge_growth(usage, view, rows)
        waits, stuck = self._place(usage, plan)
        if self.migrate and not stuck:
            self._move(usage, view.now)
        crowded = bool(usage.shared_groups())
        if self.grow and not waits and not crowded and not usage.pairs:
            self._let_grow(usage, view)
        if self.pack and (waits or crowded):
            self._wake(self._packing.attempt(usage, view))
        usage.write(plan, self.quantum_s)
        self._remember(usage)
        plan.wake_at = self._wake_at if self._wake_at < np.inf else None
        return plan

    def _wake(self, times: Iterable[float]) -> None:
        self._wake_at = min([self._wake_at, *times])

    def _place(self, usage: Usage, plan: Plan) -> tuple[bool, bool]:
        """Place waiting jobs, first come, first served.

        Return whether any job still waits for GPUs, and whether one has waited so long that it gets all free GPUs.
        """
        for row, state in enumerate(usage.state):
            if state != 2:
                continue
            held = usage.held.get(row)
            if held is None or not all(usage.is_open_to(row, node) for node in held.devices):
                if held is not None:
                    usage.remove(row)  # its server no longer accepts it
                usage.changed.add(row)
        rows = [row for row in range(len(usage.state)) if row not in usage.held]
        refused: dict[tuple[Any, ...], Reason] = {}  # by demand: equal jobs are refused without another search
        waits, ahead = False, -1
        for row in sorted(rows, key=usage.index.__getitem__):
            alike = (
                usage.gpus[row],
                usage.types[row],
                usage.queue[row],
                usage.cpu_unit[row],
                usage.memory_unit[row],
                usage.ps[row],
            )
            if ahead >= 0 and usage.size[row]:
                plan.reasons[row] = Reason(Why.BEHIND, f"job {ahead} has waited too long", behind=(ahead,))
                continue
            if alike not in refused:
                if self._start(usage, row):
                    continue
                refused[alike] = why_it_waits(usage, row)
            plan.reasons[row] = refused[alike]
            waits = waits or usage.size[row] > 0
            if usage.size[row] and usage.waited_s[row] > self.patience_s and self._could_run(usage, row):
                ahead = usage.index[row]
        return waits, ahead >= 0

    def _start(self, usage: Usage, row: int) -> bool:
        allocation = find_free(usage, row, may_split=False)
        if allocation is None and usage.gpus[row] >= 1:
            if moves.shrink_for(usage, row):
                allocation = find_free(usage, row, may_split=False)
            if allocation is None:
                allocation = find_free(usage, row, may_split=True)
        if allocation is not None:
            usage.place(row, allocation)
            return True
        group = find_crowd(usage, row, self.max_height)
        if group is not None:
            usage.share_turns(row, *group)
        return group is not None

    def _could_run(self, usage: Usage, row: int) -> bool:
        """Return whether the job would find a place on an empty cluster."""
        there = sum(usage.node_gpus[node] for node in usage.open_to(row))
        return there >= usage.size[row] and usage.may_hold(row, usage.gpus[row])

    def _move(self, usage: Usage, now: float) -> None:
        def may_move(row: int) -> bool:
            again = self._moved.get(usage.index[row], -np.inf) + self.move_every_s
            if again > now:
                self._wake([again])
            return again <= now

        for repair in (moves.relieve, moves.separate, moves.join):
            for row in repair(usage, may_move):
                self._moved[usage.index[row]] = now

    def _let_grow(self, usage: Usage, view: View) -> None:
        rates = view.jobs.measured_rate

        def may_grow(row: int) -> bool:
            index = usage.index[row]
            again = self._moved.get(index, -np.inf) + self.move_every_s
            if index not in self._stunted and again > view.now:
                self._wake([again])
            return index not in self._stunted and again <= view.now

        most = view.jobs.max_gpus.tolist()
        if any(most[row] > usage.size[row] for row in usage.changed if row in usage.held):
            self._wake([view.now + self.profile_s])  # a job first runs at the requested size
        for row in moves.grow(usage, most, may_grow):
            self._moved[usage.index[row]] = view.now
            self._grown[usage.index[row]] = (float(rates[row]), view.now)
            self._wake([view.now + self.profile_s])

    def _judge_growth(self, usage: Usage, view: View, rows: dict[int, int]) -> None:
        """Shrink grown jobs that did not become faster to the size that they asked for."""
        rates = view.jobs.measured_rate
        for index, (before, since) in sorted(self._grown.items()):
            row = rows[index]
            if view.now < since + self.profile_s:
                self._wake([since + self.profile_s])
                continue
            del self._grown[index]
            group = usage.group_of(row)
            if group is not None and group[1].bit_count() > usage.size[row] and rates[row] <= before:
                moves.shrink(usage, row)
                self._stunted.add(index)

    def _forget(self, alive: Iterable[int], view: View) -> None:
        """Forget jobs that have ended, and the turns of jobs that no longer hold anything."""
        here = set(alive)
        idle = set(view.jobs.index[view.jobs.state == 0].tolist())
        self._turns = {job: group for job, group in self._turns.items() if job in here and job not in idle}
        self._moved = {job: when for job, when in self._moved.items() if job in here}
        self._grown = {job: was for job, was in self._grown.items() if job in here and job not in idle}
        self._stunted &= here
        self._packing.forget(here, idle)

    def _remember(self, usage: Usage) -> None:
        paused = [row for row in usage.held if usage.state[row] == 2 and row not in usage.changed]
        crowd = [row for node, devices in usage.shared_groups() for row in usage.groups[node][devices]]
        groups = {row: usage.group_of(row) for row in sorted({*paused, *crowd})}
        self._turns = {usage.index[row]: group for row, group in groups.items() if group is not None}
        self._packing.note(usage)

    def state(self) -> dict[str, Any]:
        return {
            "turns": [[job, *group] for job, group in sorted(self._turns.items())],
            "moved": sorted(self._moved.items()),
            "grown": [[job, *was] for job, was in sorted(self._grown.items())],
            "stunted": sorted(self._stunted),
            "packing": self._packing.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._usage = None
        self._turns = {job: (node, devices) for job, node, devices in state["turns"]}
        self._moved = dict(state["moved"])
        self._grown = {job: (rate, when) for job, rate, when in state["grown"]}
        self._stunted = set(state["stunted"])
        self._packing.restore(state["packing"])
