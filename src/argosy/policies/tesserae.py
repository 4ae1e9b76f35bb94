"""Tesserae: placement, migration and packing as graph matchings, under any order of jobs.

Decision: jobs are served in the order of the inner policy, and preempted if it preempts; a gang goes on as few nodes as
it needs, where it leaves least room. If enough GPUs are free, but not together, jobs are rearranged: a new arrangement
is packed from the largest gang down, and laid over the nodes so that the fewest jobs move (a minimum-cost assignment of
new to present nodes). Jobs that found no room may then share the GPUs of running jobs of the same size, if memory
suffices and both together do more than one alone: a maximum-weight matching of waiting and running jobs.
State used: demands, placements, throughput profiles (pairs among them), nodes, and whatever the inner policy uses.
Parameters: `inner`, the policy that orders, with its own parameters in braces, e.g.
`tesserae:inner={las:quantum_s=60}`; `pack`, whether jobs share GPUs; `least_together`, the sum of the speeds of a pair
relative to running alone must be more; `most_moves`, jobs that move so that one gang fits; `guests`, waiting jobs that
are considered for sharing.
Differences from the paper: this is a reconstruction. Only the abstract and notes were public, no code; the weights of
both matchings are ours (a move costs 1 in all, by parts of a job; a pair is worth the sum of its relative speeds). A
new arrangement is made when a gang does not fit otherwise, not in every round, because moves cost time here. Jobs keep
their degree of parallelism when packed. A pair stays together until one of them ends, and is not preempted. Jobs with
parameter servers and shares of a GPU neither move nor share.
References: Bian et al., Tesserae, arXiv 2508.04953.

    moves:  min Σ cost(new, π(new))    cost(v, u) = Σ over GPUs of jobs on v that were not on u of 1 / gpus(job)
    pairs:  max Σ speed(guest | host) + speed(host | guest), over pairs above `least_together`
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, JobState, View
from argosy.errors import InputError
from argosy.mechanism.compose import Walk
from argosy.mechanism.plan import Plan, Why
from argosy.perf.footprint import gpu_memory_gib
from argosy.policies.base import Floats, Ints, register
from argosy.policies.common.matching import make_room, most_weight
from argosy.policies.common.wrapper import Wrapper

UNKNOWN = 0  # the kind of jobs whose network is not known, which share GPUs with nobody


def pair_weights(view: View, guests: Ints, hosts: Ints, memory_gib: Floats) -> Floats:
    """Return what each pair does together, relative to running alone; 0 where two jobs cannot share GPUs."""
    jobs, profile = view.jobs, view.profile
    kind, kinds = jobs.kind[guests][:, None], jobs.kind[hosts][None, :]
    weight = np.asarray(profile.beside(kind, kinds) + profile.beside(kinds, kind), np.float64)
    needs = profile.footprint.memory_gib[kind] + profile.footprint.memory_gib[kinds]
    fits = (jobs.gpus[guests][:, None] == jobs.held[hosts]) & (needs <= memory_gib[jobs.held_type[hosts]])
    fits &= (jobs.types[guests][:, None] >> jobs.held_type[hosts] & 1) == 1
    return np.where(fits, weight, 0.0)


@register(
    "tesserae", "placement, migration and packing as matchings; any policy orders", "Bian et al., arXiv 2508.04953"
)
class Tesserae(Wrapper):
    uses = frozenset({"demand", "placement", "nodes", "profile"})

    def __init__(
        self,
        inner: str = "tiresias-las",
        pack: bool = True,
        least_together: float = 1.2,
        most_moves: int = 4,
        guests: int = 64,
    ) -> None:
        self.wrap(inner, takes=("preemptive", "backfill", "every_s"), refuses=("size", "bid", "plan"))
        if not 1 <= least_together <= 2:
            raise InputError(f"tesserae: least_together must be 1..2, is {least_together}")
        for name, value in (("most_moves", most_moves), ("guests", guests)):
            if not 0 <= value <= 100_000:
                raise InputError(f"tesserae: {name} must be 0..100000, is {value}")
        self.packs, self.least_together, self.most_moves, self.guests = pack, least_together, most_moves, guests

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._limits = context.queue_limits
        self._memory_gib = np.array([gpu_memory_gib(name) for name in context.gpu_types])
        self._largest = int(context.node_gpus.max(initial=1))

    def plan(self, view: View) -> Plan:
        jobs = view.jobs
        if not len(jobs):
            return Plan.keep(view)
        paired = jobs.peer >= 0
        self._anywhere = False
        walk = Walk(view, self._place, limits=self._limits, fixed=paired, fitting=True)
        order = [int(row) for row in np.lexsort((jobs.index, self.inner.rank(view)))]
        for position, row in enumerate(order):
            if jobs.state[row] != JobState.WAITING:
                continue
            if not (self._serve(view, walk, row, order[position + 1 :]) or self.backfill):
                break
        if self.packs:
            self._share(view, walk, order)
        walk.plan.wake_at = self.inner.wake_at(view)
        return walk.plan

    def _serve(self, view: View, walk: Walk, row: int, behind: list[int]) -> bool:
        """Start a job: on free nodes, else by moving others, else spread over nodes, else in place of others."""
        if walk.start(row):
            return True
        if walk.plan.reasons[row].why is Why.QUOTA:
            return False
        if walk.plan.reasons[row].why is Why.FRAGMENTED:
            found = make_room(view, walk, row, np.flatnonzero(view.jobs.state == JobState.RUNNING), self.most_moves)
            if found is not None and walk.rearrange(found.places):
                return True
            self._anywhere = True
            started = walk.start(row)
            self._anywhere = False
            return started
        return self.preemptive and walk.make_way(row, behind)

    def _place(self, view: View, row: int, gpus: int, free: Ints) -> dict[int, int] | None:
        """Put a gang on the nodes of one type that it fills best, as few as it needs (or, if need be, more)."""
        nodes = view.nodes
        best: dict[int, int] | None = None
        fastest = -1.0
        for t in np.unique(nodes.type[free > 0]).tolist():
            speed = float(view.profile.rate(view.jobs.kind[row], t, gpus, 1))
            chosen = _fill(np.where(nodes.type == t, free, 0), nodes.gpus, gpus, self._anywhere)
            if chosen is not None and speed > fastest:
                best, fastest = chosen, speed
        return best

    def _share(self, view: View, walk: Walk, order: list[int]) -> None:
        """Let jobs that found no room share the GPUs of running jobs."""
        jobs = view.jobs
        able = (jobs.gpus >= 1) & (jobs.kind != UNKNOWN) & (jobs.ps == 0) & (jobs.peer < 0)
        waiting = [r for r in order if able[r] and jobs.state[r] == JobState.WAITING and self._is_left(walk, r)]
        hosts = [r for r in order if able[r] and walk.runs(r) and r not in walk.plan.placements and not jobs.servers[r]]
        waiting = waiting[: self.guests]
        if not waiting or not hosts:
            return
        weight = pair_weights(view, np.array(waiting), np.array(hosts), self._memory_gib)
        for guest, host in most_weight(weight, self.least_together):
            self._pack(view, walk, waiting[guest], hosts[host])

    def _is_left(self, walk: Walk, row: int) -> bool:
        reason = walk.plan.reasons.get(row)
        return row not in walk.plan.placements and (reason is None or reason.why is not Why.QUOTA)

    def _pack(self, view: View, walk: Walk, guest: int, host: int) -> None:
        """Pack a job if its host's nodes have CPUs and memory for both and are open to it."""
        nodes, jobs = view.nodes, view.jobs
        parts = view.placement(host)
        owners = {int(nodes.owner[part.node]) for part in parts} | {-1, int(jobs.queue[guest])}
        is_open = len(owners) <= 2 and all(nodes.state[part.node] == 0 for part in parts)
        limit, queue = self._limits[jobs.queue[guest]], jobs.queue == jobs.queue[guest]
        more = sum(float(jobs.gpus[row]) for row in (*walk.plan.placements, *walk.plan.packs) if queue[row])
        if is_open and float(jobs.held[queue].sum()) + more + jobs.gpus[guest] <= limit and walk.seat(guest, host):
            walk.plan.pack(guest, host)
            walk.plan.reasons.pop(guest, None)


def _fill(free: Ints, size: Ints, gpus: int, anywhere: bool) -> dict[int, int] | None:
    """Return GPUs by node: the fullest node that holds the whole gang, else the emptiest ones."""
    if int(free.sum()) < gpus:
        return None
    needs_nodes = -(-gpus // int(size[free > 0].max()))
    whole = np.flatnonzero(free >= gpus)
    if len(whole):
        return {int(whole[free[whole].argmin()]): gpus}
    chosen: dict[int, int] = {}
    for node in np.argsort(-free, kind="stable").tolist():
        count = min(int(free[node]), gpus)
        if not count:
            break
        chosen[node], gpus = count, gpus - count
    return chosen if anywhere or len(chosen) <= needs_nodes else None
