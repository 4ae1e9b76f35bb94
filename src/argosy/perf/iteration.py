"""The iteration model: one training step from seven numbers (Pollux, OSDI'21).

    T_grad = α + β·m                              m = samples per GPU and pass
    T_sync = 0                                    one GPU
             a_local + b_local·(K−2)              K GPUs of one node (× island factor inside an island)
             a_across + b_across·(K−2)            several nodes (× cluster factor across racks)
    T_iter = s·T_grad + (T_grad^γ + T_sync^γ)^(1/γ)
    throughput = M / T_iter,   M = K·m·(s+1)

γ = 1 means that communication waits for computation, a large γ that both overlap. When M/K exceeds what fits
into a GPU's memory, s passes are accumulated before one synchronisation. The two sync lines are fitted apart;
where they cross, the lower one holds inside a node too, so that a narrower placement is never slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from argosy.errors import InputError
from argosy.perf import gpus
from argosy.perf.base import USUAL_LINKS, Floats, Level, Links, Unit, Workers
from argosy.slack import COUNT_SLACK


@dataclass(frozen=True, slots=True)
class IterationParams:
    """Times in seconds for one (model, GPU type)."""

    alpha_s: float  # time of a pass that does not depend on its size
    beta_s: float  # time per sample of a pass
    across_a_s: float  # synchronising two GPUs on different nodes
    across_b_s: float  # each further GPU
    local_a_s: float  # synchronising two GPUs of a node
    local_b_s: float  # each further GPU
    gamma: float  # overlap of computing and synchronising, 1..10

    def __post_init__(self) -> None:
        if not all(value >= 0 for value in astuple(self)) or not 1 <= self.gamma <= 10:
            raise InputError(
                f"iteration parameters must be ≥ 0 and gamma in 1..10, are {astuple(self)}",
                hint="fit them with argosy.perf.fit.fit_iteration",
            )

    def on_speed(self, ratio: float) -> IterationParams:
        """Return the same network with GPUs that compute `ratio` times as fast."""
        return replace(self, alpha_s=self.alpha_s / ratio, beta_s=self.beta_s / ratio)


def grad_time_s(params: IterationParams, local_batch: ArrayLike) -> Floats:
    return np.asarray(params.alpha_s + params.beta_s * np.asarray(local_batch, np.float64))


def sync_time_s(params: IterationParams, workers: ArrayLike, level: int, links: Links) -> Floats:
    k = np.asarray(workers, np.float64)
    sync = np.maximum(params.across_a_s + params.across_b_s * (k - 2), 0.0)
    if level <= Level.NODE:
        sync = np.minimum(sync, np.maximum(params.local_a_s + params.local_b_s * (k - 2), 0.0))
    factor = {Level.ISLAND: links.island, Level.CLUSTER: links.cluster}.get(Level(level), 1.0)
    return np.where(k > 1, factor * sync, 0.0)


def overlapped_s(grad_s: Floats, sync_s: Floats, gamma: float) -> Floats:
    """Return (T_grad^γ + T_sync^γ)^(1/γ), computed relative to the larger part so that tiny times do not underflow."""
    largest = np.maximum(np.maximum(grad_s, sync_s), 1e-300)
    return np.asarray(largest * ((grad_s / largest) ** gamma + (sync_s / largest) ** gamma) ** (1 / gamma))


def step_time_s(
    params: IterationParams,
    workers: ArrayLike,
    level: int,
    local_batch: ArrayLike,
    accumulation: ArrayLike = 0,
    links: Links = USUAL_LINKS,
) -> Floats:
    """Return T_iter for `accumulation` passes before the one that synchronises."""
    grad = grad_time_s(params, local_batch)
    sync = sync_time_s(params, workers, level, links)
    return np.asarray(np.asarray(accumulation, np.float64) * grad + overlapped_s(grad, sync, params.gamma))


@dataclass(frozen=True, slots=True)
class IterationModel:
    """An iteration model: parameters of a network by GPU type.

    `default_batch` is used if a job names no batch. It is kept per GPU, since only a job that names its total batch can
    be assumed to keep it when it is resized.
    """

    name: str
    params: Mapping[str, IterationParams]
    default_batch: float
    memory_cap: Mapping[str, float] = field(default_factory=dict)  # largest local batch by type
    unit: Unit = "samples"
    per_gpu_batch: bool = False
    links: Links = USUAL_LINKS

    @property
    def gpu_types(self) -> tuple[str, ...]:
        return tuple(self.params)

    def max_local_batch(self, gpu_type: str) -> float:
        return self.memory_cap.get(gpus.nearest(gpu_type, self.gpu_types), float("inf"))

    def params_for(self, gpu_type: str) -> IterationParams:
        """Return the measured parameters, or scaled ones of the measured GPU type that is most similar in speed."""
        base = gpus.nearest(gpu_type, self.gpu_types)
        known = self.params[base]
        return known if base == gpus.canonical(gpu_type) else known.on_speed(gpus.speed(gpu_type) / gpus.speed(base))

    def throughput(
        self,
        gpu_type: str,
        workers: Workers,
        level: int,
        batch_size: float | None = None,
        *,
        min_accumulation: int = 0,
    ) -> Floats:
        """Return samples/s, or, if the unit is "steps", mini-batches per second summed over GPUs."""
        k = np.asarray(workers, np.float64)
        if self.per_gpu_batch or batch_size is None:
            local = np.full_like(k, self.default_batch if batch_size is None else batch_size)
        else:
            local = batch_size / np.maximum(k, 1.0)
        passes = np.maximum(np.ceil(local / self.max_local_batch(gpu_type) - COUNT_SLACK), 1.0 + min_accumulation)
        step = step_time_s(self.params_for(gpu_type), k, level, local / passes, passes - 1, self.links)
        per_step = k if self.unit == "steps" else k * local
        return np.where(k > 0, per_step / step, 0.0)

    def step_times(self, gpu_type: str, workers: int, level: int, local_batch: float) -> tuple[float, float]:
        """Return the seconds of a step that synchronises, and of a pass that does not."""
        params = self.params_for(gpu_type)
        step = step_time_s(params, workers, level, local_batch, 0, self.links)
        return float(step), float(grad_time_s(params, local_batch))
