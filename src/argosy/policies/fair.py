"""Share the cluster fairly between queues (or users, or applications), with another policy inside each.

Decision: repeatedly, the group that uses the fewest GPUs for its weight is served next, and the inner policy
chooses which of its jobs. All picks of one decision make one ranking.
State used: queues, requested and held GPUs, and whatever the inner policy uses.
Parameters: `inner`, the policy inside each group, with its own parameters in braces, e.g.
`fair:inner={las:quantum_s=60}`; `by`, what shares: `queue` (weights from the cluster file), `user` or `app`
(equal).
Differences from the paper: only GPUs are shared (for several resources see drf); a job that does not fit blocks neither
its own group nor another, even where the inner policy alone would block. Running jobs are only preempted in favour of a
group with a smaller share if the inner policy is preemptive.
References: Demers et al., Analysis and simulation of a fair queueing algorithm, SIGCOMM'89: a job's key is
the start tag of its group's virtual clock.

    key(j) = Σ gpus(i) / weight(group)    over the jobs i of j's group that come before j
    before: running ones (held, if nothing is preempted), then the inner policy's order
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.policies.base import Floats, register
from argosy.policies.common.wrapper import Wrapper

GROUPS = ("queue", "user", "app")
LEAST_GPUS = 0.001  # what a CPU-only job counts as, so that later jobs of its group stay behind it


@register("fair", "fair share between queues or users, any order inside each", "Demers et al., SIGCOMM'89")
class Fair(Wrapper):
    uses = frozenset({"demand", "placement"})

    def __init__(self, inner: str = "fifo", by: str = "queue") -> None:
        if by not in GROUPS:
            raise InputError(f"fair: by must be one of {', '.join(GROUPS)}, is {by!r}")
        self.by = by
        self.wrap(inner, takes=("preemptive", "eager", "placer"))

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._weights = context.queue_weights if self.by == "queue" else None

    def rank(self, view: View) -> Floats:
        jobs = view.jobs
        if not len(jobs):
            return np.zeros(0)
        group = getattr(jobs, self.by)
        waits = jobs.state == 0
        lane = group if self.preemptive else 2 * group + waits  # running jobs stay, and count first
        order = np.lexsort((jobs.index, self.inner.rank(view), lane))
        gpus = np.maximum(np.where(waits, jobs.gpus, jobs.held), LEAST_GPUS)[order]
        group = group[order]
        before = np.cumsum(gpus) - gpus
        first = np.concatenate([[True], group[1:] != group[:-1]])
        used = before - before[first][np.cumsum(first) - 1]
        key = np.empty(len(order))
        key[order] = used if self._weights is None else used / self._weights[group]
        return key
