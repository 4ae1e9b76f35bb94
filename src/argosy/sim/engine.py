"""The simulator: a world, a clock and a policy.

`Engine` goes from decision to decision: `advance()` lets time pass until the policy must be asked, `decide()` carries
out what it says. `run()` does both until nothing is left; an environment for learning calls them one by one.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NoReturn, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import (
    JOB_COLUMNS,
    NODE_COLUMNS,
    Columns,
    Context,
    Footprint,
    Losses,
    Part,
    Profile,
    View,
)
from argosy.errors import InputError, InvalidPlan, PolicyError, TraceError
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Plan
from argosy.mechanism.world import PLACERS, build, classify, drop_narrow_types, impossible, spread_out
from argosy.perf import footprint
from argosy.perf.convergence import Curves
from argosy.perf.overhead import Overheads
from argosy.perf.rate_tables import compile_tables
from argosy.policies.base import Event, Place, Policy, Sizes
from argosy.sim.jobs import JobTable
from argosy.sim.outside import Outside
from argosy.sim.planner import PlanWriter
from argosy.sim.result import EventKind, Result
from argosy.sim.results import collect
from argosy.sim.settings import Settings
from argosy.workload.estimate import Oracle, make_estimator
from argosy.workload.trace import Trace

MAX_STATIC_CLASSES = 256
PATIENCE = 2_000_000  # events without any job finishing after which a run is taken to be endless
LOOK_UP_EVERY = 4096  # decisions between two looks at how the run goes on
PLACE_CODES = [Place.AS_USUAL, *(p + s for p in range(len(PLACERS)) for s in (0, Place.STRICT))]
NO_PLAN = np.zeros((0, 5), np.int64)
Progress = Callable[[int, int, float], None]  # jobs finished, jobs in all, simulated time

NODE_ROWS_F = {
    "free_cpus": L.CPU_FREE, "free_memory_gib": L.MEM_FREE, "cpus": L.CPU_TOTAL, "memory_gib": L.MEM_TOTAL,
    "speed": L.SPEED,
}  # fmt: skip
NODE_ROWS_I = {
    "gpus": L.N_GPUS, "free": L.N_FREE, "type": L.N_TYPE, "rack": L.N_RACK,
    "state": L.N_STATE, "owner": L.N_OWNER,
}  # fmt: skip


class Engine:
    """One run in the making."""

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        policy: Policy,
        settings: Settings | None = None,
        *,
        cancels: Mapping[str, float] | None = None,
        watch: Callable[[Engine], None] | None = None,
    ) -> None:
        """`cancels`: when which job is cancelled. `watch` is called after every decision, before time moves on."""
        from argosy.mechanism.kernels.doors import enter  # imports Numba: late, so that `argosy --help` is quick

        self._enter, self._watch = enter, watch
        self.trace, self.cluster, self.policy = trace, cluster, policy
        self.settings = settings = settings or Settings()
        tables = compile_tables(
            trace.frame, cluster, model=settings.perf, reference_type=settings.reference_type,  # type: ignore[arg-type]
            locality=settings.locality, ps_speeds=settings.ps_speeds,
        )  # fmt: skip
        frame = trace.frame.with_columns(duration_s=pl.Series(tables.work_s))
        self._tables = tables
        self._estimator = make_estimator(settings.estimator, Trace(frame, trace.name), settings.seed)
        expected = np.zeros(len(trace))
        if self._estimator.timeless:
            nothing = np.zeros(0, np.int64)
            expected = unknown_last(self._estimator.estimate(np.arange(len(trace)), 0.0, nothing, np.zeros(0)))
        overheads = Overheads.of(settings.overheads)
        self.world, self.names = build(
            frame, cluster, tables, expected, overheads, seed=settings.seed, strict=settings.consolidation == "strict"
        )
        drop_narrow_types(self.world)
        self._configure(settings, policy)
        self._refuse_impossible()
        self._outside = Outside(self.world, cluster, settings, self.names.queues, trace, cancels or {})
        self.world = self._outside.world
        self._told = 0  # log rows that the policy has heard of
        self._estimated_upto = 0
        self._logged = 0  # log rows when last looked up
        self._progress = (0, 0)  # jobs finished, and log rows when that number last changed
        self._decision_ns: list[int] = []
        self._final: Result | None = None
        self.context = self._make_context()
        policy.reset(self.context)
        itself = cast(Engine, weakref.proxy(self))  # no cycles: an engine goes, with its matrices, when nobody needs it
        self.jobs = JobTable(itself)
        self._parts, self._losses = lambda row: itself.parts_of(row), lambda row: itself.losses_of(row)
        self.view = self._make_view()
        self._writer = PlanWriter(itself)
        self._elastic, self._plans = "size" in policy.answers, "plan" in policy.answers
        self._wakes, self._listens = "wake_at" in policy.answers, "on_event" in policy.answers
        self._learns = not self._estimator.timeless and "estimate" in policy.uses
        if "place" in policy.answers and settings.placer == "policy":
            self._place_all()
        self._keyed = bool(policy.key) and not (
            "rank" in policy.answers or self._elastic or self._plans or self._wakes or self._listens or self._learns
            or watch is not None
        )  # fmt: skip
        self.static = self._prepare_static()

    # -- set-up ----------------------------------------------------------------------------------------------

    def _configure(self, settings: Settings, policy: Policy) -> None:
        sf, si = self.world.sf, self.world.si
        sf[L.MIN_RUN], sf[L.UNTIL] = settings.min_run_s, settings.until_s
        faults = settings.node_mtbf_h is not None or settings.job_mtbf_h is not None
        sf[L.CHECKPOINT_EVERY] = settings.checkpoint_every_s if faults and settings.checkpoint_every_s else np.inf
        if settings.job_mtbf_h is not None:
            sf[L.CRASH_PER_S] = 1.0 / (settings.job_mtbf_h * 3600.0)
        si[L.PREEMPTIVE], si[L.BACKFILL] = policy.preemptive, policy.backfill
        si[L.EAGER] = policy.eager and self._watch is None
        si[L.KEY_ROW], sf[L.ASK_EVERY] = -1, policy.every_s
        placer = policy.placer if settings.placer == "policy" else settings.placer
        if placer not in PLACERS:
            raise PolicyError(f"policy {policy.name!r}: unknown placer {placer!r}; there are {', '.join(PLACERS)}")
        si[L.PLACER] = PLACERS[placer]
        si[L.MAX_PREEMPTIONS], si[L.MAX_CRASHES] = settings.max_preemptions, settings.max_retries
        si[L.HOT] = settings.hot_resize
        si[L.ORACLE] = isinstance(self._estimator, Oracle)
        bits = {"service": L.D_SERVICE, "duration": L.D_LEFT, "progress": L.D_PROGRESS, "loss": L.D_PROGRESS,
                "estimate": L.D_EXPECTED}  # fmt: skip
        for name in policy.uses & bits.keys():
            si[L.DERIVE] |= bits[name]
        si[L.ELASTIC] = "size" in policy.answers

    def _refuse_impossible(self) -> None:
        """Jobs that can never run are an error, or refused and counted."""
        world, frame = self.world, self.trace.frame
        bad = impossible(world, self.settings.consolidation == "strict")
        if not len(bad):
            return
        if self.settings.oversized == "fail":
            row = int(bad[0])
            more = f" (and {len(bad) - 1} more such jobs)" if len(bad) > 1 else ""
            raise TraceError(
                f"job {frame['job_id'][row]!r} asks for {frame['gpus'][row]:g} GPUs"
                f" ({world.tr[L.CPUS, row]:g} CPUs, {world.tr[L.MEMORY, row]:g} GiB) and can never run on"
                f" {self.cluster.name!r} with its {self.cluster.total_gpus} GPUs{more}",
                hint="use a larger cluster, or --oversized skip to leave such jobs out",
            )
        world.rs[L.R_STATUS, bad] = L.ENDED_REFUSED

    def _make_context(self) -> Context:
        ni, nf = self.world.ni, self.world.nf
        weights = {q.name: q.weight for q in self.cluster.queues}
        return Context(
            gpu_types=self._tables.gpu_types,
            queues=self.names.queues,
            queue_weights=np.array([weights.get(q, 1.0) for q in self.names.queues]),
            queue_limits=self.world.qu[L.Q_LIMIT].copy(),
            node_gpus=ni[L.N_GPUS].copy(),
            node_types=ni[L.N_TYPE].copy(),
            total_cpus=float(nf[L.CPU_TOTAL].sum()),
            total_memory_gib=float(nf[L.MEM_TOTAL].sum()),
            seed=self.settings.seed,
            kinds=self._tables.class_names,
            ps_kinds=self._tables.ps_names,
            gpu_prices=self._gpu_prices(),
        )

    def _gpu_prices(self) -> tuple[float, ...]:
        """What one GPU of each type costs per hour; nothing unless all nodes have a price."""
        prices = []
        for gpu_type in self._tables.gpu_types:
            nodes = [n for n in self.cluster.nodes if n.gpu_type == gpu_type and n.gpus]
            known = [n.price_per_hour for n in nodes if n.price_per_hour is not None]
            if not nodes or len(known) < len(nodes):
                return ()
            prices.append(sum(known) / sum(n.gpus for n in nodes))
        return tuple(prices)

    def _job_rows(self, jf: NDArray[Any], ji: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {n: jf[r] for n, r in L.COLUMNS_F.items()} | {n: ji[r] for n, r in L.COLUMNS_I.items()}

    def _make_view(self) -> View:
        w, policy = self.world, self.policy
        node_rows = {n: w.nf[r] for n, r in NODE_ROWS_F.items()} | {n: w.ni[r] for n, r in NODE_ROWS_I.items()}
        nodes = Columns(node_rows, NODE_COLUMNS, policy.uses, policy.name)
        nodes.refresh(len(self.cluster.nodes))
        profile = None
        if "profile" in policy.uses:
            utilisation, memory_gib = footprint.of([c.model for c in self._tables.classes])
            profile = Profile(w.rt, w.ps, w.pr, Footprint(utilisation, memory_gib))
        jobs = Columns(self._job_rows(w.jf, w.ji), JOB_COLUMNS, policy.uses, policy.name)
        return View(jobs, nodes, policy.uses, profile, self._parts, self._losses)

    def _prepare_static(self) -> bool:
        """Use the fast path for fixed keys where nothing needs the slow one."""
        w, policy = self.world, self.policy
        w.si[L.STATIC] = 0
        blocked = (
            not policy.static or policy.preemptive or self._elastic or self._plans or self._wakes or self._listens
            or self._learns or self._outside.disturbs or w.si[L.QUOTAS]
            or np.isfinite(w.qu[L.Q_LIMIT]).any() or self._watch is not None
        )
        if blocked:
            return False
        tr = w.tr
        demand = np.stack([tr[L.GPUS], tr[L.CPU_UNIT], tr[L.MEM_UNIT], tr[L.STATIC_F + L.TYPES],
                           tr[L.STATIC_F + L.WANT_PS_ASKED], tr[L.STATIC_F + L.WANT_PLACE], tr[L.STATIC_F + L.CLASS]])
        if len(self._tables.gpu_types) == 1:
            demand[-1] = 0.0  # with one GPU type, the class has no say in placement
        inverse, representatives = classify(demand)
        classes = len(representatives)
        if classes > MAX_STATIC_CLASSES:
            return False
        keys = self._keys_at_arrival()
        if np.isnan(keys).any():
            self._refuse_key(int(np.isnan(keys).argmax()))
        order = np.argsort(keys, kind="stable")
        wk = np.zeros((L.WK_ROWS, max(w.wk.shape[1], len(self.trace))), np.int64)
        wk[L.W_CLASS, : len(inverse)] = inverse
        wk[L.W_RANKED, : len(order)] = order
        wk[L.W_RANK, order] = np.arange(len(order))
        sizes = np.bincount(inverse, minlength=classes)
        wk[L.W_OFFSET, :classes] = np.cumsum(sizes) - sizes
        self.world = w._replace(wk=wk)
        w.si[L.STATIC], w.si[L.CLASSES], w.si[L.EAGER] = 1, classes, 0
        return True

    def _keys_at_arrival(self) -> NDArray[np.float64]:
        """Rank all jobs of the trace at once, each as it will be when it arrives."""
        return check_key(self.policy.rank(self._view_of_all()), len(self.trace), self.policy)

    def _place_all(self) -> None:
        """How each job of the trace is to be placed."""
        everybody = np.arange(len(self.trace))
        codes = self._possible_places(np.asarray(self.policy.place(self._view_of_all())), everybody)
        self.world.tr[L.STATIC_F + L.WANT_PLACE] = codes

    def _possible_places(self, codes: NDArray[np.int64], jobs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Checked codes for these jobs; one that can not be placed strictly at all does not wait for that."""
        if codes.shape != jobs.shape or not np.isin(codes, PLACE_CODES).all():
            raise PolicyError(f"policy {self.policy.name!r}: {codes!r} are no places for {len(jobs)} jobs")
        strict = (codes >= 0) & (codes & Place.STRICT > 0)
        if not strict.any():
            return codes
        self.world.si[L.PLACES] = 1
        return np.where(strict & self._never_strict[jobs], codes & ~Place.STRICT, codes)

    @cached_property
    def _never_strict(self) -> NDArray[np.bool_]:
        never = np.zeros(len(self.trace), bool)
        never[impossible(self.world, True)] = True
        return never

    def _view_of_all(self) -> View:
        """All jobs of the trace at once, each as it will be when it arrives."""
        return self._view_of(self.world.tr, np.arange(len(self.trace)))

    def _view_of(self, tr: NDArray[np.float64], index: NDArray[np.int64]) -> View:
        """The jobs in the columns of `tr`, whose indices are given."""
        policy, n = self.policy, tr.shape[1]
        zeros, izeros = np.zeros(n), np.zeros(n, np.int64)
        rows: dict[str, NDArray[Any]] = {}
        for name, r in L.COLUMNS_F.items():
            rows[name] = tr[r] if r < L.STATIC_F else zeros
        rows["remaining_s"], rows["expected_left_s"] = tr[L.WORK], tr[L.EXPECTED]
        for name, r in L.COLUMNS_I.items():
            rows[name] = tr[L.STATIC_F + r].astype(np.int64) if r < L.STATIC_I else izeros
        rows["index"] = index
        jobs = Columns(rows, JOB_COLUMNS, policy.uses, policy.name)
        jobs.refresh(n)
        return View(jobs, self.view.nodes, policy.uses, self.view._profile, self._parts, self._losses)

    # -- what the host does for the kernels --------------------------------------------------------------------

    def _tick(self) -> None:
        self._outside.tick()
        self.kernel(L.OP_REPRICE)

    def _refill(self) -> None:
        self._check_that_it_will_end()
        self.world = self._outside.refill(self.world)

    def _check_that_it_will_end(self) -> None:
        """Where faults destroy work faster than it is done, simulated time would go on for ever."""
        finished, logged = int(self.world.si[L.FINISHED]), int(self.world.si[L.LOG_N])
        if finished != self._progress[0]:
            self._progress = (finished, logged)
        elif logged - self._progress[1] > PATIENCE:
            raise InputError(
                f"no job has finished during {logged - self._progress[1]:,} events, up to t = {self.now:.0f} s:"
                " work is lost faster than it is done",
                hint="shorten checkpoint_every_s, make faults rarer, or set until_s",
            )

    def _is_stuck(self) -> bool:
        """Nobody runs, nothing has happened for long, and still the policy wants to be woken: nothing ever will."""
        si = self.world.si
        quiet = int(si[L.LOG_N]) == self._logged and not si[L.RUNNING_N]
        self._logged = int(si[L.LOG_N])
        return quiet and bool(si[L.NEXT_JOB] >= si[L.JOBS] and si[L.EX_NEXT] >= si[L.EX_N])

    def _grow_jobs(self) -> None:
        w = self.world
        slots = spread_out(2 * w.jf.shape[1])
        jf, ji = np.zeros((L.JF_ROWS, slots)), np.zeros((L.JI_ROWS, slots), np.int64)
        jf[:, : w.jf.shape[1]], ji[:, : w.ji.shape[1]] = w.jf, w.ji
        wk, sk = w.wk, np.zeros((L.SK_ROWS, max(w.sk.shape[1], slots + 2)))
        if wk.shape[1] < slots + 2:
            wk = np.zeros((L.WK_ROWS, slots + 2), np.int64)
            wk[:, : w.wk.shape[1]] = w.wk
        extra = 2 * (2 + int(w.tr[L.STATIC_F + L.WANT_PS_ASKED].max(initial=0))) * (slots - w.jf.shape[1])
        en = np.vstack([w.en, np.zeros((extra, L.EN_FIELDS), np.int64)])
        en[len(w.en) :, L.E_NEXT] = np.arange(len(w.en) + 1, len(en) + 1)
        en[-1, L.E_NEXT] = w.si[L.ENTRY_FREE]
        w.si[L.ENTRY_FREE] = len(w.en)
        self.world = w._replace(jf=jf, ji=ji, wk=wk, sk=sk, en=en)
        self.view.jobs.bind(self._job_rows(jf, ji))

    def _grow_log(self) -> None:
        w, used = self.world, int(self.world.si[L.LOG_N])
        lg = np.empty((4 * len(w.lg), L.LG_FIELDS))
        lg[:used] = w.lg[:used]
        self.world = w._replace(lg=lg)

    def _grow_heap(self) -> None:
        """Drop events of runs that are over; if that does not help, make room."""
        w = self.world
        heap = w.hp[: w.si[L.HEAP_N]].copy()
        of_group = heap[:, L.H_KIND] == L.DUE_SLICE
        target = heap[:, L.H_JOB].astype(np.int64)
        slot = np.where(of_group, -1, w.so[np.where(of_group, 0, target)])
        due = (slot >= 0) & (w.ji[L.GEN, slot] == heap[:, L.H_GEN])
        if of_group.any():
            due |= of_group & (w.gq[np.where(of_group, target, 0), L.G_GEN] == heap[:, L.H_GEN])
        kept = heap[due]
        kept = kept[np.lexsort((kept[:, L.H_SEQ], kept[:, L.H_KIND], kept[:, L.H_TIME]))]  # sorted, so a heap
        w.hp[: len(kept)] = kept
        w.si[L.HEAP_N] = len(kept)
        need = len(kept) + 4 * int(w.si[L.ACTIVE]) + 3 * self.cluster.total_gpus + 64
        if 2 * need > len(w.hp):
            self.world = w._replace(hp=np.vstack([w.hp, np.zeros((2 * need, L.HP_FIELDS))]))

    # -- from decision to decision -----------------------------------------------------------------------------

    def kernel(self, op: int, ops: NDArray[np.int64] = NO_PLAN, parts: NDArray[np.int64] = NO_PLAN) -> int:
        """Do one thing in compiled code."""
        self.world.si[L.OP] = op
        return int(self._enter(*self.world, ops, parts))

    @property
    def now(self) -> float:
        return float(self.world.sf[L.NOW])

    def advance(self, progress: Progress | None = None) -> bool:
        """Let time pass until the policy must be asked; False when nothing is left to come."""
        while True:
            code = self.kernel(L.OP_STEP)
            if code == L.DECIDE:
                if self.world.si[L.BAD_KEY]:
                    self._refuse_key(int(self.world.si[L.BAD_KEY]) - 1)
                self._refresh_view()
                return True
            if code == L.DONE:
                return False
            if code == L.PULSE:
                self._check_that_it_will_end()
                if self.world.si[L.KEY_ROW] >= 0 and self._is_stuck():
                    return False
                if progress is not None:
                    progress(int(self.world.si[L.FINISHED]), len(self.trace), self.now)
            else:
                CHORES[code](self)

    def apply(self) -> None:
        """Carry out the last decision now, and let no time pass."""
        self.kernel(L.OP_ADMIT)
        if self.world.si[L.BAD_KEY]:
            self._refuse_key(int(self.world.si[L.BAD_KEY]) - 1)

    @property
    def running(self) -> int:
        """How many jobs run now."""
        return int(self.world.si[L.RUNNING_N])

    @property
    def submit_times(self) -> NDArray[np.float64]:
        """When each job that has arrived by now was submitted, by index."""
        return self.world.tr[L.SUBMIT, : self.world.si[L.NEXT_JOB]]

    @property
    def finish_times(self) -> NDArray[np.float64]:
        """When each job that has arrived by now ended, by index; NaN for those that have not."""
        return self.world.rs[L.R_FINISH, : self.world.si[L.NEXT_JOB]]

    def _refuse_key(self, job: int) -> NoReturn:
        raise PolicyError(f"policy {self.policy.name!r} ranked job {self.trace.frame['job_id'][job]!r} as NaN")

    def _refresh_view(self) -> None:
        view, si = self.view, self.world.si
        active = int(si[L.ACTIVE])
        view.jobs.refresh(active)
        view.nodes.__dict__.clear()
        view.now = float(self.world.sf[L.NOW])
        view.running = int(si[L.RUNNING_N])
        view.waiting = active - view.running
        view.free_gpus = int(si[L.FREE_GPUS])

    def decide(
        self, decision: NDArray[np.float64] | Plan, sizes: Sizes | None = None, wake_at: float | None = None
    ) -> None:
        """Carry out a ranking (with sizes) or a plan, when the clock next moves."""
        w = self.world
        w.sf[L.WAKE] = self._wake_time(decision.wake_at if isinstance(decision, Plan) else wake_at)
        if isinstance(decision, Plan):
            self._writer.carry_out(decision)
            return
        n = int(w.si[L.ACTIVE])
        w.jf[L.KEY, :n] = decision
        if sizes is not None:
            self._check_sizes(sizes.workers, n)
            w.ji[L.WANT, :n] = sizes.workers
            if sizes.servers is not None:
                w.ji[L.WANT_PS, :n] = sizes.servers
            if sizes.types is not None:
                w.ji[L.WANT_TYPES, :n] = sizes.types
            if sizes.places is not None:
                w.ji[L.WANT_PLACE, :n] = self._possible_places(sizes.places, w.ji[L.ID, :n])
        w.si[L.APPLY] = 1

    def _check_sizes(self, workers: NDArray[np.int64], n: int) -> None:
        jf = self.world.jf
        most = np.maximum(jf[L.MAX_GPUS, :n], 1.0)  # 1 stands for a share, or for CPUs alone
        right = (workers >= jf[L.MIN_GPUS, :n]) & (workers <= most) & (workers > 0)
        if not (right | (workers == 0)).all():
            row = int(np.flatnonzero(~right & (workers != 0))[0])
            job = self.trace.frame["job_id"][int(self.world.ji[L.ID, row])]
            raise InvalidPlan(
                f"policy {self.policy.name!r}: {workers[row]} GPUs for job {job!r},"
                f" which takes {jf[L.MIN_GPUS, row]:g}..{jf[L.MAX_GPUS, row]:g}"
            )

    def _wake_time(self, wanted: float | None) -> float:
        if wanted is None:
            return np.inf
        if not wanted > self.now:
            raise PolicyError(f"policy {self.policy.name!r} asks to be woken at {wanted}, but it is {self.now} already")
        return wanted

    def ask(self) -> None:
        """Ask the policy, check its answer and hand it to the mechanism."""
        policy, view = self.policy, self.view
        if self._listens:
            self._tell()
        if self._learns:
            self._estimate_newcomers()
        began = time.perf_counter_ns()
        if self._plans:
            plan = policy.plan(view)
            self._decision_ns.append(time.perf_counter_ns() - began)
            self.decide(plan)
            return
        key = policy.rank(view)
        sizes = policy.size(view) if self._elastic else None
        wake = policy.wake_at(view) if self._wakes or policy.every_s < np.inf else None
        self._decision_ns.append(time.perf_counter_ns() - began)
        self.decide(check_key(key, len(view.jobs), policy), sizes, wake)

    def run(self, progress: Progress | None = None) -> Result:
        """All of it."""
        with unwatched_past():
            return self._run(progress)

    def _run(self, progress: Progress | None) -> Result:
        began = time.process_time()
        if self._keyed:
            self.policy.rank(self.view)  # refuses a column that it does not declare
            self.world.si[L.KEY_ROW] = L.COLUMNS_F[self.policy.key]
        if self.static or self._keyed:
            self.advance(progress)
        else:
            while self.advance(progress):
                self.ask()
                if len(self._decision_ns) % LOOK_UP_EVERY == 0:
                    if self._is_stuck():
                        break
                    if progress is not None:
                        progress(int(self.world.si[L.FINISHED]), len(self.trace), self.now)
                if self._watch is not None:
                    self.apply()
                    self._watch(self)
        self._final = self.result(cpu_s=time.process_time() - began)
        self.world = self.world._replace(lg=np.zeros((1, L.LG_FIELDS)))  # the result has it, and it is large
        return self._final

    def result(self, cpu_s: float = 0.0) -> Result:
        """What is known so far, as if the run ended now."""
        if self._final is not None:
            return self._final
        self.kernel(L.OP_CLOSE)
        return collect(self, np.array(self._decision_ns, np.int64), cpu_s)

    # -- policies with memory, and estimates that are learned ----------------------------------------------------

    def _tell(self) -> None:
        log, n = self.world.lg, int(self.world.si[L.LOG_N])
        for row in log[self._told : n]:
            kind = EventKind(int(row[L.L_KIND])).name.lower()
            time_s, info = float(row[L.L_TIME]), float(row[L.L_INFO])
            self.policy.on_event(Event(time_s, kind, int(row[L.L_JOB]), int(row[L.L_NODE]), info))
        self._told = n

    def _estimate_newcomers(self) -> None:
        w = self.world
        upto = int(w.si[L.NEXT_JOB])
        if upto == self._estimated_upto:
            return
        rows = np.arange(self._estimated_upto, upto)
        self._estimated_upto = upto
        finish = w.rs[L.R_FINISH]
        finished = np.flatnonzero(~np.isnan(finish[:upto]))
        finished = finished[np.argsort(finish[finished], kind="stable")]
        expected = unknown_last(self._estimator.estimate(rows, self.now, finished, finish[finished]))
        slots = w.so[rows]
        here = slots >= 0
        w.jf[L.EXPECTED, slots[here]] = w.jf[L.NOW_EXPECTED_LEFT, slots[here]] = expected[here]

    def parts_of(self, row: int) -> list[Part]:
        """Where the job in this slot runs."""
        return self.jobs.parts(row)

    @cached_property
    def _curves(self) -> Curves:
        return Curves(self.trace.frame["model"].to_list(), self._tables.work_s, self.settings.seed)

    def losses_of(self, row: int) -> Losses:
        """What the job in this slot has reported of its training."""
        w = self.world
        return self._curves.reported(int(w.ji[L.ID, row]), float(w.jf[L.NOW_PROGRESS, row]))


@contextmanager
def unwatched_past() -> Iterator[None]:
    """What exists by now is not looked through again by the garbage collector, each time for tens of milliseconds."""
    if gc.get_freeze_count():  # somebody has seen to that already
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


CHORES: dict[int, Callable[[Engine], None]] = {  # what the kernels ask the host to do
    L.TICK: Engine._tick, L.REFILL: Engine._refill, L.GROW_JOBS: Engine._grow_jobs, L.GROW_LOG: Engine._grow_log,
    L.GROW_HEAP: Engine._grow_heap,
}  # fmt: skip


def check_key(key: Any, jobs: int, policy: Policy) -> NDArray[np.float64]:
    """A ranking must be one number a job."""
    checked: NDArray[np.float64] = np.asarray(key, np.float64)
    if checked.shape != (jobs,):
        raise PolicyError(f"policy {policy.name!r}: rank returned shape {checked.shape} for {jobs} jobs")
    return checked


def unknown_last(expected_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """A job without an estimate counts as endless: it comes after those with one."""
    return np.where(np.isnan(expected_s), np.inf, expected_s)
