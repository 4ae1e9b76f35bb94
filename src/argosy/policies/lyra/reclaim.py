"""Choose which servers go back to their owner, so that few jobs are preempted.

A job that holds enough GPUs elsewhere only shrinks. Every other job on a server would be preempted on all of its
servers; so the server counts a part of it, and once the job is lost for one server the others are cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Holder:
    """A job that holds GPUs on servers: how many on each, and how many it needs."""

    gpus: dict[int, int]
    least: float


def preemption_cost(server: int, holders: Mapping[int, Holder]) -> float:
    """Return the sum of 1 / (servers of the job) over the jobs that giving back this server would preempt."""
    return sum(1.0 / len(h.gpus) for h in holders.values() if server in h.gpus and not survives(h, server))


def survives(holder: Holder, server: int) -> bool:
    """Return whether a job can go on with what it holds on its other servers."""
    return sum(holder.gpus.values()) - holder.gpus[server] >= max(holder.least, 1)


def cheapest(servers: Sequence[int], count: int, holders: Mapping[int, Holder]) -> list[int]:
    """Return the servers to give back: the cheapest, again and again, as the jobs on it leave or shrink."""
    left, jobs = list(servers), {job: Holder(dict(h.gpus), h.least) for job, h in holders.items()}
    chosen: list[int] = []
    while len(chosen) < count:
        held = {s: sum(h.gpus.get(s, 0) for h in jobs.values()) for s in left}
        server = min(left, key=lambda s: (preemption_cost(s, jobs), held[s], s))
        chosen.append(server)
        left.remove(server)
        for job in [job for job, h in jobs.items() if server in h.gpus]:
            if survives(jobs[job], server):
                del jobs[job].gpus[server]
            else:
                del jobs[job]
    return chosen
