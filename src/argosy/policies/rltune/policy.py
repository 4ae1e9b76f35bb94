"""RLTune: a learned priority picks the next job to start, and the job that was picked is waited for.

Decision: of the first 128 queued jobs in the order of a base heuristic, a small network, the same for every job, picks
the one with the highest score. The job starts if it fits, and the next one is picked. A job that does not fit is
waited for, and nothing else starts before it. Running jobs are left alone. A job is placed on as few nodes of one GPU
type as it needs (tier 1), the first of them by number; or an integer program chooses where: among the best ways of
tier 1 and of tier 2 (one node more, if this does not leave more nodes partly used), or for the three best jobs at once.
State used: submit times and demands of the queued jobs, free resources of the nodes; what the base heuristic reads.
Parameters: `weights`, a file or the name of shipped ones (`argosy zoo`); `base`, the heuristic that orders the queue:
a registered policy that only ranks (`fifo`, `sjf`, `smallest-first`), `slurm` or `f1`; `mapping`: `first`, `milp` (one
job, with the next one in mind) or `milp3` (three jobs at once, our reconstruction); `released`, the program of `milp`
as the authors released it, without its two repairs; `shown`, how many jobs the network sees.
Differences from the paper: its jobs ask for whole GPUs of one pool of equal nodes. Here the nodes of a GPU type are a
pool. A job that accepts several types sees the sums over their nodes, and takes the first type, by node number, on
which it fits. Nodes of a type may differ in size: tier 1 is the fewest nodes that could hold the job if all were empty.
A share of a GPU counts as its share in the features and needs a device with room; a CPU-only job needs a node with
CPUs. An elastic job gets the size it asks for, or the largest that there is if that is too large for the cluster. Jobs
that CPUs, memory, the limit of their queue, reservations or faults keep from starting even on empty nodes are not
shown. GPUs of a node are filled in the order of node numbers. Partial nodes are related to all nodes of the pool (the
authors: to those with a free GPU), and tier 2 counts in the features, as the text says (the authors' code never asks
for it there). The `next` job of the program is the first other one in the base order; in the released form it is
always the second one, even if that is the job being placed, and its term for partial nodes is void. The likeliest job
is picked, not a drawn one. docs/rltune.md says how the shipped weights were trained.
References: Dongare et al., RLTune, SoCC'25 (arXiv 2512.10271); code at dshruti20/RLTune.

    pick = argmax_j score(x_j),  x_j = (wait, size, demand / supply, supply left, partial nodes, ways, can start)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import WHOLE, Context, View
from argosy.errors import InputError
from argosy.mechanism.plan import Plan, Reason, Why
from argosy.policies.base import Floats, Ints, Policy, register
from argosy.policies.common.influences import in_words, occluded
from argosy.policies.rltune.features import FEATURES, observe
from argosy.policies.rltune.heuristics import Heuristic, find_heuristic
from argosy.policies.rltune.mapping import Program, Request, choose_way, first_by_number
from argosy.policies.rltune.network import Actor, Matrix, softmax
from argosy.policies.rltune.pools import Pools, Room
from argosy.policies.rltune.ways import Way
from argosy.slack import GPU_SLACK

SHOWN = 128
MAPPINGS = ("first", "milp", "milp3")
TOGETHER = 3  # jobs of one program
NOBODY = -1


@register("rltune", "a learned priority picks the next job, which is then waited for", "Dongare et al., SoCC'25")
class RlTune(Policy):
    uses = frozenset({"demand", "placement", "nodes"})
    backfill = False

    def __init__(
        self,
        weights: str | Actor = "rltune",
        base: str = "fifo",
        mapping: str = "first",
        released: bool = False,
        shown: int = SHOWN,
    ) -> None:
        if mapping not in MAPPINGS:
            raise InputError(f"rltune: mapping must be one of {', '.join(MAPPINGS)}, is {mapping!r}")
        if shown < 1:
            raise InputError(f"rltune: shown must be at least 1 job, is {shown}")
        self.actor = Actor.find(weights)
        self.base: Heuristic = find_heuristic(base)
        self.mapping, self.released, self.shown = mapping, released, shown
        self.uses = RlTune.uses | self.base.uses

    def reset(self, context: Context) -> None:
        self._pools = Pools(context)
        self._limits = context.queue_limits
        self._picked = NOBODY  # the index of the job that is waited for
        self._seen: tuple[Ints, Matrix] | None = None  # the jobs that were first shown in the last decision
        self.base.reset(context)

    def choose(self, table: Matrix) -> int:
        """Return which of the jobs with these features to pick; training draws it instead."""
        return int(self.actor.scores(table).argmax())

    def plan(self, view: View) -> Plan:
        if self._still_waits(view):
            return self._explained(Plan.keep(view), view, np.flatnonzero(view.jobs.state == 0))
        queue = Queue(self, view)
        if not len(queue.rows):
            return queue.room.plan
        if self._picked != NOBODY:
            waited_for = np.flatnonzero(view.jobs.index[queue.rows] == self._picked)
            self._picked = NOBODY
            if len(waited_for) and not queue.start(int(waited_for[0])):
                return self._wait_for(queue, int(waited_for[0]))
        self._seen = None
        while len(shown := queue.shown()):
            table = observe(view, queue.room, queue.rows[shown], queue.kinds[shown])
            self._seen = self._seen or (view.jobs.index[queue.rows[shown]], table)
            position = int(shown[self.choose(table) if len(shown) > 1 else 0])
            if self.mapping == "milp3":
                queue.start_together(position, shown, self.actor.scores(table))
            else:
                queue.start(position)
            if queue.waits[position]:
                return self._wait_for(queue, position)
        return queue.room.plan

    def _still_waits(self, view: View) -> bool:
        """Say whether nothing can be decided, because the job that is waited for does not fit; quicker than a plan."""
        if self._picked == NOBODY:
            return False
        row = np.flatnonzero((view.jobs.index == self._picked) & (view.jobs.state == 0))
        if not len(row):
            return False
        nodes, table = view.nodes, self._pools
        kind = int(table.kinds_of(view, row)[0])
        gpus = int(table.kinds.gpus[kind])
        if gpus == 0 or table.kinds.milli[kind] < WHOLE or not table.kinds.can_run[kind]:
            return False
        usable = table.usable(kind, nodes.free, np.stack([nodes.free_cpus, nodes.free_memory_gib], axis=1))
        return first_by_number(usable, nodes.type, table.kinds.fewest[kind], gpus) is None

    def _wait_for(self, queue: Queue, position: int) -> Plan:
        """Remember the job that is waited for, and tell the others."""
        view, plan = queue.room.view, queue.room.plan
        self._picked = int(view.jobs.index[queue.rows[position]])
        return self._explained(plan, view, queue.rows[queue.waits])

    def _explained(self, plan: Plan, view: View, waiting: Ints) -> Plan:
        """Say why jobs wait: one does not fit, and the others are behind it."""
        picked = self._picked
        behind = Reason(Why.BEHIND, f"job {picked} was picked first and waits", behind=(picked,))
        row = int(waiting[view.jobs.index[waiting] == picked][0])
        own = plan.reasons.get(row, Reason(Why.FRAGMENTED, "its GPUs are not free on as few nodes as it needs"))
        plan.reasons = dict.fromkeys(waiting.tolist(), behind) | {row: own}
        return plan

    def because(self, job: int) -> str:
        index, table = self._seen or (np.zeros(0, np.int64), np.zeros((0, len(FEATURES))))
        rows = np.flatnonzero(index == job)
        if not len(rows) or len(index) < 2:
            return ""
        row = int(rows[0])
        score = self.actor.scores(np.concatenate([table[row : row + 1], occluded(table, row)]))
        return in_words(FEATURES, score[0] - score[1:], table[row], table.mean(axis=0), len(index))

    def state(self) -> dict[str, Any]:
        return {"picked": self._picked, "base": self.base.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self._picked = int(state["picked"])
        self.base.restore(state["base"])


class Queue:
    """The queued jobs of one decision, in the order of the base heuristic, and what is free for them."""

    def __init__(self, policy: RlTune, view: View) -> None:
        self.policy, self.room = policy, Room(view, policy._pools)
        jobs = view.jobs
        waiting = np.flatnonzero(jobs.state == 0)
        key = policy.base.rank(view)[waiting] if len(waiting) else np.zeros(0)
        self.rows: Ints = waiting[np.lexsort((jobs.index[waiting], key))]
        self.kinds = policy._pools.kinds_of(view, self.rows)
        self.waits = np.ones(len(self.rows), bool)
        self._limited = bool(np.isfinite(policy._limits).any())
        self._can_run = policy._pools.kinds.can_run[self.kinds] if len(self.rows) else self.waits
        self._held = np.bincount(jobs.queue, np.where(jobs.state > 0, jobs.held, 0.0), len(policy._limits))

    def shown(self) -> Ints:
        """Return the positions of the jobs that the network sees."""
        able = self.waits & self._can_run
        if self._limited:
            able &= self._within_limit(self.rows)
        return np.flatnonzero(able)[: self.policy.shown]

    def _within_limit(self, rows: Ints) -> Any:
        jobs, limits = self.room.view.jobs, self.policy._limits
        queue = jobs.queue[rows]
        return self._held[queue] + jobs.gpus[rows] <= limits[queue] + GPU_SLACK

    def start(self, position: int) -> bool:
        """Start the job at this position, if it fits."""
        way = self._way(position)
        return way is not None and self._put(position, way)

    def _put(self, position: int, way: Way) -> bool:
        jobs, row = self.room.view.jobs, int(self.rows[position])
        if not self._within_limit(self.rows[position : position + 1])[0]:
            return False
        if not self.room.put(row, int(self.kinds[position]), way):
            return False
        self.waits[position] = False
        self._held[jobs.queue[row]] += jobs.gpus[row]
        return True

    def _way(self, position: int) -> Way | None:
        room, kind = self.room, int(self.kinds[position])
        table = room.pools.kinds
        usable, gpus = room.usable(kind), int(table.gpus[kind])
        if gpus == 0:
            return {}  # the walk chooses its node
        fewest = table.fewest[kind]
        is_share = table.milli[kind] < WHOLE
        if self.policy.mapping == "first" or is_share:
            return first_by_number(usable, room.node_type, fewest, gpus)
        following = self._next(position)
        free = room.free.gpus
        nodes = free, room.node_type, room.node_gpus
        return choose_way(usable, *nodes, fewest, gpus, following, self.policy.released)

    def _next(self, position: int) -> float:
        """Return the GPUs of the job that the program for one job keeps room for; 0: of none."""
        queued = np.flatnonzero(self.waits)
        if self.policy.released:
            chosen = queued[min(1, len(queued) - 1)]
        else:
            others = queued[queued != position]
            if not len(others):
                return 0.0
            chosen = others[0]
        return float(self.room.pools.kinds.gpus[self.kinds[chosen]])

    def start_together(self, position: int, shown: Ints, scores: Floats) -> None:
        """Start those of the job and of the two next likeliest ones that the program for several jobs chooses."""
        table = self.room.pools.kinds
        value = softmax(scores)
        likeliest = shown[np.argsort(-value, kind="stable")]
        chosen = [position, *(int(p) for p in likeliest if p != position)][:TOGETHER]
        whole = [p for p in chosen if table.gpus[self.kinds[p]] > 0 and table.milli[self.kinds[p]] == WHOLE]
        if position not in whole:
            self.start(position)
            return
        where = {int(p): i for i, p in enumerate(shown)}
        requests = [self._request(p, float(value[where[p]])) for p in whole]
        room = self.room
        ways, _ = Program(requests, room.free.gpus, room.node_gpus, room.node_type, room.spare).solve()
        for p, way in zip(whole, ways):
            if way is not None:
                self._put(p, way)

    def _request(self, position: int, probability: float) -> Request:
        kind = int(self.kinds[position])
        table = self.room.pools.kinds
        value = max(probability, 1e-6)  # starting a job is worth something
        return Request(int(table.gpus[kind]), value, self.room.usable(kind), table.fewest[kind], table.units[kind])
