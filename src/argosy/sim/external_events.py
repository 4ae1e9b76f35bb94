"""Generate external events: node failures and repairs, reservations, cancellations, changing machine speeds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.mechanism.kernels import layout as L
from argosy.perf.fluctuation import MachineSpeeds, Storms
from argosy.seeding import stream
from argosy.sim.loans import Loans
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

CHUNK_S = 14 * 86400.0  # how far ahead random events are drawn


class ExternalEvents:
    """Feeds the kernels with the events of one stretch of time after the other."""

    def __init__(
        self,
        world: L.World,
        cluster: Cluster,
        settings: Settings,
        queues: tuple[str, ...],
        trace: Trace,
        cancels: Mapping[str, float],
    ) -> None:
        self._settings, self._nodes = settings, len(cluster.nodes)
        self._nf = world.nf
        self._drawn_until = 0.0
        self._rng = stream(settings.seed, "faults")
        self._next_fault = np.full(self._nodes, np.inf)
        if settings.node_mtbf_h is not None:
            self._next_fault = self._rng.exponential(settings.node_mtbf_h * 3600.0, self._nodes)
        self._speeds: MachineSpeeds | None = None
        if settings.drifting or settings.storms:
            storms = Storms(world.ni[L.N_RACK].astype(np.int64)) if settings.storms else None
            if settings.drifting:
                self._speeds = MachineSpeeds(self._nodes, settings.seed, storms=storms)
            else:
                self._speeds = MachineSpeeds(
                    self._nodes, settings.seed, 0.0, 0.0, episode_rate_per_week=0.0, storms=storms
                )
        self._ticks = 0
        # whether running jobs may be sent back to waiting
        faults = settings.node_mtbf_h is not None or settings.job_mtbf_h is not None
        self.loans = Loans(cluster, queues)
        self.loans.take_back_all(world)
        self.disturbs = bool(cancels or faults or cluster.reservations or cluster.loans)  # a drain stops no running job
        self._fixed = self._known(cluster, queues, trace, cancels)
        if self._speeds is not None:
            self._nf[L.SPEED] = self._speeds.speeds(0, 1)[0]
            self._ticks = 1

    def _known(
        self, cluster: Cluster, queues: tuple[str, ...], trace: Trace, cancels: Mapping[str, float]
    ) -> list[tuple[float, int, int, float]]:
        """Return the events at known times: reservations, drains and cancellations."""
        events = []
        index = {node.name: i for i, node in enumerate(cluster.nodes)}
        for r in cluster.reservations:
            for name in r.nodes:
                events.append((r.start_s, L.EXTERNAL_RESERVE, index[name], float(queues.index(r.queue))))
                events.append((r.end_s, L.EXTERNAL_RELEASE, index[name], 0.0))
        for d in cluster.drains:
            for name in d.nodes:
                events.append((d.start_s, L.EXTERNAL_DRAIN, index[name], 0.0))
                events.append((d.end_s, L.EXTERNAL_UP, index[name], 0.0))
        if cancels:
            rows = {job: i for i, job in enumerate(trace.frame["job_id"].to_list())}
            for job, at in cancels.items():
                if job not in rows:
                    raise InputError(f"cannot cancel {job!r}: no such job in the trace")
                events.append((at, L.EXTERNAL_CANCEL, rows[job], 0.0))
        return events

    def _faults(self, until: float) -> list[tuple[float, int, int, float]]:
        """Draw the failures and repairs of each node before `until`."""
        if self._settings.node_mtbf_h is None:
            return []
        events = []
        for node in range(self._nodes):
            while self._next_fault[node] < until:
                at = float(self._next_fault[node])
                back = at + float(self._rng.exponential(self._settings.node_repair_h * 3600.0))
                events += [(at, L.EXTERNAL_DOWN, node, 0.0), (back, L.EXTERNAL_UP, node, 0.0)]
                self._next_fault[node] = back + self._rng.exponential(self._settings.node_mtbf_h * 3600.0)
        return events

    def refill(self, world: L.World) -> L.World:
        """Return the world with the events of the next stretch; a repair after its end is kept for later."""
        begin, end = self._drawn_until, self._drawn_until + CHUNK_S
        self._drawn_until = end
        self._fixed += self._faults(end)
        if self._speeds is not None:
            tick = self._speeds.tick_s
            k = np.arange(np.ceil(max(begin, tick) / tick), np.ceil(end / tick))
            self._fixed += [(float(i * tick), L.EXTERNAL_TICK, 0, 0.0) for i in k]
        self._fixed += self.loans.steps(begin, end)
        now = sorted(e for e in self._fixed if e[0] < end)
        self._fixed = [e for e in self._fixed if e[0] >= end]
        endless = self._speeds is not None or self._settings.node_mtbf_h is not None or bool(self.loans)
        if endless or self._fixed:
            now.append((end, L.EXTERNAL_REFILL, 0, 0.0))
        events = np.array(now, np.float64).reshape(-1, 4).T.copy()
        world.si[L.EX_N], world.si[L.EX_NEXT] = events.shape[1], 0
        return world._replace(ex=events)

    def insert(self, world: L.World, events: list[tuple[float, int, int, float]]) -> L.World:
        """Return the world with events that happen next, before all others."""
        i = int(world.si[L.EX_NEXT])
        new = np.array(events, np.float64).reshape(-1, 4).T
        world.si[L.EX_N] += len(events)
        return world._replace(ex=np.concatenate([world.ex[:, :i], new, world.ex[:, i:]], axis=1))

    def tick(self) -> None:
        """Set the machine speeds of the next tick."""
        if self._speeds is not None:
            self._nf[L.SPEED] = self._speeds.speeds(self._ticks, 1)[0]
            self._ticks += 1
