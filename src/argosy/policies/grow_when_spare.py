"""Give GPUs that no job needs to jobs that become better with them: more replicas, a larger network, or nobody.

Decision: the inner policy orders and sizes jobs as if no spare GPUs had been given. What is left over is offered to
running jobs that take spare GPUs (`spare_gpus`) and have a quality curve. Each offer, replicas or growth, is worth what
the curve expects of it for the time that is left, less the more likely it is that the GPUs are claimed before the end.
A single price per GPU-hour decides who gets which. As soon as a waiting job could use them, spare GPUs are given back:
first by the jobs that lose least, and all of them if that job still waits.
State used: demands, placements, service, progress within time budgets, quality curves, free GPUs, and whatever the
inner policy uses.
Parameters: `inner`, the policy that decides everything else, with its own parameters in braces, e.g.
`grow-when-spare:inner={las:quantum_s=60}`; `use`, what spare GPUs are for: `best` of both, `growth`, `replicas` or
`nobody`; `by`, who gets them: `benefit`, or first come, first served (`arrival`), whatever it brings; `at_least`, the
expected gain in accuracy that is worth the trouble; `reserve`, the share of the GPUs that stays free for jobs that
arrive; `idle`, how many idle nodes stay so, too, unless a job of that size arrives.
Differences from the paper: there is no paper; no published policy decides between replicas and growth for a cluster.
How likely GPUs are claimed is learned by the hour of the day. Spare GPUs are only given to jobs that run at their full
size. A policy that bids cannot be inside; around one that plans, jobs get only what its plans leave free on their own
nodes. An elastic job inside a policy that only orders may start with fewer GPUs than it asks for.
References: the network growth of Argosy itself (docs/growth.md).

    worth = p·gain(left) + (1 − p)·kept·gain(left) / 2       p: nobody claims the GPUs before the end
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import Context, View
from argosy.mechanism.plan import Plan
from argosy.policies.base import Floats, Ints, Sizes, register
from argosy.policies.common.spare_gpus import SEES, SpareGpus
from argosy.policies.common.spare_plans import extend_plan
from argosy.policies.common.wrapper import Wrapper


@register(
    "grow-when-spare", "spare GPUs go to replicas or growth of jobs that gain by them; any policy decides the rest"
)
class GrowWhenSpare(Wrapper):
    uses = SEES

    def __init__(
        self,
        inner: str = "fifo",
        use: str = "best",
        by: str = "benefit",
        at_least: float = 0.002,
        reserve: float = 0.05,
        idle: int = 2,
    ) -> None:
        hint = "give a policy that orders, sizes or plans, such as srtf, optimus or gavel-ftf"
        takes = ("preemptive", "backfill", "placer", "every_s", "keeps_books")
        self.wrap(inner, takes, refuses=("bid",), hint=hint)
        self.spare = SpareGpus(use, by, at_least, reserve, idle)
        own = {"plan"} if "plan" in self.inner.answers else {"rank", "size", "wake_at"}
        self.answers = frozenset(own) | (self.inner.answers & {"place", "on_event", "reclaim"})

    def reset(self, context: Context) -> None:
        super().reset(context)
        self.spare.reset()
        self._key: Floats = np.zeros(0)
        self._seen: View | None = None

    def rank(self, view: View) -> Floats:
        self._seen = self.spare.without(view)
        self._key = self.inner.rank(self._seen)
        return self._key

    def size(self, view: View) -> Sizes:
        seen, self._seen = self._seen, None
        assert seen is not None  # it is asked after `rank`
        jobs = seen.jobs
        if "size" in self.inner.answers:
            sizes = self.inner.size(seen)
        else:
            sizes = Sizes(np.maximum(np.ceil(jobs.gpus), 1).astype(np.int64))
        return self.spare.extend(view, self._key, sizes, preemptive=self.preemptive)

    def plan(self, view: View) -> Plan:
        seen = self.spare.without(view)
        return extend_plan(self.spare, view, seen, self.inner.plan(seen))

    def place(self, view: View) -> Ints:
        return self.inner.place(view)

    def reclaim(self, view: View, nodes: Ints, count: int) -> Ints:
        return self.inner.reclaim(view, nodes, count)

    def wake_at(self, view: View) -> float | None:
        times = [self.inner.wake_at(view), self.spare.wake_at(view.now)]
        return min((time for time in times if time is not None), default=None)

    def state(self) -> dict[str, Any]:
        return {"inner": self.inner.state(), "spare": self.spare.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.inner.restore(state["inner"])
        self.spare.restore(state["spare"])
