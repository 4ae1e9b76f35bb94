"""Bids for a place beside a running job: two jobs share GPUs, and each of them is slower (packing).

What a pair is worth is what the guest gains, at the speed that it has beside the host, less what the host loses. Both
speeds are those that profiles promise for their kinds. Guests that would be worth most alone are considered first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from argosy.cluster.view import Context, JobState, View
from argosy.mechanism.bids import Bids
from argosy.perf.footprint import gpu_memory_gib
from argosy.policies.common.candidates import Candidates

MOST_GUESTS = 64  # jobs that look for a partner in one decision
TRIED = 3  # partners that each of them bids for
MOST_HOSTS = 512  # running jobs that are looked at, those of least value first
LEAST_TOGETHER = 1.2  # the speeds of a pair, added up, must be more; those of two jobs that take turns are 1
UNKNOWN = 0  # the kind of jobs whose network is not known, which share GPUs with nobody


class PartnerTable:
    """Lists pairs. The policy declares demand, placement and profile."""

    def __init__(self, context: Context) -> None:
        self._memory_gib = np.array([gpu_memory_gib(name) for name in context.gpu_types])

    def added(self, view: View, c: Candidates, bids: Bids) -> Bids:
        """Return bids for all candidates, with those of waiting jobs for places beside running ones added."""
        jobs, profile, value = view.jobs, view.profile, bids.value
        whole = (jobs.gpus >= 1) & (jobs.ps_kind < 0) & (jobs.kind != UNKNOWN)
        asked = c.workers == jobs.gpus[c.job]
        guests = np.flatnonzero(asked & whole[c.job] & (jobs.state[c.job] == JobState.WAITING))
        hosts = np.flatnonzero(c.present & whole[c.job] & (jobs.peer[c.job] < 0) & (jobs.servers[c.job] == 0))
        if not len(guests) or not len(hosts):
            return bids
        guests = guests[np.argsort(-value[guests] / c.gpus[guests], kind="stable")[:MOST_GUESTS]]
        hosts = hosts[np.argsort(value[hosts], kind="stable")[:MOST_HOSTS]]
        kind, kinds = jobs.kind[c.job[guests]][:, None], jobs.kind[c.job[hosts]]
        as_guest, as_host = profile.beside(kind, kinds), profile.beside(kinds, kind)
        gain = value[guests][:, None] * as_guest - value[hosts] * (1.0 - as_host)
        memory_gib = profile.footprint.memory_gib
        fits = (c.workers[guests][:, None] == c.workers[hosts]) & (c.type[guests][:, None] == c.type[hosts])
        fits &= memory_gib[kind] + memory_gib[kinds] <= self._memory_gib[c.type[hosts]]
        fits &= as_guest + as_host > LEAST_TOGETHER
        gain = np.where(fits, gain, 0.0)
        best = np.argsort(-gain, axis=1, kind="stable")[:, :TRIED]
        row, column = np.repeat(np.arange(len(guests)), best.shape[1]), best.ravel()
        useful = gain[row, column] > 0
        row, column = row[useful], column[useful]
        guest, host = guests[row], hosts[column]
        return replace(
            bids,
            job=np.append(c.job, c.job[guest]),
            type=np.append(c.type, c.type[guest]),
            workers=np.append(c.workers, c.workers[guest]),
            servers=np.append(c.servers, c.servers[guest]),
            value=np.append(value, gain[row, column]),
            partner=np.append(np.full(len(c.job), -1), c.job[host]),
        )
