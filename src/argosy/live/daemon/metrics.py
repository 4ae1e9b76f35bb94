"""Metrics for Prometheus: counts and times, without names of people or jobs, so that every user may read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from argosy.live.daemon.views import NodeView

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one daemon, in a registry of their own, because tests run several daemons in one process."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self._jobs = Gauge("argosy_jobs", "Jobs by state", ["state"], registry=own)
        self._gpus = Gauge("argosy_gpus", "GPUs of the cluster", ["what"], registry=own)
        self._nodes = Gauge("argosy_nodes", "Nodes by state", ["state"], registry=own)
        self._phase = Gauge("argosy_promotion", "The phase of the last promotion", ["phase"], registry=own)
        self._healthy = Gauge("argosy_healthy", "1 if nothing is wrong", registry=own)
        self.submitted = Counter("argosy_submitted_jobs", "Jobs accepted", registry=own)
        self.passes = Counter("argosy_passes", "Passes of the daemon's loop", registry=own)
        self.decisions = Counter("argosy_decisions", "Decisions of the policy", registry=own)
        self.pass_seconds = Histogram(
            "argosy_pass_seconds", "Duration of a pass of the loop, without the policy", buckets=SECONDS, registry=own
        )
        self.decision_seconds = Histogram(
            "argosy_decision_seconds", "Time from asking the policy to its answer", buckets=SECONDS, registry=own
        )
        self.starts = Counter("argosy_starts", "Runs started", registry=own)
        self.preemptions = Counter("argosy_preemptions", "Runs preempted for another job", registry=own)
        self.resizes = Counter("argosy_resizes", "Runs resized", registry=own)
        self.moves = Counter("argosy_moves", "Runs moved to other devices", registry=own)
        self.failures = Counter("argosy_run_failures", "Runs that failed", registry=own)
        self.losses = Counter("argosy_run_losses", "Runs lost with their node", registry=own)
        self.fenced = Counter("argosy_fenced", "Runs found alive after their recorded end", registry=own)
        self.errors = Counter("argosy_errors", "Errors, by the part of the daemon", ["part"], registry=own)
        for part in ("planner", "backend", "disk", "own"):
            self.errors.labels(part)

    def observe(self, counts: Mapping[str, int], nodes: Sequence[NodeView], healthy: bool, phase: str = "") -> None:
        """Set the gauges to the current counts."""
        for state, count in counts.items():
            self._jobs.labels(state).set(count)
        self._gpus.labels("total").set(sum(node.gpus for node in nodes))
        self._gpus.labels("held").set(sum(node.used_gpus for node in nodes))
        for state in ("up", "draining", "down"):
            self._nodes.labels(state).set(sum(node.state == state for node in nodes))
        self._healthy.set(healthy)
        for one in ("guarded", "kept", "fell-back", "unguarded"):
            self._phase.labels(one).set(one == phase)

    def text(self) -> bytes:
        return generate_latest(self.registry)
