"""The simulator's engine, driven from outside: the caller tells it the time and what happens to jobs and nodes.

Jobs are added in batches of columns; their indices never change. The policy, the mechanism and all accounts are those
of the simulator. This is the only module of the planner that knows the engine's matrices; the others use its methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import Losses, NodeState, Part, StepReport
from argosy.explain.pending import ExplainedEngine
from argosy.mechanism import capacity, time_slicing
from argosy.mechanism.bids import Bids
from argosy.mechanism.feasibility import drop_narrow_types, impossible
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.plan import Plan
from argosy.mechanism.saved_accounts import SavedAccounts, restore, save
from argosy.mechanism.world import ENDINGS, OVERHEADS, Floats, Ints
from argosy.policies.base import Policy, Sizes
from argosy.sim import batch_writer
from argosy.sim.configure import renew_overheads
from argosy.sim.engine import Engine
from argosy.sim.place_codes import PlaceCodes
from argosy.sim.settings import Settings
from argosy.sim.views import view_on_arrival
from argosy.workload.trace import Trace

WINDOW = 10  # epochs over which the fall of a loss is measured, as in the simulator's curves
LEAST_FALL = 0.01  # as a part of the first loss: a job whose loss falls by less counts as converged
GUESSED_EPOCHS = 20.0  # assumed for jobs that report no losses


# faults, speeds and ends are not simulated but reported; the expected duration of a job is written into its row
REAL: dict[str, Any] = {
    "oversized": "skip",
    "estimator": "oracle",
    "goodput": "declared",
    "node_mtbf_h": None,
    "job_mtbf_h": None,
    "drifting": False,
    "storms": False,
    "measurement_noise": 0.0,
    "until_s": np.inf,
}


class LiveEngine(ExplainedEngine):
    """An engine to which jobs may be added at any time, and whose run has no end."""

    is_live = True

    def __init__(self, kinds: Trace, cluster: Cluster, policy: Policy, settings: Settings, jobs: int) -> None:
        """Make an engine for the kinds of jobs in a trace; indices below `jobs` belong to jobs that are not active."""
        self.given = {}
        super().__init__(kinds, cluster, policy, replace(settings, **REAL), watch=_nothing_to_do)
        self.job_names = [""] * jobs  # by index
        self.exclusive: set[int] = set()  # indices that are never packed with others
        self.losses: dict[int, dict[float, float]] = {}  # index → epoch → loss
        self.steps: dict[int, StepReport] = {}  # by index: what jobs with an adaptive batch have measured last
        self.world.si[L.JOBS] = self.world.si[L.NEXT_JOB] = jobs
        self.world = capacity.without_jobs(self.world, 2 * jobs + 1024)
        self.place_codes = PlaceCodes(policy.name)

    def forked(self, policy: Policy, world: L.World) -> Self:
        fork = super().forked(policy, world)
        later = int(world.si[L.JOBS]) - len(self.job_names)
        fork.job_names = [*self.job_names, *(f"later job {i}" for i in range(later))]
        return fork

    def job_name(self, index: int) -> str:
        return self.job_names[index]

    # -- jobs ----------------------------------------------------------------------------------------------------

    def hopeless(self, rows: Floats) -> NDArray[np.bool_]:
        """Return which of these jobs could not run even on the empty cluster."""
        alone = self.world._replace(tr=rows)
        drop_narrow_types(alone)
        bad = np.zeros(rows.shape[1], bool)
        bad[impossible(alone, self.settings.consolidation == "strict")] = True
        return bad

    def hopeless_jobs(self, indices: Sequence[int]) -> NDArray[np.bool_]:
        """Return the same for jobs that have been added already."""
        return self.hopeless(self.world.tr[:, indices])

    def append(self, rows: Floats, names: Sequence[str]) -> int:
        """Add jobs, which arrive now; return the index of the first."""
        first, n = len(self.job_names), rows.shape[1]
        self.job_names += names
        self.world.si[L.JOBS] = first + n
        self.write(np.arange(first, first + n), rows)
        self._tell([(L.TOLD_ARRIVED, 0, 0)])
        return first

    def write(self, index: Ints, rows: Floats) -> None:
        """Write jobs into the trace, from which arrivals are copied."""
        n = len(index)
        self.world = w = capacity.with_room_for_jobs(self.world, len(self.job_names))
        alone = w._replace(tr=rows)
        drop_narrow_types(alone)
        self.place_codes.learn(alone, index)
        if "place" in self.policy.answers and self.settings.placer == "policy":
            codes = np.asarray(self.policy.place(view_on_arrival(self, rows, index)))
            rows[L.STATIC_F + L.WANT_PLACE] = self.place_codes.checked(codes, index, w)
        w.tr[:, index] = rows
        w.sf[L.MIN_CPU_UNIT] = min(w.sf[L.MIN_CPU_UNIT], rows[L.CPU_UNIT].min(initial=np.inf))
        w.sf[L.MIN_MEM_UNIT] = min(w.sf[L.MIN_MEM_UNIT], rows[L.MEM_UNIT].min(initial=np.inf))
        w.si[L.SHARES] |= int(((rows[L.GPUS] > 0) & (rows[L.GPUS] < 1)).any())
        while w.si[L.ACTIVE] + n >= self.world.jf.shape[1] - 1:
            self.serve(L.GROW_JOBS)
        self._make_room(n)

    def seat(self, index: Ints) -> None:
        """Make these jobs active, in rows of this order, as if all had just arrived; no other job may be active yet."""
        self._tell((L.TOLD_SEATED, i, 0) for i in index.tolist())

    def set_job(self, index: int, **columns: float) -> None:
        """Write values of an active job, by the names of the columns of `jobs`."""
        w, row = self.world, self.jobs.row_of(index)
        for name, value in columns.items():
            if name in L.COLUMNS_F:
                w.jf[L.COLUMNS_F[name], row] = value
            else:
                w.ji[L.COLUMNS_I[name], row] = value

    def change_request(self, index: int, **columns: float) -> None:
        """Change what a job asks for, and ask the policy again."""
        self.set_job(index, **columns)
        for name, value in columns.items():
            self.world.tr[L.COLUMNS_F[name], index] = value
        self.request_decision()

    def saved_accounts(self, rows: Sequence[int]) -> tuple[Floats, Ints]:
        """Return the accounts of the jobs in these rows, to be kept until another planner takes over."""
        return save(self.world, rows)

    def restore_accounts(self, index: int, accounts: SavedAccounts) -> None:
        """Put back what `saved_accounts` returned for a job."""
        restore(self.world, self.jobs.row_of(index), accounts)

    # -- the cluster ---------------------------------------------------------------------------------------------

    def node_state(self, node: int) -> NodeState:
        """Return whether a node takes jobs."""
        return NodeState(int(self.world.ni[L.N_STATE, node]))

    def set_node_state(self, node: int, state: NodeState) -> None:
        """Record that a node has failed, drains or is back."""
        self._tell([(L.TOLD_NODE, node, int(state))])

    def set_overhead(self, job_class: int, kind: str, seconds: float) -> None:
        """Set the seconds that a kind of change costs (see `argosy.mechanism.world.OVERHEADS`) jobs of a class."""
        self.world.ov[job_class, OVERHEADS[kind]] = seconds
        renew_overheads(self.context, self.world, self.settings)

    def start_overhead_s(self, index: int) -> float:
        """Return how many seconds the start of a job takes."""
        job_class = self.world.ji[L.CLASS, self.jobs.row_of(index)]
        return float(self.world.ov[job_class, OVERHEADS["start"]])

    @contextmanager
    def without_queue_limits(self) -> Iterator[None]:
        """Lift the limits of queues inside the block, so that jobs that run already can be placed."""
        limits = self.world.qu[L.Q_LIMIT].copy()
        self.world.qu[L.Q_LIMIT] = np.inf
        try:
            yield
        finally:
            self.world.qu[L.Q_LIMIT] = limits

    # -- time ----------------------------------------------------------------------------------------------------

    def pass_until(self, now: float) -> None:
        """Let time pass. `needs_decision` says whether the policy must then be asked."""
        self.world.sf[L.UNTIL] = max(now, self.now)
        while (code := self.kernel(L.OP_PASS)) != L.DONE:
            self.serve(code)

    def settle(self, jobs: Iterable[int]) -> None:
        """Bring the accounts of these jobs up to date."""
        self._tell((L.TOLD_SETTLE, index, 0) for index in jobs)

    def end(self, jobs: Mapping[int, str]) -> None:
        """Record that jobs have ended: completed, failed, killed or cancelled."""
        self._tell((L.TOLD_ENDED, index, ENDINGS[how]) for index, how in jobs.items())

    def stop(self, jobs: Iterable[int]) -> None:
        """Record that jobs no longer hold anything although they should run; they wait again."""
        self._tell((L.TOLD_STOPPED, index, 0) for index in jobs)

    def _tell(self, news: Iterable[tuple[int, int, int]]) -> None:
        """Pass events to the kernels, as rows of (kind, job or node, value)."""
        rows = np.array(list(news), np.int64).reshape(-1, 3)
        if len(rows):
            self._make_room()
            self.kernel(L.OP_TOLD, rows)

    @property
    def needs_decision(self) -> bool:
        """Whether something has happened since the policy was last asked."""
        return bool(self.world.si[L.DIRTY])

    def request_decision(self, yes: bool = True) -> None:
        """Request that the policy is asked even if nothing has happened; with False, withdraw the request."""
        self.world.si[L.DIRTY] = yes

    def answer(self) -> int:
        """Ask the policy and carry out its decision; return the time that the policy took, in nanoseconds."""
        self._make_room()
        self.refresh_view()
        self.ask()
        self.event_feed.forget_told(self.world)
        self.apply()
        self.request_decision(False)
        return self.decision_ns.pop()

    def decide(self, decision: Floats | Plan | Bids, sizes: Sizes | None = None, wake_at: float | None = None) -> None:
        if isinstance(decision, Plan):
            decision = self._without_exclusive_packs(decision)
        if isinstance(decision, Bids):
            decision = self._without_exclusive_partners(decision)
        super().decide(decision, sizes, wake_at)

    def _without_exclusive_packs(self, plan: Plan) -> Plan:
        """Return the plan without packs of jobs that share their GPUs with no other."""
        if not (self.exclusive and plan.packs):
            return plan
        ids = self.jobs.index
        packs = {g: h for g, h in plan.packs.items() if not {int(ids[g]), int(ids[h])} & self.exclusive}
        return replace(plan, packs=packs)

    def _without_exclusive_partners(self, bids: Bids) -> Bids:
        """Return the bids, those to share GPUs withdrawn where a job shares its GPUs with no other."""
        if not self.exclusive or bids.partner is None:
            return bids
        alone = np.isin(self.jobs.index, list(self.exclusive))
        refused = (bids.partner >= 0) & (alone[bids.job] | alone[bids.partner])
        return replace(bids, value=np.where(refused, 0.0, bids.value))

    def next_at(self) -> float:
        """Return when something next happens by itself or the policy wants to be asked; inf if never."""
        w = self.world
        i = int(w.si[L.EX_NEXT])
        external = float(w.ex[L.X_TIME, i]) if i < w.si[L.EX_N] else np.inf
        return min(float(w.sf[L.WAKE]), time_slicing.next_turn_at(w), external)

    def _make_room(self, newcomers: int = 0) -> None:
        """Make room for more rows in the log and on the heap than one decision can add."""
        w = self.world
        busy = capacity.busiest_instant(w, newcomers)
        while w.si[L.LOG_N] + 2 * busy > len(self.world.lg):
            self.serve(L.GROW_LOG)
        if w.si[L.HEAP_N] + busy > len(w.hp):
            self.world = capacity.with_larger_heap(self.world, busy)

    # -- state for the next planner ------------------------------------------------------------------------------

    def untold_events(self) -> list[list[float]]:
        """Return the log rows that the policy has not been told yet."""
        rows: list[list[float]] = self.event_feed.untold(self.world).tolist()
        return rows

    def set_untold_events(self, rows: Sequence[Sequence[float]]) -> None:
        """Tell the policy these log rows, and no others, when it is next asked."""
        log = np.array(rows, np.float64).reshape(-1, L.LG_FIELDS)
        while len(log) > len(self.world.lg):
            self.serve(L.GROW_LOG)
        self.event_feed.replace(self.world, log)

    def counters(self) -> dict[str, int]:
        """Return the number of the present turn of all groups, and the state of the random numbers in the kernels."""
        return {"turn": int(self.world.si[L.TURN]), "rng": int(self.world.si[L.RNG])}

    def restore_counters(self, turn: int, rng: int) -> None:
        """Continue from what `counters` returned."""
        self.world.si[L.TURN], self.world.si[L.RNG] = turn, rng

    @property
    def wake_at(self) -> float:
        """When the policy wants to be asked again; inf if never."""
        return float(self.world.sf[L.WAKE])

    @wake_at.setter
    def wake_at(self, at: float) -> None:
        self.world.sf[L.WAKE] = at

    # -- groups of jobs that take turns --------------------------------------------------------------------------

    def groups(self) -> list[time_slicing.Group]:
        """Return the groups that have members now."""
        return time_slicing.groups(self.world)

    @property
    def groups_opened(self) -> int:
        """How many groups there have been."""
        return int(self.world.si[L.GROUPS])

    def set_turns(self, last_turns: Mapping[int, int], due: float | None) -> None:
        """Set when the jobs of one group (by row) had their last turns, and when the present turn ends."""
        time_slicing.set_turns(self.world, last_turns, due)

    def planned_parts(self, index: int) -> list[Part]:
        """Return where a paused job will be when its turn comes."""
        return time_slicing.planned_parts(self.world, index)

    # -- batch sizes ---------------------------------------------------------------------------------------------

    def set_batches(self, batches: Mapping[int, float]) -> None:
        """Set the present batches of jobs, by row."""
        batch_writer.write(self, batches)

    def steps_of(self, row: int) -> StepReport | None:
        return self.steps.get(int(self.jobs.index[row]))

    # -- reports of jobs -----------------------------------------------------------------------------------------

    def losses_of(self, row: int) -> Losses:
        """Return the losses that the job has reported; without any, an epoch is a part of its expected duration."""
        jobs = self.jobs
        reported = self.losses.get(int(jobs.index[row]), {})
        work, progress = float(jobs.duration_s[row]), float(jobs.progress[row])
        epochs = np.array(sorted(reported))
        losses = np.array([reported[e] for e in epochs])
        in_all = float(epochs[-1]) / progress if len(epochs) and progress > 0 else GUESSED_EPOCHS
        fall = LEAST_FALL * float(abs(losses[0])) if len(losses) else LEAST_FALL
        return Losses(epochs, losses, fall, WINDOW, work / in_all)


def _nothing_to_do(_: Engine) -> None:
    """Do nothing. It is passed as `watch` because a watched engine asks its policy at every decision."""
