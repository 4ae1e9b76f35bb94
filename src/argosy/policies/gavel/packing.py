"""Gavel's policies whose parameter `packing` lets jobs share GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.mechanism.plan import Plan
from argosy.perf.completion import estimate_pairs
from argosy.policies.base import Floats, Ints
from argosy.policies.gavel.allocation import Gavel
from argosy.policies.gavel.pairs import JobPairs, plan_of_round
from argosy.seeding import stream
from argosy.slack import GPU_SLACK

ESTIMATORS = ("oracle", "completion")  # how packed speeds are known: exactly, or completed from some trials


class PackingGavel(Gavel):
    """A policy that lets jobs share GPUs if `packing` is set; it then plans, since ranks cannot express sharing."""

    answers = Gavel.answers  # "plan" is added only with `packing`
    _beside: Floats | None
    _pairs: JobPairs

    def __init__(
        self,
        round_s: float = 360.0,
        min_interval_s: float = 1920.0,
        authors: bool = False,
        placement_aware: bool = False,
        partitions: int = 1,
        packing: bool = False,
        estimator: str = "oracle",
        measured: float = 0.3,
    ) -> None:
        super().__init__(round_s, min_interval_s, authors, placement_aware, partitions)
        if estimator not in ESTIMATORS:
            raise InputError(f"{self.name}: estimator must be one of {', '.join(ESTIMATORS)}, is {estimator!r}")
        if not 0 <= measured <= 1:
            raise InputError(f"{self.name}: measured must lie in 0..1, is {measured}")
        if packing and (placement_aware or partitions > 1):
            raise InputError(f"{self.name}: packing cannot be combined with placement_aware or partitions")
        self.packing, self.estimator, self.measured = packing, estimator, measured
        if packing:
            self.uses = self.uses | {"placement"}
            self.answers |= {"plan"}

    def share(self, view: View, places: Ints, speed: Floats) -> Floats:
        if not self.packing:
            return super().share(view, places, speed)
        jobs = view.jobs
        if self._beside is None:
            kinds = np.arange(self._kinds)
            true = np.asarray(view.profile.beside(kinds[:, None], kinds), np.float64)
            self._beside = true if self.estimator == "oracle" else self._estimated(true)
        problem = self._problem(view, places, speed)
        problem.columns["kind"] = np.where(self._can_share(view, places), jobs.kind[places], -1)
        problem = replace(problem, beside=self._beside)
        share = self.solve(problem)
        self._pairs = problem.pairs
        return share

    def _can_share(self, view: View, places: Ints) -> NDArray[np.bool_]:
        """Return which jobs can share GPUs.

        They use whole GPUs and no parameter servers, and some node has twice their CPUs and memory for each GPU.
        """
        jobs, nodes = view.jobs, view.nodes
        devices = np.maximum(nodes.gpus, 1)
        can = (jobs.gpus[places] >= 1) & (jobs.ps[places] == 0)
        for wanted, there in ((jobs.cpus, nodes.cpus), (jobs.memory_gib, nodes.memory_gib)):
            most = float((there / devices)[nodes.gpus > 0].max(initial=0.0))
            can &= 2 * wanted[places] <= most * jobs.gpus[places] + GPU_SLACK
        return np.asarray(can)

    def _divide_time(self, view: View) -> None:
        self._pairs = {}
        super()._divide_time(view)
        if self._pairs:
            rows = np.array(list(self._pairs), np.int64)
            self.rounds.assign_pairs(rows[:, 0], rows[:, 1], np.minimum(np.array(list(self._pairs.values())), 1.0))

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._kinds, self._run_seed = len(context.kinds), context.seed
        self._beside = None

    def _estimated(self, true: Floats) -> Floats:
        """Estimate all pairs: half of the job classes were measured before, the others are tried with a few of them."""
        rng = stream(self._run_seed, "gavel.reference")
        reference = sorted(rng.permutation(self._kinds)[: max(self._kinds // 2, 1)].tolist())
        return estimate_pairs(true, reference, self.measured, self._run_seed)

    def plan(self, view: View) -> Plan:
        self.rank(view)
        plan = plan_of_round(view, self.rounds, self.column_type)
        plan.wake_at = self.wake_at(view)
        return plan
