"""Joint: every job bids for sizes on GPU types, and the bids that are worth most together are taken.

Decision: at each event every job bids for each size that it takes on each GPU type that it accepts. A bid is worth the
speed that the job would have, less the time that changing to it costs, divided by a power of the work that it has left.
What a job has now is worth the rate that it shows, and counts more, so that jobs are not moved for small gains. The
mechanism takes at most one bid of each job, within capacity, with the largest sum of values. It places those jobs on
machines that are believed to be fast, and moves jobs to faster ones where that saves more time than it costs.
State used: demands, what jobs hold, throughput profiles, rates measured, costs of changes; work done, the whole work
where it is declared, and what became of the jobs that have ended.
Parameters: `urgency`, the power: 0 weighs all jobs alike, 1 goes by what is left alone; `relative`, a power of the
job's best speed, by which values are divided: at 1 - urgency a job counts by the share of its best speed that it gets
and by the time that it would need at its best, not at the size that it asked for; `elastic`, by how much urgency is
less if all jobs are elastic; `stay`, the factor for what a job has now, where changes cost time; `every_s`, how often
it decides if nothing happens; `prior`, how many ended jobs the prior distribution of lengths counts as; `resize` and
`retype`, whether jobs get other sizes than they ask for, and other GPU types than the fastest; `machines`, whether it
believes that machines differ in speed; `pack`, whether waiting jobs also bid to share the GPUs of running ones.
Differences from the paper: there is no paper; this is the hand-written composition of what others do apart: sizes as in
Optimus, GPU types as in Gavel, order as in Tiresias' Gittins index.
References: Fox, Operations Research 1966 (marginal analysis); Narayanan et al., OSDI'20; Gu et al., NSDI'19.

    value(j, type, size) = x·L / (L + o·x) / L^u / best^relative · (stay if it is what j has now)
    u = urgency - elastic · (share of the jobs that are elastic)
    x: speed relative to the requested size;  best: the largest x of the job;  L: work left
    o: overhead of the change in seconds
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import Context, Overhead, View
from argosy.errors import InputError
from argosy.mechanism.bids import Bids
from argosy.policies.base import register
from argosy.policies.common.bidder import Bidder
from argosy.policies.common.candidates import CandidateTable
from argosy.policies.common.machine_speeds import MachineSpeeds
from argosy.policies.common.partners import PartnerTable
from argosy.policies.common.remaining_work import RemainingWork

LEAST_SPEED = 1e-9  # that something is divided by


@register("joint", "jobs bid for sizes and GPU types; the bids worth most together are taken", "Argosy")
class Joint(Bidder):
    def __init__(
        self,
        urgency: float = 0.6,
        stay: float = 1.5,
        every_s: float = 600.0,
        prior: int = 20,
        resize: bool = True,
        retype: bool = True,
        machines: bool = True,
        relative: float = 0.0,
        elastic: float = 0.0,
        pack: bool = False,
    ) -> None:
        powers = (("urgency", urgency, 0.0), ("relative", relative, 0.0), ("elastic", elastic, 0.0))
        for name, value, least in (*powers, ("stay", stay, 1.0), ("every_s", every_s, 1.0)):
            if not least <= value < np.inf:
                raise InputError(f"joint: {name} must be at least {least:g}, is {value}")
        if not 2 <= prior <= 10_000:
            raise InputError(f"joint: prior must be 2..10000 jobs, is {prior}")
        self.urgency, self.stay, self.every_s, self.prior = urgency, stay, every_s, prior
        self.resize, self.retype, self.machines = resize, retype, machines
        self.relative, self.elastic, self.pack = relative, elastic, pack

    def reset(self, context: Context) -> None:
        self._start_s = context.costs()[:, Overhead.START]  # a live cluster measures costs, and keeps this up to date
        self._candidates = CandidateTable(context, resize=self.resize, retype=self.retype)
        self._machines = MachineSpeeds(context, differ=self.machines)
        self.remaining = RemainingWork(self.prior)
        self._partners = PartnerTable(context) if self.pack else None

    def bid(self, view: View) -> Bids:
        left_s = self.remaining.of(view)
        machines = self._machines.apply(view, self._candidates.of(view), left_s)
        c, left = machines.candidates, left_s[machines.candidates.job]
        share = float(np.mean(view.jobs.max_gpus > view.jobs.min_gpus)) if len(view.jobs) else 0.0
        value = c.speed * left / (left + c.overhead_s * c.speed) / left ** (self.urgency - self.elastic * share)
        if self.relative:
            best = np.zeros(len(view.jobs))
            np.maximum.at(best, c.job, c.speed)
            value = value / np.maximum(best, LEAST_SPEED)[c.job] ** self.relative
        value = np.where(c.present, self.stay if self._start_s.any() else 1.0, 1.0) * value * view.jobs.weight[c.job]
        speed, least_gain = machines.speed, machines.least_gain
        bids = Bids(c.job, c.type, c.workers, value, c.servers, speed=speed, least_gain=least_gain)
        return bids if self._partners is None else self._partners.added(view, c, bids)
