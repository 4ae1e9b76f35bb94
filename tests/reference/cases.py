"""Random small clusters and traces, for the engine and for the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from random import Random

from argosy.cluster import cluster as c
from argosy.policies.base import create
from argosy.sim.engine import Engine
from argosy.sim.settings import Settings
from argosy.workload import trace as t
from reference import Job, Node, Reference, Rules

QUEUES = ("red", "blue")
KEYS = {
    "fifo": lambda job: job.submit,
    "fifo-backfill": lambda job: job.submit,
    "sjf": lambda job: job.work,
    "smallest-first": lambda job: job.gpus,
    "srtf": lambda job: job.left,
    "srsf": lambda job: job.left * job.gpus,
    "las": lambda job: job.attained,
}
PREEMPTIVE = ("srtf", "srsf", "las")
LARGE = (49, 64, 96, 128)  # GPUs of a node that the engine keeps in several words


@dataclass(frozen=True)
class Case:
    """One small cluster and workload, as plain numbers."""

    policy: str
    nodes: tuple[tuple[int, int, int], ...]  # GPUs, CPUs, GiB
    jobs: tuple[tuple[int, int, int, int, int, str], ...]  # submit, work, GPUs, CPUs and GiB per GPU, queue
    limits: dict[str, int]
    strict: bool
    quantum: int
    min_run: int
    max_preemptions: int
    overheads: dict[str, int]  # start, suspend, resume, migrate


def draw(random: Random, policy: str | None = None) -> Case:
    """Draw a case with much contention: high loads, mixed sizes, frequent ties."""
    counted = random.random() < 0.5  # GPUs alone matter: all demands for CPUs and memory are zero
    largest = random.choice((1, 2, 4, 8))
    drawn = [
        (random.choice((largest, largest, random.randint(1, largest))), random.randint(2, 12), random.randint(2, 12))
        for _ in range(random.randint(1, 5))
    ]
    asked = [1, 1, 1, 2, 2, 3, 4, 4, 5, 8, 16, *(() if counted else (0, 0))]
    if random.random() < 0.2:
        large = random.choice(LARGE)
        drawn[random.randrange(len(drawn))] = (large, random.randint(2, large), random.randint(2, large))
        asked += [large, large - 1, large // 2, large // 2, large // 3, 49, 48, 20]
    nodes = tuple(drawn)
    total = sum(gpus for gpus, _, _ in nodes)
    sizes = [size for size in asked if size <= total]
    span = random.choice((5, 30, 100))
    jobs = []
    for _ in range(random.randint(1, 25)):
        gpus = random.choice(sizes)
        cpus, memory = (0, 0) if counted else (random.choice((0, 0, 1, 2)), random.choice((0, 0, 1, 3)))
        cpus = max(cpus, gpus == 0)
        work = random.choice((0, 1, 3, random.randint(1, 60)))
        jobs.append((random.randint(0, span), work, gpus, cpus, memory, random.choice(QUEUES)))
    limits = {queue: random.randint(1, total + 1) for queue in QUEUES if random.random() < 0.15}
    free = random.random() < 0.4  # what is restarted more often than its restart takes would never end
    return Case(
        policy or random.choice(list(KEYS)),
        nodes,
        tuple(sorted(jobs, key=lambda job: job[0])),
        limits,
        strict=random.random() < 0.3,
        quantum=random.choice((1, 5, 20) if free else (20, 30)),
        min_run=random.choice((0, 0, 3, 15)),
        max_preemptions=random.choice((10**6, 10**6, 2)),
        overheads={kind: 0 if free else random.randint(0, 4) for kind in ("start", "suspend", "resume", "migrate")},
    )


def ends_by_reference(case: Case) -> list[tuple[int | None, int, int]]:
    """Return when each job ends, and how often it was preempted and moved; None if it can never run."""
    nodes = [Node(gpus, cpus, memory, set(range(gpus))) for gpus, cpus, memory in case.nodes]
    jobs = [Job(i, *numbers) for i, numbers in enumerate(case.jobs)]
    rules = Rules(
        KEYS[case.policy],
        case.policy in PREEMPTIVE,
        case.policy != "fifo",
        case.quantum if case.policy == "las" else math.inf,
        case.strict,
        case.min_run,
        case.max_preemptions,
        case.overheads,
        case.limits,
    )
    for job in jobs:
        alone = Reference(nodes, [job], rules)
        if alone.over_limit(job) or not alone.choose(job, []):
            job.state = "ended"
    Reference(nodes, jobs, rules).run()
    return [(None if job.finish < 0 else job.finish, job.preemptions, job.migrations) for job in jobs]


def ends_by_engine(case: Case, folder: Path) -> list[tuple[int | None, int, int]]:
    """Return the same figures from the engine."""
    costs = folder / "overheads.csv"
    costs.write_text("model,kind,seconds\n" + "".join(f",{kind},{s}\n" for kind, s in case.overheads.items()))
    settings = Settings.ideal(
        overheads=str(costs),
        consolidation="strict" if case.strict else "soft",
        min_run_s=float(case.min_run),
        max_preemptions=case.max_preemptions,
        oversized="skip",
    )
    cluster = c.Cluster(
        tuple(c.Node(f"n{i}", "gpu", gpus, float(cpus), float(gib)) for i, (gpus, cpus, gib) in enumerate(case.nodes)),
        queues=tuple(c.Queue(name, 0.0, float(limit)) for name, limit in case.limits.items()),
    )
    trace = t.Trace.of_jobs(
        t.Job(
            f"j{i}",
            float(submit),
            float(work),
            float(gpus),
            queue=queue,
            cpus=float(cpus * max(gpus, 1)),
            memory_gib=float(gib * max(gpus, 1)),
        )
        for i, (submit, work, gpus, cpus, gib, queue) in enumerate(case.jobs)
    )
    policy = create(f"las:quantum_s={case.quantum}" if case.policy == "las" else case.policy)
    jobs = Engine(trace, cluster, policy, settings).run().jobs
    return list(zip(jobs["finish_s"].to_list(), jobs["preemptions"].to_list(), jobs["migrations"].to_list()))
