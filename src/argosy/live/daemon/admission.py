"""Refuses, with the reason, jobs that could never run on this cluster."""

from __future__ import annotations

from collections.abc import Iterable

from argosy.cluster.cluster import Cluster, Node
from argosy.errors import InputError, UnknownName
from argosy.live.spec import JobSpec
from argosy.slack import COUNT_SLACK

MAX_GRACE_S = 600.0  # unless the operator sets another limit


def check_possible(spec: JobSpec, cluster: Cluster) -> None:
    """Raise an InputError if the job could not start even on the empty cluster."""
    wants = spec.resources
    known = set(cluster.gpu_types)
    for name in wants.gpu_types:
        if name not in known:
            raise UnknownName("GPU type", name, known)
    check_queue(spec, cluster)
    if wants.gpus.high == 0:
        _check_cpu_job(spec, cluster.nodes)
        return
    kinds = [(n, count) for n, count in cluster.kinds if not wants.gpu_types or n.gpu_type in wants.gpu_types]
    low = wants.gpus.asked or 1.0  # a range from 0 needs at least one GPU too
    share = min(low, 1.0)  # half a GPU comes with half of the CPUs
    most = sum(count * _fitting(n, wants.cpus_per_gpu, wants.memory_per_gpu_gib, share) for n, count in kinds)
    if low <= most:
        return
    have = sum(count * n.gpus for n, count in kinds)
    if low > have:
        kind = f" of type {' or '.join(wants.gpu_types)}" if wants.gpu_types else ""
        raise InputError(
            f"resources.gpus: {spec.name} needs {low:g} GPUs{kind}, but the cluster has {have}",
            hint=f"ask for at most {have}, or for a range such as 1..{have}",
        )
    raise InputError(
        f"resources: {spec.name} needs {low:g} GPUs, but only {most} have the CPUs and memory that it asks for per GPU",
        hint="ask for less with cpus_per_gpu and memory_per_gpu_gib",
    )


def check_queue(spec: JobSpec, cluster: Cluster) -> None:
    """Check that the job's queue exists and its limit allows the job; a cluster without queues has `default`."""
    if not cluster.queues:
        known = {"default", *(reserved.queue for reserved in cluster.reservations)}
        if spec.queue not in known:
            raise UnknownName("queue", spec.queue, known)
        return
    queue = next((q for q in cluster.queues if q.name == spec.queue), None)
    if queue is None:
        raise UnknownName("queue", spec.queue, (q.name for q in cluster.queues))
    if queue.limit_gpus is not None and spec.resources.gpus.low > queue.limit_gpus:
        raise InputError(
            f"resources.gpus: {spec.name} needs {spec.resources.gpus.low:g} GPUs, "
            f"queue {queue.name} may hold at most {queue.limit_gpus:g}",
            hint="ask for fewer, or submit to another queue",
        )


def check_grace(spec: JobSpec, most_s: float) -> None:
    """Check that the job's warning and grace are not longer than the operator allows."""
    if spec.warning is not None and spec.warning.before + spec.grace > most_s >= spec.grace:
        raise InputError(
            f"warning.before: {spec.name} wants {spec.warning.before:g} s and then {spec.grace:g} s of grace, but at "
            f"most {most_s:g} s are allowed here",
            hint=f"write before: {max(0.0, most_s - spec.grace):g}s or less; the operator's limit is --max-grace",
        )
    if spec.grace > most_s:
        raise InputError(
            f"grace: {spec.name} wants {spec.grace:g} s to save its work, but at most {most_s:g} s are allowed here",
            hint=f"write grace: {most_s:g}s or less, and save more often; the operator's limit is --max-grace",
        )


def _fitting(node: Node, cpus: float | None, memory_gib: float | None, share: float) -> int:
    """Return how many GPUs of an empty node such a job can use."""
    most = float(node.gpus)
    if cpus:
        most = min(most, node.cpus / (cpus * share))
    if memory_gib:
        most = min(most, node.memory_gib / (memory_gib * share))
    return int(most + COUNT_SLACK)


def _check_cpu_job(spec: JobSpec, nodes: Iterable[Node]) -> None:
    cpus, memory = spec.resources.cpus_per_gpu or 0.0, spec.resources.memory_per_gpu_gib or 0.0
    if any(n.cpus >= cpus and n.memory_gib >= memory for n in nodes):
        return
    raise InputError(
        f"resources: no node has {cpus:g} CPUs and {memory:g} GiB for {spec.name}",
        hint="ask for fewer CPUs or less memory",
    )
