"""Themis: GPUs are leased, by auction among the applications that would finish latest compared with a fair share.

Decision: GPUs that are free or whose lease is over are auctioned. Only the worst 1 − f of the applications may
bid (of those with a job that holds no lease). An application bids for one of its jobs, with a table of numbers of GPUs
and the ρ that each would give. The partial allocation mechanism (auction.py) finds the bundles that maximise the
product of all 1/ρ, and withholds a part of each as payment. What is left goes first to the applications outside the
auction (to those that run already, then to the others in random order), last to the losers. What is won is leased; a
running lease is never taken away. A job whose lease is over goes on undisturbed if it wins its own GPUs again, or,
without a lease, if no other job needs them.
State used: expected durations, the performance profile, the placement of each job, and the number of competing
applications, averaged over the life of each.
Parameters: `f`, the share of applications left out of an auction (larger: fairer, less efficient); `lease_s`;
`finish`, when an application of several jobs is done: with its `last` job, since all jobs of a trace run to their end,
or with its `first`, as in the paper, where the best job of a search ends the others.
Differences from the paper: an application that gets nothing is assumed to wait for one more lease and then to run at
its smallest size; with the paper's ρ = ∞ every product would be 0 as soon as one gets nothing. A gang cannot give up
some of its GPUs: if the part it may keep, ⌊c · bundle⌋, is less than its smallest size, it keeps that size and pays
by a shorter lease. Leases end one by one, so enough GPUs for a large gang would never be free together, and the
product favours many small gangs. Therefore the worst bidder that gets nothing is promised the GPUs whose leases end
next; until then others get leases that end no later, and then it comes before all bidders. Bundles are GPUs of one
type. An application bids for the type on which it is fastest, and if it gets nothing, for the next; bundles are
exact for each type. Elastic jobs bid for at most eight sizes. ρ of an application is that of its first (or last)
job that has not ended; CPU-only jobs do not bid and always run.
References: Mahajan et al., Themis: fair and efficient GPU cluster scheduling, NSDI'20.

    ρ(g) = (age + left / speed(g, placement)) / T_ideal,     ρ(0) = (age + lease + left / speed(smallest)) / T_ideal
    T_ideal = duration · max(1, gpus · N / cluster GPUs),     N: competing applications, average over its life
    bundles = argmax Π 1/ρ_i(g_i),     kept = ⌊c_i · g_i⌋
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, Ints, Policy, Sizes, register
from argosy.policies.themis.auction import partial_allocation
from argosy.policies.themis.finish_time import Bools, Claims, Pool, looked_up, options, speed, time_shared
from argosy.seeding import stream
from argosy.slack import RESOURCE_SLACK

FINISHES = ("first", "last")
BID_SIZES = 8
PROMISED, WINNER, STAYS, OUTSIDE, LOSER = 0.5, 1.0, 2.0, 3.0, 4.0  # ranks; a job with a running lease has 0
NOBODY = -1
MEMORY = {
    "auctions": int,
    "seen_s": float,
    "app_s": float,
    "apps": np.int64,
    "since_s": float,
    "since_app_s": float,
    "leased": np.int64,
    "until": float,
    "promised": int,
    "due_s": float,
}


@register("themis", "leases auctioned among those furthest behind their fair share", "Mahajan et al., NSDI'20")
class Themis(Policy):
    uses = frozenset({"demand", "placement", "estimate", "profile", "nodes"})
    preemptive = True  # jobs with a running lease rank first, so they are not preempted
    seeded = True

    def __init__(self, f: float = 0.8, lease_s: float = 1200.0, finish: str = "last") -> None:
        if not 0 <= f <= 1:
            raise InputError(f"themis: f must be from 0 to 1, is {f}")
        if not 0 < lease_s < np.inf:
            raise InputError(f"themis: lease_s must be a time > 0, is {lease_s}")
        if finish not in FINISHES:
            raise InputError(f"themis: finish must be one of {', '.join(FINISHES)}, is {finish!r}")
        self.f, self.lease_s, self.finish = f, lease_s, finish

    def reset(self, context: Context) -> None:
        self._total_gpus, self._types, self._seed = context.total_gpus, len(context.gpu_types), context.seed
        self._auctions = 0
        self._seen_s, self._app_s = 0.0, 0.0  # the last decision; applications × seconds until then
        self._apps, self._since_s, self._since_app_s = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        self._leased, self._until = np.zeros(0, np.int64), np.zeros(0)
        self._promised, self._due_s = NOBODY, 0.0  # the job that comes first next time, and when that is

    def rank(self, view: View) -> Floats:
        jobs = view.jobs
        runs = jobs.state == 1
        until = np.where(runs, looked_up(self._leased, self._until, jobs.index, -np.inf), -np.inf)
        open_ = (until <= view.now) & (jobs.gpus > 0)  # jobs that hold no lease
        held = np.maximum(np.ceil(jobs.held), 1)
        self._workers = np.where(runs, held, np.maximum(np.floor(jobs.gpus), 1)).astype(np.int64)
        self._wanted = np.full(len(jobs), -1)  # GPU types
        lease_s = np.where(open_ & ~runs, self.lease_s, 0.0)
        apps, app = np.unique(jobs.app, return_inverse=True)
        competitors = self._competitors(view.now, apps)[app]
        key = np.where(open_, np.where(runs, STAYS, OUTSIDE), 0.0)
        if view.waiting and open_.any():
            claims = Claims.of(view, competitors, self._total_gpus)
            self._auctions += 1
            dice = stream(self._seed, "themis", self._auctions).random(len(apps))
            key[open_ & ~runs] += dice[app[open_ & ~runs]]
            rho = self._rho(view, claims, open_)
            bidders, have = self._bidders(app, rho, open_, len(apps))
            place = np.full(len(apps), -1)
            place[app[bidders]] = np.arange(len(bidders))
            inside = open_ & (place[app] >= 0)
            key[inside] = LOSER + place[app[inside]]
            pool = Pool.of(view, np.flatnonzero(open_ & runs), self._types)
            left = pool.gpus.copy()
            self._keep_promise(view, claims, key, left, lease_s)
            free_to_bid = key[bidders] != PROMISED
            bidders, have = bidders[free_to_bid], have[free_to_bid]
            for row, gpu_type, gpus, part in self._auction(view, claims, pool, left, bidders, have):
                key[row] = WINNER + key[row] / (LOSER + len(apps))
                kept = part * gpus
                self._workers[row] = max(int(kept + RESOURCE_SLACK), int(claims.low[row]))
                lease_s[row] = self.lease_s * min(kept / claims.low[row], 1.0)
                if not runs[row]:
                    self._wanted[row] = 1 << gpu_type
            if (key == PROMISED).any():  # no other job takes what it waits for
                self._workers[open_ & ~runs & (key >= OUTSIDE)] = 0
            losers = bidders[key[bidders] >= LOSER]
            self._promise(view, claims, left, losers, until)
        until[open_] = view.now + lease_s[open_]
        if self._promised != NOBODY and self._due_s > view.now:
            until[open_] = np.minimum(until[open_], self._due_s)
        order = np.argsort(jobs.index)
        order = order[until[order] > view.now]
        self._leased, self._until = jobs.index[order], until[order]
        return key

    def size(self, view: View) -> Sizes:
        return Sizes(self._workers, types=self._wanted if self._types > 1 else None)

    def wake_at(self, view: View) -> float | None:
        return float(self._until.min()) if view.waiting and len(self._until) else None

    def _competitors(self, now: float, apps: Ints) -> Floats:
        """Return for each of these jobs how many applications there were, on average over its life."""
        self._app_s += len(self._apps) * (now - self._seen_s)
        self._seen_s = now
        since_s = looked_up(self._apps, self._since_s, apps, now)
        since_app_s = looked_up(self._apps, self._since_app_s, apps, self._app_s)
        self._apps, self._since_s, self._since_app_s = apps, since_s, since_app_s
        life_s = now - since_s
        average = np.full(len(apps), float(len(apps)))
        np.divide(self._app_s - since_app_s, life_s, out=average, where=life_s > 0)
        return np.asarray(np.maximum(average, 1.0))

    def _rho(self, view: View, claims: Claims, open_: Bools) -> Floats:
        """Return the present ρ of each job: with its lease, or after waiting for one more lease."""
        gpus = np.where(open_, claims.low, self._workers)
        level = np.where(open_, (gpus > 1) * 1, view.jobs.level)
        rows = np.arange(len(gpus))
        fastest = np.max([speed(view, rows, t, gpus, level) for t in range(self._types)], axis=0)
        return time_shared(claims.age_s + open_ * self.lease_s, claims.left_s, fastest) / claims.ideal_s

    def _bidders(self, app: Ints, rho: Floats, open_: Bools, apps: int) -> tuple[Ints, Floats]:
        """Return the job for which each of the worst applications bids, worst first, and its ρ without the auction."""
        sign = 1.0 if self.finish == "first" else -1.0
        rows = np.flatnonzero(open_)
        rows = rows[np.lexsort((rows, sign * rho[rows], app[rows]))]
        rows = rows[np.unique(app[rows], return_index=True)[1]]  # one for each application
        have = np.full(apps, np.inf)
        if self.finish == "first":
            np.minimum.at(have, app[~open_], rho[~open_])
        worst_first = np.argsort(-np.minimum(rho[rows], have[app[rows]]), kind="stable")
        count = max(int(np.ceil((1 - self.f) * len(rows) - RESOURCE_SLACK)), 1)
        chosen = rows[worst_first[:count]]
        return chosen, have[app[chosen]]

    def _auction(
        self, view: View, claims: Claims, pool: Pool, left: Ints, rows: Ints, have: Floats
    ) -> list[tuple[int, int, int, float]]:
        """Return winners as (row, GPU type, GPUs, the part that is kept), and reduce `left` to what no bidder won."""
        won: list[tuple[int, int, int, float]] = []
        low = claims.low[rows]
        accepted = accepts(view, rows, self._types)
        at_low = np.stack([speed(view, rows, t, low, pool.level(t, low)) for t in range(self._types)]) * accepted
        while True:
            at_low[low > left[:, None]] = 0.0
            favourite = np.where(at_low.max(axis=0) > 0, at_low.argmax(axis=0), -1)
            if not (favourite >= 0).any():
                return won
            for t in np.unique(favourite[favourite >= 0]).tolist():
                who = np.flatnonzero(favourite == t)
                bids = rows[who]
                age_s, left_s = claims.age_s[bids, None], claims.left_s[bids, None]
                sizes = options(claims.low[bids], claims.high[bids], int(left[t]), BID_SIZES)
                shared_s = time_shared(age_s, left_s, speed(view, bids[:, None], t, sizes, pool.level(t, sizes)))
                shared_s[:, :1] = time_shared(age_s + self.lease_s, left_s, at_low[t, who, None])
                values = np.maximum(claims.ideal_s[bids, None] / shared_s, 1.0 / have[who, None])
                outcome = partial_allocation(int(left[t]), sizes, values)
                at_low[t, who] = 0.0
                for i in np.flatnonzero(outcome.choices).tolist():
                    gpus = int(sizes[i, outcome.choices[i]])
                    won.append((int(bids[i]), t, gpus, float(outcome.kept[i])))
                    at_low[:, who[i]] = 0.0
                    left[t] -= gpus

    def _promise(self, view: View, claims: Claims, left: Ints, losers: Ints, until: Floats) -> None:
        """Promise GPUs to the worst bidder that got nothing, for the time when enough leases have ended."""
        if self._promised != NOBODY:
            return
        accepted = accepts(view, losers, self._types)
        leased = np.flatnonzero(until > view.now)
        leased = leased[np.argsort(until[leased], kind="stable")].tolist()
        for row, types in zip(losers.tolist(), accepted.T):
            there = left.copy()
            for other in leased:
                for part in view.placement(other):
                    there[view.nodes.type[part.node]] += part.devices.bit_count()
                if (there[types] >= claims.low[row]).any():
                    self._promised, self._due_s = int(view.jobs.index[row]), float(until[other])
                    return

    def _keep_promise(self, view: View, claims: Claims, key: Floats, left: Ints, lease_s: Floats) -> None:
        """Put the job that was promised GPUs before all bidders, when the promise is due."""
        rows = np.flatnonzero((view.jobs.index == self._promised) & (view.jobs.state != 1))
        if not len(rows):
            self._promised = NOBODY
        elif self._due_s <= view.now:
            row, low = int(rows[0]), int(claims.low[rows[0]])
            fitting = np.flatnonzero(accepts(view, rows, self._types)[:, 0] & (low <= left))
            if not len(fitting) or view.now > self._due_s + self.lease_s:  # nodes failed, or it cannot be placed
                self._promised = NOBODY
                return
            key[row], self._workers[row], lease_s[row] = PROMISED, low, self.lease_s
            left[fitting[0]] -= low

    def state(self) -> dict[str, Any]:
        kept = {name: getattr(self, f"_{name}") for name in MEMORY}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in kept.items()}

    def restore(self, state: dict[str, Any]) -> None:
        for name, kind in MEMORY.items():
            setattr(self, f"_{name}", np.array(state[name], kind) if isinstance(state[name], list) else state[name])


def accepts(view: View, rows: Ints, types: int) -> Bools:
    """Return which GPU types (rows) these jobs (columns) accept."""
    return np.asarray(view.jobs.types[rows] >> np.arange(types)[:, None] & 1 == 1)
