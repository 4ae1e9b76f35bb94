"""The dual-agent scheduler on `fluctuating` and `stormy`: against rack-aware rivals, its ablations, its belief.

Every policy runs the same jobs on the same machines, on seeds that neither training nor validation has seen. Completion
times are those of the jobs that a scenario measures; fees (price of the GPUs held × time) and energy are those of the
whole run, for each job. Ratios are geometric means over seeds with paired 95 % t intervals. Ablations run the scenarios
at their quick size. The belief is compared with the true speeds of machines that had a job in the last two hours, every
ten minutes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from argosy.cluster.view import View
from argosy.learn.training.dual_agent.runs import BUSY_W, IDLE_W, PRICE_PER_GPU_H, outcome
from argosy.learn.training.dual_agent.runs import run as run_one
from argosy.mechanism.plan import Plan
from argosy.policies.base import Policy
from argosy.policies.dual_agent.policy import DualAgent
from benchmarks.harness import Json, Options, Row

SEEDS = tuple(range(20))
SCENARIOS = ("fluctuating", "stormy")
RIVALS = ("las", "tiresias-gittins", "tiresias-las", "gavel-throughput")
PLACER = "rack-aware"
ARGONAUT = "argonaut"
OURS, HAND = "dual-agent", "dual-agent:weights=hand"
OFF = "dual-agent:belief=off"
ABLATIONS = (
    OFF,
    "dual-agent:belief=mean-field",
    "dual-agent:agents=ordering",
    "dual-agent:agents=placement",
    "dual-agent:communicate=no",
    "dual-agent:squeeze=attention",
)
QUICK_JOBS, TINY_JOBS = 250, 60
METRICS = ("minutes", "fee", "energy_kwh")
TARGETS = {"fluctuating": (0.97, 1.02), "stormy": (0.90, 1.05)}  # against the best rival; belief off against ours
CORRELATION = 0.8
RECENT_S = 7200.0


class Watched(DualAgent):
    """The policy, which also notes how its belief compares with true speeds; it decides nothing by them."""

    name = "dual-agent, watched"
    uses = DualAgent.uses | {"speed"}

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[float, float]] = []
        self._used: dict[int, float] = {}

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        assert self.believed is not None
        for row in np.flatnonzero(view.jobs.state == 1).tolist():
            self._used.update((part.node, view.now) for part in view.placement(row))
        if view.now % self.every_s == 0:
            mean, truth = self.believed.best.mean, view.nodes.true_speed
            recent = [node for node, at in self._used.items() if view.now - at <= RECENT_S]
            self.pairs += [(float(mean[node]), float(np.log(truth[node]))) for node in recent]
        return plan


def costs(name: str, jobs: int, seed: int, policy: str | Policy, placer: str = "policy") -> Json:
    """Return mean completion time, fee and energy of a run; with 0 jobs the scenario has its full size."""
    found = outcome(name, jobs, seed, run_one(name, jobs, seed, policy, placer))
    return {metric: getattr(found, metric) for metric in METRICS}


def columns(found: list[Json]) -> Json:
    """Return the figures of runs by metric."""
    return {metric: [one[metric] for one in found] for metric in METRICS}


def ratios(ours: Json, theirs: Json) -> Json:
    """Return the ratios of all metrics, with intervals."""
    from argosy.report.stats import paired_ratio

    out: Json = {}
    for metric in METRICS:
        found = paired_ratio(ours[metric], theirs[metric])
        out[metric] = {"ratio": found.mean, "low": found.low, "high": found.high}
    return out


def run(options: Options) -> Json:
    """Measure everything; with `quick` on two seeds of small scenarios."""
    seeds = SEEDS[:2] if options.quick else SEEDS
    full, small = (TINY_JOBS, TINY_JOBS) if options.quick else (0, QUICK_JOBS)
    scenarios = {name: of_scenario(name, full, small, seeds) for name in SCENARIOS}
    prices = {"dollars_per_gpu_h": PRICE_PER_GPU_H, "idle_w_per_gpu": IDLE_W, "busy_w_per_gpu": BUSY_W}
    return {"prices": prices, "ablation_jobs": small, "scenarios": scenarios}


def of_scenario(name: str, full: int, small: int, seeds: tuple[int, ...]) -> Json:
    """Measure one scenario."""
    found: dict[str, Json] = {}
    for rival in RIVALS:
        found[f"{rival}, {PLACER}"] = columns([costs(name, full, seed, rival, PLACER) for seed in seeds])
    best = min(found, key=lambda rival: float(np.mean(np.log(found[rival]["minutes"]))))
    found[ARGONAUT] = columns([costs(name, full, seed, ARGONAUT) for seed in seeds])
    correlations, ours = [], []
    for seed in seeds:
        watched = Watched()
        ours.append(costs(name, full, seed, watched))
        correlations.append(float(np.corrcoef(np.array(watched.pairs).T)[0, 1]))
    found[OURS] = columns(ours)
    found[HAND] = columns([costs(name, full, seed, HAND) for seed in seeds])
    by_ablation = {spec: columns([costs(name, small, seed, spec) for seed in seeds]) for spec in (OURS, *ABLATIONS)}
    ablations = {spec: ratios(by_ablation[spec], by_ablation[OURS]) for spec in ABLATIONS}
    over = {policy: ratios(found[OURS], theirs) for policy, theirs in found.items() if policy != OURS}
    against, off = TARGETS[name]
    correlation = float(np.mean(correlations))
    return {
        "means": {policy: {m: float(np.mean(x[m])) for m in METRICS} for policy, x in found.items()},
        "minutes_by_seed": {policy: x["minutes"] for policy, x in found.items()},
        "best_rival": best,
        "ours_over": over,
        "ablations_over_ours": ablations,
        "correlation": correlation,
        "correlation_by_seed": correlations,
        "met": {
            f"ours ≤ {against:g} × best rival": over[best]["minutes"]["ratio"] <= against,
            f"belief off ≥ {off:g} × ours": ablations[OFF]["minutes"]["ratio"] >= off,
            f"correlation ≥ {CORRELATION:g}": correlation >= CORRELATION,
        },
    }


def table(figures: Json) -> list[Row]:
    """Return the figures as rows of text."""
    rows: list[Row] = [("scenario", "what", "minutes", "fee", "energy")]
    for name, found in figures["scenarios"].items():
        mean = found["means"][OURS]
        rows.append((name, OURS, f"{mean['minutes']:.1f}", f"{mean['fee']:.2f} $", f"{mean['energy_kwh']:.2f} kWh"))
        for policy, over in found["ours_over"].items():
            rows.append((name, f"{OURS} / {policy}", *(show(over[metric]) for metric in METRICS)))
        for policy, over in found["ablations_over_ours"].items():
            rows.append((name, f"{policy} / {OURS}", *(show(over[metric]) for metric in METRICS)))
        rows.append((name, "correlation of belief and truth", f"{found['correlation']:.2f}", "", ""))
        rows += [(name, target, "met" if met else "missed", "", "") for target, met in found["met"].items()]
    return rows


def show(found: dict[str, Any]) -> str:
    """Return a ratio with its interval as text."""
    if found["low"] is None:
        return f"{found['ratio']:.3f}"
    return f"{found['ratio']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"
