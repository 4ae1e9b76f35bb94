"""The simulator's engine with another clock: time is told, and so is what becomes of jobs and nodes.

Jobs come in batches of columns; their indices never change. The policy, the mechanism and all accounts are those of the
simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import Losses
from argosy.explain.pending import ExplainedEngine
from argosy.live.planner.guard import allowed
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Plan
from argosy.mechanism.world import Floats, Ints, drop_narrow_types, impossible
from argosy.policies.base import Policy, Sizes
from argosy.sim.engine import CHORES, Engine
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

NOBODY = np.zeros((0, 3), np.int64)
WINDOW = 10  # epochs over which a loss must still fall, as in the simulator's curves
LEAST_FALL = 0.01  # of its first value: what counts as converged where a job does not say
GUESSED_EPOCHS = 20.0  # what a policy that reads losses expects where there are none


# faults, speeds and ends are real; what is expected of a job is written into its row
REAL: dict[str, Any] = {"oversized": "skip", "estimator": "oracle", "node_mtbf_h": None, "job_mtbf_h": None,
                        "drifting": False, "until_s": np.inf}  # fmt: skip


class Roll:
    """What is asked of a trace once it runs: how its jobs are called."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @property
    def frame(self) -> dict[str, list[str]]:
        return {"job_id": self.names}

    def __len__(self) -> int:
        return len(self.names)


class LiveEngine(ExplainedEngine):
    """An engine without an end, to which jobs may be added."""

    def __init__(self, kinds: Trace, cluster: Cluster, policy: Policy, settings: Settings, jobs: int) -> None:
        """Made for the kinds of jobs in a trace; indices below `jobs` are taken by jobs that are not there."""
        self.given = {}
        super().__init__(kinds, cluster, policy, replace(settings, **REAL), watch=_nothing_to_do)
        self.tables = self._tables
        self.roll = Roll()
        self.roll.names += [""] * jobs
        self.trace = cast(Trace, self.roll)
        self.protected: dict[int, float] = {}  # index → how long after a start it may not be stopped
        self.exclusive: set[int] = set()  # indices that are never packed with others
        self.losses: dict[int, dict[float, float]] = {}  # index → epoch → loss
        self.world.si[L.JOBS] = self.world.si[L.NEXT_JOB] = jobs
        room = 2 * jobs + 1024
        rs = np.zeros((L.RS_ROWS, room))
        rs[L.R_FIRST_START] = rs[L.R_FINISH] = np.nan
        rs[L.R_STATUS] = L.UNFINISHED
        so = np.full(room, -1, np.int64)
        self.world = self.world._replace(tr=np.zeros((L.TR_ROWS, room)), so=so, rs=rs)
        self._never_strict = np.zeros(room, bool)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def hopeless(self, rows: Floats) -> NDArray[np.bool_]:
        """Which of these jobs could not even run on the empty cluster."""
        alone = self.world._replace(tr=rows)
        drop_narrow_types(alone)
        bad = np.zeros(rows.shape[1], bool)
        bad[impossible(alone, self.settings.consolidation == "strict")] = True
        return bad

    def append(self, rows: Floats, names: Sequence[str]) -> int:
        """Jobs arrive; returns the index of the first."""
        first, n = len(self.roll), rows.shape[1]
        self.roll.names += names
        self.world.si[L.JOBS] = first + n
        self.write(np.arange(first, first + n), rows)
        self.tell([(L.TOLD_CAME, 0, 0)])
        return first

    def write(self, index: Ints, rows: Floats) -> None:
        """Write jobs into the trace, from which arrivals are copied."""
        n = len(index)
        self._make_room_for(len(self.roll))
        w = self.world
        alone = w._replace(tr=rows)
        drop_narrow_types(alone)
        never = np.zeros(n, bool)
        never[impossible(alone, True)] = True
        self._never_strict[index] = never
        if "place" in self.policy.answers and self.settings.placer == "policy":
            codes = np.asarray(self.policy.place(self._view_of(rows, index)))
            rows[L.STATIC_F + L.WANT_PLACE] = self._possible_places(codes, index)
        w.tr[:, index] = rows
        w.sf[L.MIN_CPU_UNIT] = min(w.sf[L.MIN_CPU_UNIT], rows[L.CPU_UNIT].min(initial=np.inf))
        w.sf[L.MIN_MEM_UNIT] = min(w.sf[L.MIN_MEM_UNIT], rows[L.MEM_UNIT].min(initial=np.inf))
        w.si[L.SHARES] |= int(((rows[L.GPUS] > 0) & (rows[L.GPUS] < 1)).any())
        while w.si[L.ACTIVE] + n >= self.world.jf.shape[1] - 1:
            self._grow_jobs()
        self._make_room(n)

    def seat(self, index: Ints) -> None:
        """Give jobs of the trace slots, in this order, as if they had all just arrived; nobody may be there yet."""
        w, n = self.world, len(index)
        w.jf[:, :n], w.ji[:, :n] = 0.0, 0
        w.jf[: L.STATIC_F, :n] = w.tr[: L.STATIC_F, index]
        w.ji[: L.STATIC_I, :n] = w.tr[L.STATIC_F :, index]
        for row in (L.LEFT, L.SAFE_LEFT, L.NOW_LEFT):
            w.jf[row, :n] = w.jf[L.WORK, :n]
        w.jf[L.NOW_EXPECTED_LEFT, :n] = w.jf[L.EXPECTED, :n]
        w.jf[L.WAIT_SINCE, :n] = w.jf[L.SUBMIT, :n]
        for row in (L.HEAD, L.FORMER, L.PEER, L.GROUP, L.WANT_TYPES):
            w.ji[row, :n] = -1
        w.ji[L.ID, :n] = index
        w.ji[L.WANT, :n] = np.maximum(w.jf[L.GPUS, :n], 1.0)
        w.ji[L.WANT_PS, :n] = w.ji[L.WANT_PS_ASKED, :n]
        w.so[index] = np.arange(n)
        w.si[L.ACTIVE] = n

    def _make_room_for(self, jobs: int) -> None:
        w, room = self.world, self.world.tr.shape[1]
        if jobs <= room:
            return
        more = ((0, 0), (0, 2 * jobs - room))
        rs = np.pad(w.rs, more)
        rs[:, room:] = rs[:, -1:]
        rs[L.R_FIRST_START, room:] = rs[L.R_FINISH, room:] = np.nan
        rs[L.R_STATUS, room:] = L.UNFINISHED
        so = np.pad(w.so, more[1:], constant_values=-1)
        self.world = w._replace(tr=np.pad(w.tr, more), so=so, rs=rs)
        self._never_strict = np.pad(self._never_strict, more[1:])

    # -- time ----------------------------------------------------------------------------------------------------

    def pass_until(self, now: float) -> None:
        """Let time pass. `is_asking` says whether the policy must then be asked."""
        self.world.sf[L.UNTIL] = max(now, self.now)
        while (code := self.kernel(L.OP_PASS)) != L.DONE:
            CHORES[code](self)

    def tell(self, news: Iterable[tuple[int, int, int]]) -> None:
        """Rows of (what, job or node, value), as `argosy.mechanism.kernels.live.told` takes them."""
        rows = np.array(list(news), np.int64).reshape(-1, 3)
        if len(rows):
            self._make_room()
            self.kernel(L.OP_TOLD, rows)

    @property
    def is_asking(self) -> bool:
        return bool(self.world.si[L.DIRTY])

    def answer(self) -> int:
        """Ask the policy and carry out what it says; its time in nanoseconds."""
        self._make_room()
        self._refresh_view()
        self.ask()
        self._forget_what_was_told()
        self.kernel(L.OP_ADMIT)
        if self.world.si[L.BAD_KEY]:
            self._refuse_key(int(self.world.si[L.BAD_KEY]) - 1)
        self.world.si[L.DIRTY] = 0
        return self._decision_ns.pop()

    def decide(
        self, decision: Floats | Plan, sizes: Sizes | None = None, wake_at: float | None = None
    ) -> None:
        if isinstance(decision, Plan):
            decision = allowed(self, decision, self.protected, self.exclusive)
        super().decide(decision, sizes, wake_at)

    def next_at(self) -> float:
        """When something happens by itself, or the policy wants to be asked; inf if never."""
        w = self.world
        heap = w.hp[: w.si[L.HEAP_N]]
        turns = heap[heap[:, L.H_KIND] == L.DUE_SLICE]
        current = w.gq[turns[:, L.H_JOB].astype(np.int64), L.G_GEN] == turns[:, L.H_GEN]
        i = int(w.si[L.EX_NEXT])
        outside = float(w.ex[L.X_TIME, i]) if i < w.si[L.EX_N] else np.inf
        return min(float(w.sf[L.WAKE]), float(turns[current, L.H_TIME].min(initial=np.inf)), outside)

    def _make_room(self, newcomers: int = 0) -> None:
        """For more rows in the log and on the heap than one decision can add."""
        w = self.world
        busy = 4 * (int(w.si[L.ACTIVE]) + newcomers) + 3 * self.cluster.total_gpus + 64
        while w.si[L.LOG_N] + 2 * busy > len(self.world.lg):
            self._grow_log()
        if w.si[L.HEAP_N] + busy > len(w.hp):
            self._grow_heap()
            if w.si[L.HEAP_N] + busy > len(self.world.hp):
                more = np.zeros((2 * busy, L.HP_FIELDS))
                self.world = self.world._replace(hp=np.vstack([self.world.hp, more]))

    def _forget_what_was_told(self) -> None:
        """The log is for policies that listen; what they have heard may go."""
        w = self.world
        upto = self._told if self._listens else int(w.si[L.LOG_N])
        rest = w.lg[upto : w.si[L.LOG_N]].copy()
        w.lg[: len(rest)] = rest
        w.si[L.LOG_N], self._told = len(rest), 0

    def hear(self, rows: Floats) -> None:
        """The log holds these rows and no others, for a policy that listens to hear when it is next asked."""
        self.world.si[L.LOG_N] = self._told = 0
        while len(rows) > len(self.world.lg):
            self._grow_log()
        self.world.lg[: len(rows)] = rows
        self.world.si[L.LOG_N] = len(rows)

    # -- what jobs report ----------------------------------------------------------------------------------------

    def losses_of(self, row: int) -> Losses:
        """What the job has reported; where that is nothing, an epoch is a part of what it is expected to take."""
        w = self.world
        reported = self.losses.get(int(w.ji[L.ID, row]), {})
        work, progress = float(w.jf[L.WORK, row]), float(w.jf[L.NOW_PROGRESS, row])
        epochs = np.array(sorted(reported))
        losses = np.array([reported[e] for e in epochs])
        in_all = float(epochs[-1]) / progress if len(epochs) and progress > 0 else GUESSED_EPOCHS
        fall = LEAST_FALL * float(abs(losses[0])) if len(losses) else LEAST_FALL
        return Losses(epochs, losses, fall, WINDOW, work / in_all)


def _nothing_to_do(_: Engine) -> None:
    """An engine that is watched takes no short-cuts past its policy."""

