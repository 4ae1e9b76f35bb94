"""Optimus: workers and parameter servers go to the jobs for which they save the most time.

Decision: in every interval, each job first gets its smallest size (one worker and one server, for a job with
servers) in order of arrival, as far as that fits. Then one unit at a time goes to the largest marginal gain: the
time that one more worker or one more server saves the job, per share of the unit's dominant resource, while there
is a gain and room for it. Jobs without servers (all-reduce) bid for GPUs alone. Rigid jobs get what they asked for,
or nothing. Within an interval running jobs stay as they are.
State used: demands, what jobs hold, nodes that are up; losses or the estimate of the time left; throughput profiles
(of parameter-server jobs only at the sizes that were tried out, unless `speeds` says otherwise) and measured rates.
Parameters: `speeds`, for jobs with servers: `fitted`, from `trials` trial runs with as many servers as workers (at
most `largest_trial`) and from measured speeds of running jobs, in `form` sync or async, with known points used as
they are if `verbatim`; or `profile`, the true tables;
`work`, how the work left is known: `loss`, from a fit to the losses so far, or `estimate`; `fallback_epochs`, the
epochs left if the losses do not allow a fit yet, and `most_epochs`, a fit beyond which is not trusted; `clean`, smooth
outliers of losses before a fit; `per_dominant`, divide gains by the share of the dominant resource; `slot_s`, the
interval; `cap`, most workers and most servers of a job that has both; `newcomers`: `start` on what is free within an
interval, or `wait`;
`stop_at_refusal`, the authors' code, where the first unit that does not fit ends the granting; `max_restarts`, resizes
after which a job keeps its size.
Differences from the paper: the mechanism places jobs, on the fewest nodes, servers with their workers. Jobs are placed
in ascending order of tasks as in the paper, but those that cannot shrink go first, by arrival. Workers and servers are
not spread evenly, parameter blocks are not balanced and stragglers are not replaced: in this model the speed of a job
with servers depends on the numbers alone. A job that should be over by its fit counts as having one epoch left.
Trial runs take no time. A fit shares a time evenly between terms that no point can tell apart. A loss curve is fitted
again when it has become a twentieth longer.
References: Peng et al., Optimus, EuroSys'18; pengyanghua/optimus. DL2's Optimus (pengyanghua/DL2) is
`optimus:speeds=profile:work=estimate:per_dominant=no:stop_at_refusal=yes:newcomers=wait:slot_s=1200`.

    gain(j, +worker) = (Q_j / f(p, w) − Q_j / f(p, w + 1)) / worker's share of its dominant resource;  +server alike
    loss(k) = 1 / (b0·k + b1) + b2;   Q_j = epochs until it falls by less than the threshold in 10 epochs
    f(p, w) = 1 / (θ0/w + θ1 + θ2·w/p + θ3·w + θ4·p)   sync;    w / (θ0 + θ1·w/p + θ2·w + θ3·p)   async
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.perf.loss_fit import fit_losses, last_epoch
from argosy.policies.base import Floats, Ints, Policy, Sizes, register
from argosy.policies.common.demands import Units, cluster_totals, free, installed, size_range
from argosy.policies.common.estimates import longest_where_unknown
from argosy.policies.common.marginal_gain import Bidder, Times, first_units, grant
from argosy.policies.common.node_shapes import NodeShapes, largest_node_gpus
from argosy.policies.common.sizes import current_sizes
from argosy.policies.common.speeds import AllReduceSpeeds, Form, SpeedFits, profiled_times
from argosy.policies.common.time_slots import slot_at
from argosy.slack import GPU_SLACK

CHOICES = {
    "speeds": ("fitted", "profile"),
    "work": ("loss", "estimate"),
    "form": ("sync", "async"),
    "newcomers": ("start", "wait"),
}
WAITS = 1e9  # rank of jobs that get nothing
REFIT = 20  # a curve is fitted again when it is a twentieth longer


@register("optimus", "workers and servers where they save most time, from fitted curves", "Peng et al., EuroSys'18")
class Optimus(Policy):
    uses = frozenset({"demand", "nodes", "placement", "profile", "rate", "loss"})
    preemptive = True
    seeded = True

    def __init__(
        self,
        speeds: str = "fitted",
        work: str = "loss",
        form: str = "sync",
        newcomers: str = "start",
        per_dominant: bool = True,
        stop_at_refusal: bool = False,
        slot_s: float = 600.0,
        cap: int = 16,
        trials: int = 8,
        largest_trial: int = 10,
        verbatim: bool = True,
        fallback_epochs: float = 20.0,
        most_epochs: int = 100,
        clean: bool = True,
        max_restarts: int = 1_000_000,
    ) -> None:
        for name, value in (("speeds", speeds), ("work", work), ("form", form), ("newcomers", newcomers)):
            if value not in CHOICES[name]:
                raise InputError(f"optimus: {name} must be one of {', '.join(CHOICES[name])}, is {value!r}")
        at_least = {
            "slot_s": (slot_s, 1e-3),
            "cap": (cap, 1),
            "trials": (trials, 0),
            "max_restarts": (max_restarts, 0),
            "largest_trial": (largest_trial, 1),
            "fallback_epochs": (fallback_epochs, 0),
            "most_epochs": (most_epochs, 10),
        }
        for name, (amount, least) in at_least.items():
            if not least <= amount < np.inf:
                raise InputError(f"optimus: {name} must be a number ≥ {least:g}, is {amount}")
        self.speeds, self.work, self.form, self.newcomers = speeds, work, form, newcomers
        self.per_dominant, self.stop_at_refusal, self.slot_s, self.cap = per_dominant, stop_at_refusal, slot_s, cap
        self.trials, self.largest_trial, self.verbatim, self.clean = trials, largest_trial, verbatim, clean
        self.fallback_epochs, self.most_epochs, self.max_restarts = fallback_epochs, most_epochs, max_restarts
        self.uses = frozenset({"demand", "nodes", "placement", "profile"})
        self.uses |= {"rate"} if speeds == "fitted" else set()
        self.uses |= {"loss"} if work == "loss" else {"estimate"}

    def reset(self, context: Context) -> None:
        self._capacity, self._node_gpus = cluster_totals(context), largest_node_gpus(context)
        self._shapes = NodeShapes(len(context.gpu_types))
        form: Form = "async" if self.form == "async" else "sync"
        self._fits = SpeedFits(form, self.cap, self.trials, self.largest_trial, self.verbatim, context.seed)
        self._profiled: dict[int, Times] = {}
        self._all_reduce: AllReduceSpeeds | None = None
        self._converged: dict[int, tuple[int, float]] = {}  # job → epochs seen, last epoch by the fit to them
        self._restarts: dict[int, int] = {}
        self._slot = -1  # the last interval in which resources were divided

    def rank(self, view: View) -> Floats:
        """Decide the sizes, and return the order: jobs that cannot shrink first, then those with fewest tasks."""
        jobs = view.jobs
        slot = slot_at(view.now, self.slot_s)
        new_interval = slot != self._slot
        self._slot = slot
        if self.speeds == "fitted":
            self._fits.observe(view)
        sized = current_sizes(view)
        if new_interval or self.newcomers == "start":
            sized = self._divide(view, np.ones(len(jobs), bool) if new_interval else jobs.state == 0)
        if new_interval:
            self._count_restarts(view, sized)
        self._sized = sized
        tasks = sized.workers + np.asarray(sized.servers)
        key = np.where(jobs.max_gpus > jobs.min_gpus, tasks, 0.0)
        key = np.where(sized.workers > 0, key, WAITS)
        return key if new_interval else np.where(jobs.state == 1, -1.0, key)

    def size(self, view: View) -> Sizes:
        return self._sized

    def _divide(self, view: View, asks: Any) -> Sizes:
        """Return sizes for the jobs that ask; the others keep what they have."""
        jobs, units, kept = view.jobs, Units.of(view), current_sizes(view)
        low, high = size_range(view)
        both = (jobs.ps_kind >= 0) & (high > low)  # jobs that need a number of workers and one of servers
        fixed = self._keeps_size(view)
        low, high = np.where(fixed, kept.workers, low), np.where(fixed, kept.workers, high)
        servers = np.where(both, np.where(fixed, jobs.servers, 1), jobs.ps)
        first = units.amounts(low, servers)
        high = np.where(both, np.minimum(high, self.cap), high)
        high = np.maximum(np.minimum(high, self._shapes.largest_gang(view, units.worker)), low)
        room = (installed(view) if asks.all() else free(view)) + GPU_SLACK * self._capacity
        order = np.argsort(jobs.index)
        order = order[asks[order]]
        served, room = first_units(first[:, order], room)
        rows = order[served & ((high > low) | both & ~fixed)[order]]
        bidders = self._bidders(view, rows, units, low, high, both)
        grant(bidders, room, stop_at_refusal=self.stop_at_refusal)
        workers, servers = np.where(asks, 0, kept.workers), np.where(asks, servers, jobs.servers)
        workers[order[served]] = low[order[served]]
        workers[rows] = [bidder.workers for bidder in bidders]
        servers[rows] = [bidder.servers if b else s for bidder, b, s in zip(bidders, both[rows], servers[rows])]
        return Sizes(workers, servers)

    def _bidders(self, view: View, rows: Ints, units: Units, low: Ints, high: Ints, both: Any) -> list[Bidder]:
        jobs, profile = view.jobs, view.profile
        if self._all_reduce is None:
            self._all_reduce = AllReduceSpeeds(profile, self._node_gpus)
        work = self._work_left_s(view, rows) * jobs.reference_rate[rows]
        types = self._all_reduce.best_types(jobs.kind[rows], jobs.types[rows])
        worker, server = units.worker[:, rows], units.server[:, rows]
        prices = self._prices(worker).tolist(), self._prices(server).tolist()
        demands = zip(worker.T.tolist(), server.T.tolist(), *prices)
        bidders = []
        for row, gpu_type, left, (of_worker, of_server, worker_price, server_price) in zip(
            rows.tolist(), types.tolist(), work.tolist(), demands
        ):
            if both[row]:
                times, servers, most = self._server_times(view, int(jobs.ps_kind[row])), 1, self.cap
            else:
                times, servers, most = [self._all_reduce.times(int(jobs.kind[row]), gpu_type, int(high[row]))], 0, 0
            bidders.append(
                Bidder(
                    times,
                    left,
                    int(low[row]),
                    servers,
                    int(high[row]),
                    most,
                    tuple(of_worker),
                    tuple(of_server),
                    worker_price,
                    server_price,
                )
            )
        return bidders

    def _server_times(self, view: View, ps_kind: int) -> Times:
        if self.speeds == "fitted":
            return self._fits.times(view.profile, ps_kind)
        if ps_kind not in self._profiled:
            self._profiled[ps_kind] = profiled_times(view.profile, ps_kind, self.cap)
        return self._profiled[ps_kind]

    def _prices(self, amounts: Floats) -> Floats:
        """Return what each column takes of its dominant resource, as a share of the cluster's."""
        total = self._capacity[:, None]
        share = np.divide(amounts, total, out=np.zeros_like(amounts), where=total > 0).max(axis=0, initial=0.0)
        return np.where((share > 0) & self.per_dominant, share, 1.0)

    def _work_left_s(self, view: View, rows: Ints) -> Floats:
        """Return the work left, in seconds at the reference speed."""
        if self.work == "estimate":
            return np.asarray(longest_where_unknown(view.jobs.expected_left_s)[rows])
        reports = [view.losses(row) for row in rows.tolist()]
        index = view.jobs.index[rows].tolist()
        seen = [n - n % (1 + n // REFIT) for n in (len(r.epochs) for r in reports)]
        new = [i for i, n in enumerate(seen) if self._converged.get(index[i], (-1, 0.0))[0] != n]
        points = [(reports[i].epochs[: seen[i]], reports[i].losses[: seen[i]]) for i in new]
        fits = fit_losses([k for k, _ in points], [loss for _, loss in points], clean=self.clean)
        for window in sorted({reports[i].window for i in new}):
            threshold = np.array([reports[i].threshold for i in new])
            for i, last in zip(new, last_epoch(fits, threshold, window, self.most_epochs).tolist()):
                if reports[i].window == window:
                    self._converged[index[i]] = (seen[i], last)
        left = np.array([self._converged[j][1] - len(r.epochs) for j, r in zip(index, reports)])
        left = np.where(np.isnan(left), self.fallback_epochs, np.maximum(left, 1.0))
        return np.asarray(left * np.array([r.seconds_per_epoch for r in reports]))

    def _keeps_size(self, view: View) -> Any:
        """Return which running jobs have been resized so often that they keep their size."""
        jobs = view.jobs
        counts = np.array([self._restarts.get(i, 0) for i in jobs.index.tolist()], np.int64)
        return (jobs.state == 1) & (jobs.gpus >= 1) & (counts >= self.max_restarts)

    def _count_restarts(self, view: View, sized: Sizes) -> None:
        jobs = view.jobs
        changed = (jobs.state == 1) & (jobs.gpus >= 1) & (sized.workers > 0)
        changed &= (sized.workers != jobs.held) | (sized.servers != jobs.servers)
        here = set(jobs.index.tolist())
        self._restarts = {i: n for i, n in self._restarts.items() if i in here}
        self._converged = {i: fit for i, fit in self._converged.items() if i in here}
        for i in jobs.index[changed].tolist():
            self._restarts[i] = self._restarts.get(i, 0) + 1

    def wake_at(self, view: View) -> float | None:
        return (slot_at(view.now, self.slot_s) + 1) * self.slot_s if len(view.jobs) else None

    def state(self) -> dict[str, Any]:
        restarts = {str(i): n for i, n in self._restarts.items()}
        return {"slot": self._slot, "points": self._fits.state(), "restarts": restarts}

    def restore(self, state: dict[str, Any]) -> None:
        self._slot = int(state["slot"])
        self._fits.restore(state["points"])
        self._restarts = {int(i): int(n) for i, n in state["restarts"].items()}
