"""The simulator: a world, a clock and a policy.

`Engine` goes from decision to decision: `advance()` lets time pass until the policy must be asked, `decide()` carries
out its answer. `run()` does both until nothing is left to do; an environment for learning calls them one by one.

A host may read `jobs` (a table of the active jobs), `queues`, `rules`, `supply()` and a few figures of a run; the
matrices in `world` are private to the simulator and the mechanism.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from typing import Any, NoReturn, Self, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import BatchMode, Losses, Part, StepReport
from argosy.errors import PolicyError
from argosy.mechanism import capacity
from argosy.mechanism.bids import Bids, Choice
from argosy.mechanism.feasibility import drop_narrow_types
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Plan
from argosy.mechanism.world import build
from argosy.perf.convergence import Curves
from argosy.perf.overhead import Overheads
from argosy.perf.rate_tables import compile_tables
from argosy.policies.base import CompiledOrder, Policy, Sizes
from argosy.sim import batch_writer, bid_writer, static_order
from argosy.sim.answers import check_key, check_sizes, check_wake_time
from argosy.sim.arrival_estimates import ArrivalEstimates, unknown_last
from argosy.sim.collect import collect
from argosy.sim.configure import configure, make_context, refuse_impossible
from argosy.sim.event_feed import EventFeed
from argosy.sim.external_events import ExternalEvents
from argosy.sim.garbage import collector_at_rest
from argosy.sim.order_in_kernels import is_ranked_in_kernels, rank_in_kernels
from argosy.sim.place_codes import PlaceCodes
from argosy.sim.plan_guard import allowed
from argosy.sim.plan_writer import PlanWriter
from argosy.sim.result import Result
from argosy.sim.settings import Settings
from argosy.sim.state import EngineState
from argosy.sim.views import job_rows, refresh, view_of_active, view_on_arrival
from argosy.sim.watchdog import Watchdog
from argosy.workload.estimate import Oracle, make_estimator
from argosy.workload.trace import Trace

LOOK_UP_EVERY = 4096  # decisions between two checks of the run's progress
NO_PLAN = np.zeros((0, 5), np.int64)
Progress = Callable[[int, int, float], None]  # jobs finished, jobs in all, simulated time


class Engine(EngineState):
    """One simulated run, from the first arrival to the last end."""

    is_live = False  # whether real jobs run

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
        """Set up a run; `cancels` are the times at which jobs are cancelled, `watch` is called after every decision."""
        from argosy.mechanism.kernels.entry import enter  # late: it imports Numba, and `argosy --help` should be fast

        self.enter, self._watch = enter, watch
        self.trace, self.cluster, self.policy = trace, cluster, policy
        self.settings = settings = settings or Settings()
        self.tables = tables = compile_tables(
            trace.frame,
            cluster,
            model=settings.perf,  # type: ignore[arg-type]
            reference_type=settings.reference_type,
            locality=settings.locality,
            ps_speeds=settings.ps_speeds,
            goodput=settings.goodput,
            reconfigures=policy.reconfigures,
        )
        frame = trace.frame.with_columns(duration_s=pl.Series(tables.work_s))
        estimator = make_estimator(settings.estimator, Trace(frame, trace.name), settings.seed)
        expected = np.zeros(len(trace))
        if estimator.timeless:
            nothing = np.zeros(0, np.int64)
            expected = unknown_last(estimator.estimate(np.arange(len(trace)), 0.0, nothing, np.zeros(0)))
        overheads = Overheads.of(settings.overheads)
        self.world, self.names = build(
            frame, cluster, tables, expected, overheads, seed=settings.seed, strict=settings.consolidation == "strict"
        )
        drop_narrow_types(self.world)
        oracle = isinstance(estimator, Oracle)
        configure(self.world, settings, policy, oracle=oracle, watched=watch is not None)
        refuse_impossible(self.world, settings, trace, cluster)
        self.external = ExternalEvents(self.world, cluster, settings, self.names.queues, trace, cancels or {})
        self.world = self.external.refill(self.world)
        self._watchdog, self._arrival_estimates = Watchdog(), ArrivalEstimates(estimator)
        self.event_feed, self.place_codes = EventFeed(policy), PlaceCodes(policy.name)
        self.decision_ns: list[int] = []  # the policy's own time for each decision
        self._final: Result | None = None
        self.context = make_context(self.world, self.names, tables, cluster, policy, settings)
        policy.reset(self.context)
        super().__init__()
        self.view = view_of_active(self)
        self._plan_writer = PlanWriter(self._proxy())
        self.order: CompiledOrder | None = None  # by which the kernels rank; its memory lives as long as the run
        self.choice: Choice | None = None  # among the bids of the last decision
        self._see_answers(policy)
        self._learns = not estimator.timeless and "estimate" in policy.uses
        # whether the policy itself must be asked, for more than the order of the jobs (and when it changes)
        beyond_order = (
            self._elastic or self._plans or self._bids or self.event_feed.is_used or self._learns or watch is not None
        )
        self.must_ask = beyond_order or self._wakes
        self.may_compile = not beyond_order
        if "place" in policy.answers and settings.placer == "policy":
            all_jobs = np.arange(len(trace))
            codes = np.asarray(policy.place(view_on_arrival(self, self.world.tr, all_jobs)))
            self.world.tr[L.STATIC_F + L.WANT_PLACE] = self.place_codes.checked(codes, all_jobs, self.world)
        self.is_keyed = bool(policy.key) and "rank" not in policy.answers and not self.must_ask
        self.static = static_order.prepare(self)
        if self.static:
            from argosy.mechanism.kernels.static_entry import enter_static  # late, like `enter`

            self.enter = enter_static

    def forked(self, policy: Policy, world: L.World) -> Self:
        """Return an engine that goes on from the present instant under another policy; this one stays as it is.

        `world` is a copy of this engine's world, perhaps with more jobs. What never changes in a run is shared: trace,
        cluster, tables, settings. The fork is not watched, and its estimates of durations stay as they are. What
        depends on the policy alone is left to the caller: `configure`, `context`, the policy's `reset`, `event_feed`
        and `view`.
        """
        fork = copy(self)
        fork.policy, fork.world = policy, world
        EngineState.__init__(fork)
        fork._plan_writer, fork._watchdog = PlanWriter(fork._proxy()), Watchdog()
        fork.place_codes, fork.decision_ns = PlaceCodes(policy.name), []
        fork._see_answers(policy)
        fork._watch, fork._learns = None, False
        return fork

    def _proxy(self) -> Engine:
        """Return a reference for parts of this engine, without the cycle that would keep its matrices in memory."""
        return cast(Engine, weakref.proxy(self))

    def _see_answers(self, policy: Policy) -> None:
        """Note what the policy is asked for at a decision."""
        self._elastic, self._plans = "size" in policy.answers, "plan" in policy.answers
        self._bids, self._wakes = "bid" in policy.answers, "wake_at" in policy.answers

    # -- what the host does for the kernels --------------------------------------------------------------------

    def _tick(self) -> None:
        w = self.world
        loan, count = (int(w.ex[field, w.si[L.EX_NEXT] - 1]) for field in (L.X_TARGET, L.X_VALUE))
        if loan:  # otherwise the machines' speeds change
            events = self.external.loans.change(self, loan - 1, count)
            self.world = self.external.insert(self.world, events)
            return
        self.external.tick()
        self.kernel(L.OP_REPRICE)

    def _refill(self) -> None:
        self._watchdog.check_that_it_will_end(self.world)
        self.world = self.external.refill(self.world)

    def _grow_jobs(self) -> None:
        self.world = capacity.with_more_slots(self.world)
        self.view.jobs.bind(job_rows(self.world))

    def _grow_log(self) -> None:
        self.world = capacity.with_longer_log(self.world)

    def _grow_heap(self) -> None:
        self.world = capacity.with_larger_heap(self.world)

    def serve(self, request: int) -> None:
        """Do what the kernels ask their host for before they can go on."""
        HOST_REQUESTS[request](self)

    def prefer_cheap_victims(self, yes: bool) -> None:
        """Choose whether running jobs of equal rank are preempted in the order of the work that they lose."""
        self.world.si[L.BY_STAKE] = yes

    # -- from decision to decision -----------------------------------------------------------------------------

    def kernel(self, op: int, ops: NDArray[np.int64] = NO_PLAN, parts: NDArray[np.int64] = NO_PLAN) -> int:
        """Do one thing in compiled code."""
        self.world.si[L.OP] = op
        return int(self.enter(*self.world, ops, parts))

    def advance(self, progress: Progress | None = None) -> bool:
        """Let time pass until the policy must be asked; return False when no events are left."""
        while True:
            code = self.kernel(L.OP_STEP)
            if code == L.DECIDE:
                self._check_keys()
                self.refresh_view()
                return True
            if code == L.DONE:
                return False
            if code == L.PULSE:
                self._watchdog.check_that_it_will_end(self.world)
                if is_ranked_in_kernels(self.world) and self._watchdog.is_stuck(self.world):
                    return False
                if progress is not None:
                    progress(self.finished, len(self.trace), self.now)
            else:
                self.serve(code)

    def apply(self) -> None:
        """Carry out the last decision now, without letting time pass."""
        self.kernel(L.OP_ADMIT)
        self._check_keys()

    def _check_keys(self) -> None:
        if self.world.si[L.BAD_KEY]:
            self.refuse_key(int(self.world.si[L.BAD_KEY]) - 1)

    def refuse_key(self, job: int) -> NoReturn:
        """Raise the error for a key that is NaN."""
        raise PolicyError(f"policy {self.policy.name!r} ranked job {self.job_name(job)!r} as NaN")

    def refresh_view(self) -> None:
        """Update the view to the present instant."""
        refresh(self.view, self.world)

    def decide(
        self, decision: NDArray[np.float64] | Plan | Bids, sizes: Sizes | None = None, wake_at: float | None = None
    ) -> None:
        """Set a ranking (with sizes), bids or a plan, to be carried out when the clock next advances."""
        w = self.world
        if isinstance(decision, Plan):
            decision = allowed(self, decision)
        w.sf[L.WAKE] = check_wake_time(self, decision.wake_at if isinstance(decision, Plan) else wake_at)
        if isinstance(decision, Bids):
            self.choice = bid_writer.carry_out(self, decision)
            batch_writer.write_bids(self, decision, self.choice)
            return
        if isinstance(decision, Plan):
            batch_writer.write(self, decision.batches)
            w.ji[L.GROWS, : int(w.si[L.ACTIVE])] = 0
            w.ji[L.GROWS, list(decision.grows)] = 1
            self.carry_out(decision)
            return
        n = int(w.si[L.ACTIVE])
        if sizes is not None and sizes.batch is not None:
            batch_writer.write_column(self, sizes.batch)
        w.si[L.FASTER] = w.si[L.PACKS] = 0
        w.jf[L.KEY, :n] = decision
        if sizes is not None:
            check_sizes(self, sizes.workers)
            w.ji[L.WANT, :n] = sizes.workers
            if sizes.servers is not None:
                w.ji[L.WANT_PS, :n] = sizes.servers
            if sizes.types is not None:
                w.ji[L.WANT_TYPES, :n] = sizes.types
            if sizes.grows is not None:
                w.ji[L.GROWS, :n] = sizes.grows
            if sizes.places is not None:
                w.ji[L.WANT_PLACE, :n] = self.place_codes.checked(sizes.places, w.ji[L.ID, :n], w)
        w.si[L.APPLY] = 1

    def amend(self, rows: int | slice, key: Any, workers: Any, servers: Any, wake_at: float | None = None) -> None:
        """Change the last ranking for one row or several, whose sizes the caller has checked, and the wake-up time."""
        w = self.world
        w.sf[L.WAKE] = check_wake_time(self, wake_at)
        w.jf[L.KEY, rows], w.ji[L.WANT, rows], w.ji[L.WANT_PS, rows] = key, workers, servers
        w.si[L.APPLY] = 1

    @property
    def is_watched(self) -> bool:
        """Return whether somebody is called after every decision, and may then read the matrices."""
        return self._watch is not None

    @property
    def is_decided(self) -> bool:
        """Return whether there is an order with sizes that is yet to be carried out."""
        return bool(self.world.si[L.APPLY])

    @property
    def decided(self) -> tuple[NDArray[np.float64], Sizes]:
        """Return that order, and those sizes."""
        w, n = self.world, int(self.world.si[L.ACTIVE])
        return w.jf[L.KEY, :n].copy(), Sizes(w.ji[L.WANT, :n].copy())

    def enlarge(self, sizes: Sizes, wake_at: float | None) -> None:
        """Give jobs these sizes instead, and wake the policy no later than this; its other answers stay."""
        w, n = self.world, int(self.world.si[L.ACTIVE])
        check_sizes(self, sizes.workers)
        w.ji[L.WANT, :n] = sizes.workers
        if sizes.grows is not None:
            w.ji[L.GROWS, :n] = sizes.grows
        if wake_at is not None:
            w.sf[L.WAKE] = min(w.sf[L.WAKE], check_wake_time(self, wake_at))

    def carry_out(self, plan: Plan) -> None:
        """Check an explicit plan and carry it out at once; raises `InvalidPlan`."""
        self._plan_writer.carry_out(plan)

    def ask(self) -> None:
        """Ask the policy, check its answer and hand it to the mechanism."""
        policy, view = self.policy, self.view
        self.event_feed.tell(policy, self.world)
        if self._learns:
            self._arrival_estimates.update(self.world)
        began = time.perf_counter_ns()
        if self._plans:
            plan = policy.plan(view)
            self.decision_ns.append(time.perf_counter_ns() - began)
            self.decide(plan)
            return
        if self._bids:
            bids = policy.bid(view)
            if bids is not None:
                wake = policy.wake_at(view) if self._wakes or policy.every_s < np.inf else None
                self.decide(bids, None, wake)
                self.decision_ns.append(time.perf_counter_ns() - began)  # with the choice among them
                return
        key = policy.rank(view)
        sizes = policy.size(view) if self._elastic else None
        wake = policy.wake_at(view) if self._wakes or policy.every_s < np.inf else None
        self.decision_ns.append(time.perf_counter_ns() - began)
        self.decide(check_key(key, len(view.jobs), policy), sizes, wake)

    def run(self, progress: Progress | None = None) -> Result:
        """Run from the first arrival to the last end."""
        with collector_at_rest():
            return self._run(progress)

    def _run(self, progress: Progress | None) -> Result:
        began = time.process_time()
        if self.static or rank_in_kernels(self):
            self.advance(progress)
        else:
            while self.advance(progress):
                self.ask()
                if len(self.decision_ns) % LOOK_UP_EVERY == 0:
                    if self._watchdog.is_stuck(self.world):
                        break
                    if progress is not None:
                        progress(self.finished, len(self.trace), self.now)
                if self._watch is not None:
                    self.apply()
                    self._watch(self)
        self._final = self.result(cpu_s=time.process_time() - began, is_over=True)
        self.world = self.world._replace(lg=np.zeros((1, L.LG_FIELDS)))  # the log is large, and the result has it
        return self._final

    def result(self, cpu_s: float = 0.0, *, is_over: bool = False) -> Result:
        """Return what is known so far, as if the run ended now, or the result of a run that `is_over`."""
        if self._final is not None:
            return self._final
        self.kernel(L.OP_CLOSE)
        return collect(self, np.array(self.decision_ns, np.int64), cpu_s, is_over=is_over)

    # -- what policies may read about single jobs ------------------------------------------------------------------

    def job_name(self, index: int) -> str:
        """Return the id of a job by its index."""
        return str(self.trace.frame["job_id"][index])

    def parts_of(self, row: int) -> list[Part]:
        """Return what the job in this row holds, node by node."""
        return self.jobs.parts(row)

    @cached_property
    def _curves(self) -> Curves:
        return Curves(self.trace.frame["model"].to_list(), self.tables.work_s, self.settings.seed)

    def losses_of(self, row: int) -> Losses:
        """Return what the job in this row has reported about its training."""
        jobs = self.jobs
        return self._curves.reported(int(jobs.index[row]), float(jobs.progress[row]))

    def steps_of(self, row: int) -> StepReport | None:
        """Return what the job in this row reports of its steps; None if it does not run, or its batch is fixed."""
        return batch_writer.report(self, row)

    def modes_of(self, row: int) -> tuple[BatchMode, ...]:
        """Return the batch sizes that the job in this row takes by a rule of its own."""
        return batch_writer.modes(self, row)


HOST_REQUESTS: dict[int, Callable[[Engine], None]] = {  # what the kernels ask the host to do
    L.TICK: Engine._tick,
    L.REFILL: Engine._refill,
    L.GROW_JOBS: Engine._grow_jobs,
    L.GROW_LOG: Engine._grow_log,
    L.GROW_HEAP: Engine._grow_heap,
}
