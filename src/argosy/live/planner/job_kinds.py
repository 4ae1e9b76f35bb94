"""Knows the networks, sizes and queues that an engine was made for, and converts new jobs into its columns.

An engine's tables of speeds are compiled from a trace. A live cluster has none beforehand, so one is constructed, with
a row for each known kind of job at each size. The numbers of a job of a known kind are looked up there; a job of a new
kind needs new tables and a new engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from argosy.cluster.cluster import Cluster
from argosy.live.planner.messages import JobFacts
from argosy.mechanism.world import ASKED, Floats, demand_rows, number_of, set_owners, set_quality
from argosy.perf import quality
from argosy.perf.declared_batches import declared_name
from argosy.perf.rate_tables import RateTables
from argosy.workload.trace import SCHEMA, Trace, conform

MOST_SIZES = 256  # sizes compiled beforehand; beyond them speeds are extrapolated, as in the simulator
# columns of a trace that have another name in `JobFacts`; a user's estimate is the work that the user declares
RENAMED = {"submit_s": "submitted_s", "ps": "servers", "work": "expected_s"}
# network, batch, servers, GPU types, largest batch, samples that fit a GPU
Kind = tuple[str | None, float | None, int | None, tuple[str, ...], float | None, float | None]


def kind_of(facts: JobFacts) -> Kind:
    return facts.model, facts.batch_size, facts.servers, facts.gpu_types, facts.max_batch, facts.batch_per_gpu


class JobKinds:
    """The kinds of jobs seen so far. An engine made from `trace` can run all kinds that were learned before."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kinds: dict[Kind, int] = {(None, None, None, (), None, None): 0}
        self._queues: dict[str, None] = {}
        self._size = max(1, min(cluster.total_gpus, MOST_SIZES))

    def learn(self, jobs: Sequence[JobFacts]) -> bool:
        """Add the kinds, queues and sizes of these jobs; return whether any was new."""
        before = (len(self._kinds), len(self._queues), self._size)
        for facts in jobs:
            self._kinds.setdefault(kind_of(facts), len(self._kinds))
            self._queues.setdefault(facts.queue)
            self._size = max(self._size, math.ceil(facts.gpus))
        return before != (len(self._kinds), len(self._queues), self._size)

    def __len__(self) -> int:
        return len(self._kinds)

    def knows(self, facts: JobFacts) -> bool:
        """Return whether the engine can run this job without being built anew."""
        return kind_of(facts) in self._kinds and facts.queue in self._queues and facts.gpus <= self._size

    def state(self) -> dict[str, list[Any]]:
        """Return what was learned, in order: it numbers kinds and queues, also in the policy's memory."""
        return {"kinds": [list(kind) for kind in self._kinds], "queues": list(self._queues), "size": [self._size]}

    def restore(self, state: dict[str, list[Any]]) -> None:
        kinds: list[Kind] = [(kind[0], kind[1], kind[2], tuple(kind[3]), kind[4], kind[5]) for kind in state["kinds"]]
        self._kinds = {kind: i for i, kind in enumerate(dict.fromkeys([*kinds, *self._kinds]))}
        self._queues = dict.fromkeys([*state["queues"], *self._queues])
        self._size = max(self._size, *state["size"])

    def trace(self) -> Trace:
        """Return a trace with a row for each kind and size, then one for each queue."""
        gpus = float(min(1, self._cluster.total_gpus))
        rows = [
            JobFacts(
                0,
                float(size) if gpus else 0.0,
                0.0,
                cpus=1.0,
                memory_gib=0.0,
                model=model if most is None or batch is None else declared_name(model, batch, most, per_gpu),
                batch_size=batch,
                max_batch=most,
                servers=servers,
                gpu_types=types,
            )
            for model, batch, servers, types, most, per_gpu in self._kinds
            for size in range(1, self._size + 1)
        ]
        rows += [JobFacts(0, gpus, 0.0, queue=queue, cpus=1.0, memory_gib=0.0) for queue in self._queues]
        numbered = [replace(facts, id=i) for i, facts in enumerate(rows)]
        return Trace(frame_of(numbered, np.ones(len(rows))), "live")

    def rows(self, jobs: Sequence[JobFacts], seconds: Floats, tables: RateTables, queues: tuple[str, ...]) -> Floats:
        """Return the engine's columns for these jobs; the caller adds users and applications."""
        gpus = np.array([facts.gpus for facts in jobs])
        kinds = np.array([self._kinds[kind_of(facts)] for facts in jobs], np.int64)
        looked_up = kinds * self._size + np.maximum(np.ceil(gpus).astype(np.int64), 1) - 1
        with_gpus = gpus > 0
        ps_class = np.where(with_gpus, tables.ps_class[looked_up], -1)
        shared = with_gpus & (gpus < 1) & (ps_class < 0)
        reference = np.where(with_gpus, tables.reference[looked_up] * np.where(shared, gpus, 1.0), 1.0)
        family = None
        if tables.job_family is not None:
            family = np.where(with_gpus & (gpus >= 1), tables.job_family[looked_up], -1)
        own = replace(
            tables,
            job_class=np.where(with_gpus, tables.job_class[looked_up], 0),
            ps_class=ps_class,
            reference=reference,
            work_s=seconds,
            job_family=family,
            first_part=None,
        )
        accepted = np.array([type_set(facts.gpu_types, tables.gpu_types) for facts in jobs], np.int64)
        asked = {
            column: np.array([number_of(column, getattr(f, RENAMED.get(column, column), None)) for f in jobs], float)
            for column in ASKED
        }
        rows = demand_rows(asked, accepted, self._cluster, own, seconds)
        set_owners(rows, queue=[queues.index(facts.queue) for facts in jobs])
        curves = [facts.quality or (quality.AVERAGE if facts.spare_gpus else None) for facts in jobs]
        set_quality(rows, np.array([quality.number_of(name) for name in curves], np.int64))
        return rows


def type_set(wanted: tuple[str, ...], types: tuple[str, ...]) -> int:
    """Return the bit set of the GPU types that a job accepts: those it names, or all."""
    named = [name.lower() for name in wanted]
    return sum(1 << i for i, name in enumerate(types) if not named or name.lower() in named)


def frame_of(jobs: Sequence[JobFacts], seconds: Floats) -> pl.DataFrame:
    """Return jobs as rows of a trace."""
    columns = {
        "job_id": [str(f.id) for f in jobs],
        "submit_s": [f.submitted_s for f in jobs],
        "duration_s": seconds,
        "gpus": [float(f.gpus) for f in jobs],
        "user": [f.user for f in jobs],
        "queue": [f.queue for f in jobs],
        "model": [f.model for f in jobs],
        "gpu_type": ["|".join(f.gpu_types) or None for f in jobs],
        "status": ["completed"] * len(jobs),
        "cpus": [f.cpus for f in jobs],
        "memory_gib": [f.memory_gib for f in jobs],
        "min_gpus": [f.min_gpus for f in jobs],
        "max_gpus": [f.max_gpus for f in jobs],
        "batch_size": [f.batch_size for f in jobs],
        "ps": [f.servers for f in jobs],
        "app": [f.app for f in jobs],
        "weight": [f.weight for f in jobs],
        "deadline_s": [f.deadline_s for f in jobs],
        "priority": [f.priority for f in jobs],
        "expected_s": [f.expected_s for f in jobs],
        "name": [f.name for f in jobs],
        "saves": [f.saves for f in jobs],
        "max_batch": [f.max_batch for f in jobs],
        "batches": [None] * len(jobs),
    }
    return conform(pl.DataFrame(columns, schema={name: SCHEMA[name] for name in columns}))
