"""Speeds as a scheduler knows them: from profiles, or, for parameter-server jobs, from fits to measured points.

The fits are those of Optimus: a job class is first tried out at a few sizes, every running job adds the speed measured
at its size, all jobs of the class share the points, and a speed function with non-negative coefficients is fitted to
them. Known points can be used as they are (`verbatim`): then a measured dip, or a step between fit and measurement,
ends a job's growth where the smooth curve would let it go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from argosy.cluster.view import Profile, View
from argosy.perf.fit import fit_speed_async, fit_speed_sync
from argosy.perf.parameter_server import ParameterServerModel
from argosy.policies.base import Floats
from argosy.policies.common.marginal_gain import Times, time_per_unit
from argosy.seeding import stream

Form = Literal["sync", "async"]
LEAST_POINTS = {"sync": 5, "async": 4}
RIDGE = 1e-6  # where the points cannot tell two terms apart, both get equal coefficients
NODE, ACROSS = 1, 2  # levels of locality: on one node, across nodes


class AllReduceSpeeds:
    """Computes seconds per sample on k GPUs of one type, on as few nodes as possible."""

    def __init__(self, profile: Profile, node_gpus: Any) -> None:
        self._profile, self._node_gpus = profile, node_gpus
        self._known: dict[tuple[int, int], list[float]] = {}

    def best_types(self, kind: Any, types: Any) -> Any:
        """Return the GPU type on which each job is fastest, of those that it accepts."""
        count = len(self._node_gpus)
        rate = np.stack([self._profile.rate(kind, t, 1, NODE) for t in range(count)])
        accepted = types >> np.arange(count)[:, None] & 1
        return np.where(accepted > 0, rate, -1.0).argmax(axis=0)

    def times(self, kind: int, gpu_type: int, most: int) -> list[float]:
        """Return seconds per sample; entry k is for k GPUs, from 0 to at least `most`."""
        known = self._known.get((kind, gpu_type), [])
        if len(known) <= most:
            k = np.arange(most + 1)
            level = np.where(k <= self._node_gpus[gpu_type], NODE, ACROSS)
            rate = np.where(k > 0, self._profile.rate(kind, gpu_type, k, level), 0.0)
            known = self._known[kind, gpu_type] = time_per_unit(rate).tolist()
        return known


def profiled_times(profile: Profile, ps_kind: int, cap: int) -> Times:
    """Return seconds per sample by [servers][workers], from the true tables."""
    p, w = np.arange(cap + 1)[:, None], np.arange(cap + 1)[None, :]
    rate = np.where((p > 0) & (w > 0), profile.ps_rate(ps_kind, p, w), 0.0)
    times: list[list[float]] = time_per_unit(rate).tolist()
    return times


class SpeedFits:
    """Known points (servers, workers) → samples per second of each class of parameter-server jobs, and fits to them."""

    def __init__(self, form: Form, cap: int, trials: int, largest_trial: int, verbatim: bool, seed: int) -> None:
        self._form, self._cap, self._verbatim, self._seed = form, cap, verbatim, seed
        self._trials, self._largest_trial = trials, largest_trial
        self.points: dict[int, dict[tuple[int, int], float]] = {}
        self._fits: dict[int, Times] = {}

    def observe(self, view: View) -> None:
        """Add the measured speeds of running jobs; a point that was known before becomes the mean of both."""
        jobs = view.jobs
        speed = jobs.measured_rate * jobs.reference_rate
        shown = (jobs.state == 1) & (jobs.ps_kind >= 0) & (speed > 0) & (jobs.servers > 0) & (jobs.held >= 1)
        for row in np.flatnonzero(shown)[np.argsort(jobs.index[shown])].tolist():
            kind, point = int(jobs.ps_kind[row]), (int(jobs.servers[row]), int(jobs.held[row]))
            known = self._tried(kind, view.profile)
            new = float(speed[row])
            old = known.get(point, new)
            if old != new or point not in known:
                known[point] = 0.5 * (old + new)
                self._fits.pop(kind, None)

    def _tried(self, kind: int, profile: Profile) -> dict[tuple[int, int], float]:
        """Return the points of a class; a new class has short trial runs with as many servers as workers."""
        if kind not in self.points:
            most_p, most_w = (min(self._largest_trial, m) for m in (profile.most_servers, profile.largest))
            rng = stream(self._seed, "optimus.trials", kind)
            even = 1 + rng.permutation(min(most_p, most_w))
            grid = np.stack([even, even]).T.tolist()
            if len(grid) < self._trials:  # a small cluster: also with unequal numbers
                uneven = rng.permutation(np.argwhere(np.ones((most_p, most_w))) + 1).tolist()
                grid += [point for point in uneven if point not in grid]
            tried = {(p, w): float(profile.ps_rate(kind, p, w)) for p, w in grid[: self._trials]}
            self.points[kind] = {point: speed for point, speed in tried.items() if speed > 0}
        return self.points[kind]

    def times(self, profile: Profile, kind: int) -> Times:
        """Return seconds per sample by [servers][workers], from the known points and the fit to them."""
        if kind not in self._fits:
            self._fits[kind] = self._fit(self._tried(kind, profile))
        return self._fits[kind]

    def _fit(self, known: dict[tuple[int, int], float]) -> Times:
        points = np.array(list(known), np.int64).reshape(-1, 2)
        p, w, speed = points[:, 0], points[:, 1], np.array(list(known.values()))
        grid_p, grid_w = np.arange(self._cap + 1)[:, None], np.arange(self._cap + 1)[None, :]
        rate = np.zeros((self._cap + 1, self._cap + 1))
        enough = len(known) >= LEAST_POINTS[self._form]
        if enough:
            fit: Callable[[], Floats] = {
                "sync": lambda: fit_speed_sync(p, w, speed, 1.0, ridge=RIDGE),
                "async": lambda: fit_speed_async(p, w, speed, ridge=RIDGE),
            }[self._form]
            model = ParameterServerModel("fitted", tuple(fit().tolist()), 1.0, self._form)
            rate = model.steps_per_s(grid_p, grid_w)
        inside = (p <= self._cap) & (w <= self._cap) & (self._verbatim or not enough)
        rate[p[inside], w[inside]] = speed[inside]
        times: list[list[float]] = time_per_unit(rate).tolist()
        return times

    def state(self) -> list[list[float]]:
        return [[kind, p, w, speed] for kind, known in self.points.items() for (p, w), speed in known.items()]

    def restore(self, state: list[list[float]]) -> None:
        self.points, self._fits = {}, {}
        for kind, p, w, speed in state:
            self.points.setdefault(int(kind), {})[int(p), int(w)] = float(speed)
