"""Argonaut: one learned network values the bids of all jobs, so that order, size and GPU type are decided together.

Decision: at each event every job bids for each size that it takes on each GPU type that it accepts. The value of a bid
is the exponential of a network's output. The mechanism takes at most one bid of each job, within capacity, with the
largest sum of values, and places those jobs on machines that are believed to be fast: so whatever the network says,
every decision is feasible. Running jobs move to faster machines where that saves more time than it costs.
State used: as `joint`: demands, what jobs hold, throughput profiles, rates measured, costs of changes; work done, the
whole work where it is declared, and what became of the jobs that have ended. It sees no true durations and no estimates
of them.
Parameters: `weights`, a file or the name of shipped ones; `every_s`, how often it decides if nothing happens;
`patience_h`, after so long a wait a job goes first, whatever the network says, unless the wait is short for its length;
`pack`, whether waiting jobs also bid to share the GPUs of running ones, where profiles know how fast both would be.
Differences from the paper: there is no paper. The network begins as the hand-written rule `joint`; evolution strategies
then change its weights for shorter completion times of whole runs, on jobs, loads and cluster sizes that vary. It is
equivariant and none of its features depends on the number of jobs, nodes or types: one set of weights serves rigid
gangs, elastic and parameter-server jobs, and clusters of one or several GPU types.
References: Salimans et al., arXiv 1703.03864 (evolution strategies); Zaheer et al., NeurIPS'17 (deep sets); `joint`.

    value(bid) = weight(job) · exp(s·f_bid + t·f_job + w·σ(E f_bid + F h_job + d) + v·h_job)      (see bid_network.py)
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from argosy import zoo
from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.mechanism.bids import Bids
from argosy.policies.base import Floats, Ints, register
from argosy.policies.common.bidder import Bidder
from argosy.policies.common.candidates import CandidateTable
from argosy.policies.common.machine_speeds import MachineSpeeds
from argosy.policies.common.partners import PartnerTable
from argosy.policies.common.remaining_work import RemainingWork
from argosy.policies.learned.bid_features import BID, JOB, BidFeatureReader, BidFeatures
from argosy.policies.learned.bid_network import BidNetwork

PRIOR = 20  # ended jobs that the prior distribution of lengths counts as
LARGEST_LOG = 60.0  # no value is smaller than the largest by more than this factor, as a logarithm
TOLD = 3  # features that an explanation names
SLOWEST = 100.0  # a wait of at most this many times the length of the job is not too long
FIRST_LOG = 5.0  # how far a job that has waited for too long is above all others


@register("argonaut", "learned values of bids for sizes and GPU types, one network for all clusters", "Argosy")
class Argonaut(Bidder):
    """Bids what its network says; a job that has waited for too long is worth more than any other."""

    def __init__(
        self,
        weights: str | BidNetwork = "argonaut",
        every_s: float = 600.0,
        patience_h: float = 24.0,
        pack: bool = True,
    ) -> None:
        if not 1 <= every_s < np.inf:
            raise InputError(f"argonaut: every_s must be at least 1, is {every_s}")
        if not patience_h > 0:
            raise InputError(f"argonaut: patience_h must be more than 0, is {patience_h}")
        self.network = weights if isinstance(weights, BidNetwork) else load(weights)
        self.every_s, self.patience_h, self.pack = every_s, patience_h, pack

    def reset(self, context: Context) -> None:
        self._candidates = CandidateTable(context)
        self._features = BidFeatureReader(context)
        self._machines = MachineSpeeds(context)
        self.remaining = RemainingWork(PRIOR)
        self._partners = PartnerTable(context)

    def bid(self, view: View) -> Bids:
        left = self.remaining.of(view)
        machines = self._machines.apply(view, self._candidates.of(view), left)
        c = machines.candidates
        features = self._features.read(view, c, left)
        log_value = self.network.log_values(features, c.job)
        starved = self._starved(view, left)[c.job]
        if starved.any():  # above all others, in their own order
            log_value[starved] += log_value.max() - log_value[starved].min() + FIRST_LOG
        value = np.exp(np.clip(log_value - log_value.max(initial=0.0), -LARGEST_LOG, 0.0)) * view.jobs.weight[c.job]
        because = partial(self._because, features, c.job)
        columns = c.job, c.type, c.workers, value, c.servers
        bids = Bids(*columns, speed=machines.speed, least_gain=machines.least_gain, because=because)
        return self._partners.added(view, c, bids) if self.pack else bids

    def _starved(self, view: View, left: Floats) -> NDArray[np.bool_]:
        """Return which jobs have waited for too long: for `patience_h`, and many times as long as they would run.

        On a cluster where every job waits for days, the first limit alone would make the jobs take turns.
        """
        jobs = view.jobs
        limit = np.maximum(3600.0 * self.patience_h, SLOWEST * (jobs.done_s + left))
        starved: NDArray[np.bool_] = jobs.waiting_s > limit
        return starved

    def _because(self, features: BidFeatures, job: Ints, bid: int) -> str:
        """Say which features moved the value of a bid most."""
        moved = self.network.influences(features, job, bid)
        most = np.argsort(-np.abs(moved), kind="stable")[:TOLD]
        told = []
        for i in most.tolist():
            column, at = (features.bid[:, i], bid) if i < len(BID) else (features.job[:, i - len(BID)], job[bid])
            size = "more" if column[at] > column.mean() else "less"
            way = "raises" if moved[i] > 0 else "lowers"
            words = (BID + JOB)[i].removeprefix("log ")
            told.append(f"{words}, {size} than the mean, {way} it by a factor of {np.exp(abs(moved[i])):.2f}")
        return f"what moves its value most, against the mean of all: {'; '.join(told)}"


def load(name: str) -> BidNetwork:
    """Read weights by name or from a file; raise InputError if they are for another network."""
    weights = zoo.find(name)
    if weights.network != BidNetwork.kind:
        hint = f"argonaut takes weights of the network {BidNetwork.kind!r}: argosy train argonaut -o mine.safetensors"
        raise InputError(f"these weights are for the network {weights.network!r}", where=weights.source, hint=hint)
    return BidNetwork(weights.arrays, weights.source)
