"""Set up a run: the switches of the kernels, jobs that can never run, and the context that policies get."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import Context
from argosy.errors import PolicyError, TraceError
from argosy.mechanism.feasibility import impossible
from argosy.mechanism.kernels import layout as L
from argosy.mechanism.world import PLACERS, Names
from argosy.perf.rate_tables import RateTables
from argosy.policies.base import Policy
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

DERIVED = {  # which derived columns the kernels must keep up to date for a policy that uses this information
    "service": L.D_SERVICE,
    "duration": L.D_LEFT,
    "progress": L.D_PROGRESS,
    "declared": L.D_PROGRESS,
    "loss": L.D_PROGRESS,
    "estimate": L.D_EXPECTED,
}


def configure(world: L.World, settings: Settings, policy: Policy, *, oracle: bool, watched: bool) -> None:
    """Write what the settings and the policy demand into the world's scalars."""
    sf, si = world.sf, world.si
    sf[L.MIN_RUN], sf[L.UNTIL], sf[L.NOISE] = settings.min_run_s, settings.until_s, settings.measurement_noise
    faults = settings.node_mtbf_h is not None or settings.job_mtbf_h is not None
    matters = faults or bool((world.tr[L.SAVES] == L.SAVES_AT_INTERVALS).any())
    sf[L.CHECKPOINT_EVERY] = settings.checkpoint_every_s if matters and settings.checkpoint_every_s else np.inf
    if settings.job_mtbf_h is not None:
        sf[L.CRASH_PER_S] = 1.0 / (settings.job_mtbf_h * 3600.0)
    si[L.PREEMPTIVE], si[L.BACKFILL] = policy.preemptive, policy.backfill
    si[L.EAGER] = policy.eager and not watched
    si[L.KEY_ROW], si[L.KEY_FACTOR], sf[L.ASK_EVERY] = -1, -1, policy.every_s
    placer = policy.placer if settings.placer == "policy" else settings.placer
    if placer not in PLACERS:
        raise PolicyError(f"policy {policy.name!r}: unknown placer {placer!r}; there are {', '.join(PLACERS)}")
    si[L.PLACER] = PLACERS[placer]
    si[L.MAX_PREEMPTIONS], si[L.MAX_CRASHES] = settings.max_preemptions, settings.max_retries
    si[L.HOT] = settings.hot_resize
    si[L.ORACLE] = oracle
    for name in policy.uses & DERIVED.keys():
        si[L.DERIVE] |= DERIVED[name]
    si[L.BIDS] = "bid" in policy.answers
    si[L.ELASTIC] = "size" in policy.answers or "bid" in policy.answers


def refuse_impossible(world: L.World, settings: Settings, trace: Trace, cluster: Cluster) -> None:
    """Raise an error for jobs that can never run, or mark them as refused if the settings say so."""
    bad, frame = impossible(world, settings.consolidation == "strict"), trace.frame
    if not len(bad):
        return
    if settings.oversized == "fail":
        row = int(bad[0])
        more = f" (and {len(bad) - 1} more such jobs)" if len(bad) > 1 else ""
        raise TraceError(
            f"job {frame['job_id'][row]!r} asks for {frame['gpus'][row]:g} GPUs"
            f" ({world.tr[L.CPUS, row]:g} CPUs, {world.tr[L.MEMORY, row]:g} GiB) and can never run on"
            f" {cluster.name!r} with its {cluster.total_gpus} GPUs{more}",
            hint="use a larger cluster, or --oversized skip to leave such jobs out",
        )
    world.rs[L.R_STATUS, bad] = L.ENDED_REFUSED


def make_context(
    world: L.World, names: Names, tables: RateTables, cluster: Cluster, policy: Policy, settings: Settings
) -> Context:
    """Gather the context that a policy gets once, before the run."""
    weights = {q.name: q.weight for q in cluster.queues}
    priorities = {q.name: q.priority for q in cluster.queues}
    parents = {q.name: names.queues.index(q.parent) for q in cluster.queues if q.parent is not None}
    return Context(
        gpu_types=tables.gpu_types,
        queues=names.queues,
        queue_weights=np.array([weights.get(q, 1.0) for q in names.queues]),
        queue_limits=world.qu[L.Q_LIMIT].copy(),
        node_gpus=world.ni[L.N_GPUS].copy(),
        node_types=world.ni[L.N_TYPE].copy(),
        total_cpus=float(world.nf[L.CPU_TOTAL].sum()),
        total_memory_gib=float(world.nf[L.MEM_TOTAL].sum()),
        seed=settings.seed,
        kinds=tables.class_names,
        ps_kinds=tables.ps_names,
        gpu_prices=_gpu_prices(tables.gpu_types, cluster),
        queue_quotas=world.qu[L.Q_QUOTA].copy(),
        queue_parents=np.array([parents.get(q, -1) for q in names.queues], np.int64),
        queue_priorities=np.array([priorities.get(q, 0.0) for q in names.queues]),
        lent=_lent(cluster),
        overheads=_overheads(world, settings) if "overhead" in policy.uses else None,
    )


def _lent(cluster: Cluster) -> NDArray[np.bool_] | None:
    names = {name for loan in cluster.loans for name in loan.nodes}
    return np.array([node.name in names for node in cluster.nodes]) if names else None


def _overheads(world: L.World, settings: Settings) -> NDArray[np.float64]:
    """Return what changes cost the jobs of each class, by the columns of `Overhead`."""
    resize = L.O_RESIZE_HOT if settings.hot_resize else L.O_RESIZE_COLD
    costs = np.ascontiguousarray(world.ov[:, [L.O_START, L.O_SUSPEND, L.O_RESUME, L.O_MIGRATE, resize]])
    costs.flags.writeable = False
    return costs


def renew_overheads(context: Context, world: L.World, settings: Settings) -> None:
    """Bring the costs of changes up to date that the policy sees, in place, because policies keep the array."""
    if context.overheads is not None:
        context.overheads.flags.writeable = True
        context.overheads[:] = _overheads(world, settings)
        context.overheads.flags.writeable = False


def _gpu_prices(gpu_types: tuple[str, ...], cluster: Cluster) -> tuple[float, ...]:
    """Return what one GPU of each type costs per hour; empty unless all nodes have a price."""
    prices = []
    for gpu_type in gpu_types:
        nodes = [n for n in cluster.nodes if n.gpu_type == gpu_type and n.gpus]
        known = [n.price_per_hour for n in nodes if n.price_per_hour is not None]
        if not nodes or len(known) < len(nodes):
            return ()
        prices.append(sum(known) / sum(n.gpus for n in nodes))
    return tuple(prices)
