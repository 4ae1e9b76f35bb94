"""Metrics for Prometheus: counts and times, without names of people or jobs, so that every user may read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from argosy.live.daemon.views import NodeView

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """A registry of its own, so that several daemons can live in one process (tests do)."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self._jobs = Gauge("argosy_jobs", "Jobs by state", ["state"], registry=own)
        self._gpus = Gauge("argosy_gpus", "GPUs of the cluster", ["what"], registry=own)
        self._nodes = Gauge("argosy_nodes", "Nodes by state", ["state"], registry=own)
        self._healthy = Gauge("argosy_healthy", "1 if nothing is wrong", registry=own)
        self.submitted = Counter("argosy_submitted_jobs", "Jobs taken in", registry=own)
        self.passes = Counter("argosy_passes", "Passes of the loop", registry=own)
        self.decisions = Counter("argosy_decisions", "Answers of the policy", registry=own)
        self.pass_seconds = Histogram(
            "argosy_pass_seconds", "A pass of the loop, all but the policy", buckets=SECONDS, registry=own
        )
        self.decision_seconds = Histogram(
            "argosy_decision_seconds", "From a question to the policy to its answer", buckets=SECONDS, registry=own
        )
        self.starts = Counter("argosy_starts", "Runs started", registry=own)
        self.preemptions = Counter("argosy_preemptions", "Runs stopped for another job", registry=own)
        self.resizes = Counter("argosy_resizes", "Changes of size", registry=own)
        self.moves = Counter("argosy_moves", "Moves to other devices", registry=own)
        self.failures = Counter("argosy_run_failures", "Runs that failed", registry=own)
        self.losses = Counter("argosy_run_losses", "Runs lost with their place", registry=own)
        self.fenced = Counter("argosy_fenced", "Runs that had ended and were found alive", registry=own)
        self.errors = Counter("argosy_errors", "Problems of the daemon", ["part"], registry=own)
        for part in ("planner", "backend", "disk", "own"):
            self.errors.labels(part)

    def observe(self, counts: Mapping[str, int], nodes: Sequence[NodeView], healthy: bool) -> None:
        """Set the gauges to the current counts."""
        for state, count in counts.items():
            self._jobs.labels(state).set(count)
        self._gpus.labels("total").set(sum(node.gpus for node in nodes))
        self._gpus.labels("held").set(sum(node.used_gpus for node in nodes))
        for state in ("up", "draining", "down"):
            self._nodes.labels(state).set(sum(node.state == state for node in nodes))
        self._healthy.set(healthy)

    def text(self) -> bytes:
        return generate_latest(self.registry)
