"""Check that a policy fulfils its contract, with one call for authors of policies.

    check_policy(MyPolicy())        or        check_policy("las:quantum_s=60")

The policy runs on a few tiny traces (a single job, gaps in which no job is active, CPU-only jobs, shares of a
device, elastic jobs, many jobs at once). A breach is raised as a PolicyError that says where it happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from argosy.cluster.cluster import Cluster
from argosy.cluster.view import INFORMATION, JOB_COLUMNS, NODE_COLUMNS
from argosy.errors import PolicyError
from argosy.mechanism.world import PLACERS
from argosy.policies.base import Policy, create
from argosy.sim.engine import Engine
from argosy.sim.result import Result
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check that found no breach: what was observed of the policy."""

    policy: str
    decisions: int
    unread: tuple[str, ...]  # information that it declares but did not read


@dataclass(slots=True)
class Seen:
    """What the runs have shown so far."""

    decisions: int = 0
    information: set[str] = field(default_factory=set)


def check_policy(policy: Policy | str) -> Checked:
    """Run a policy on tiny traces and raise a PolicyError for the first breach of the contract."""
    if isinstance(policy, str):
        policy = create(policy)
    check_declarations(policy)
    seen = Seen()
    for name, (trace, cluster) in small_worlds().items():
        try:
            check_world(policy, trace, cluster, seen)
        except PolicyError as error:
            raise type(error)(f"{error} [trace {name!r}]") from error
        except Exception as error:
            problem = f"policy {policy.name!r} fails with {type(error).__name__}: {error} [trace {name!r}]"
            raise PolicyError(problem) from error
    check_memory(policy)
    tracked = {kind for kind, _ in (*JOB_COLUMNS.values(), *NODE_COLUMNS.values())} - {"profile"}  # not only columns
    unread = sorted((policy.uses & tracked) - seen.information)
    return Checked(policy.name, seen.decisions, tuple(unread))


def small_worlds() -> dict[str, tuple[Trace, Cluster]]:
    """Yield tiny traces, each with one feature that policies often handle wrongly."""
    one, two = Cluster.uniform(1, 1), Cluster.uniform(2, 4)
    mixed = [
        Job("cpu-only", 0.0, 40.0, 0, cpus=4.0, memory_gib=8.0),
        Job("share-a", 0.0, 50.0, 0.5),
        Job("share-b", 0.0, 30.0, 0.5),
        Job("gang", 1.0, 20.0, 6),
        Job("single", 2.0, 60.0, 1),
    ]
    sizes, lengths = (1, 2, 4, 8, 1, 3), (35.0, 5.0, 80.0, 20.0, 10.0)
    names = [(f"j{i}", f"u{i % 3}", f"q{i % 2}") for i in range(30)]
    crowd = [
        Job(name, 3.0 * i, lengths[i % 5], sizes[i % 6], user=user, queue=queue, weight=1 + i % 2)
        for i, (name, user, queue) in enumerate(names)
    ]
    worlds = {
        "one job": ([Job("only", 0.0, 10.0, 1)], one),
        "gaps": ([Job(f"j{i}", 100.0 * i, 10.0, 1) for i in range(3)], one),
        "all at once": ([Job(f"j{i}", 0.0, 10.0, 1) for i in range(4)], one),
        "shares and CPU-only": (mixed, two),
        "elastic": ([Job(f"j{i}", 5.0 * i, 60.0, 2, min_gpus=1, max_gpus=8) for i in range(6)], two),
        "crowd": (crowd, two),
    }
    return {name: (Trace.of_jobs(jobs, name), cluster) for name, (jobs, cluster) in worlds.items()}


def check_declarations(policy: Policy) -> None:
    """Raise PolicyError for class attributes that contradict each other or name what does not exist."""
    if not isinstance(policy, Policy):
        raise PolicyError(f"{policy!r} is not a Policy: derive its class from argosy.policies.base.Policy")
    name = policy.name or type(policy).__name__

    def refuse(problem: str) -> None:
        raise PolicyError(f"policy {name!r} {problem}")

    if not policy.name:
        refuse('has no name: decorate its class with @register("name", "what it does")')
    if not (policy.key or any(method in policy.answers for method in ("rank", "bid", "plan"))):
        refuse("implements neither rank nor bid nor plan")
    if "size" in policy.answers and not (policy.key or "rank" in policy.answers):
        refuse("implements size but not rank: sizes are served in the order of rank")
    if unknown := sorted(set(policy.uses) - set(INFORMATION)):
        refuse(f"uses unknown information {unknown}; there are {', '.join(INFORMATION)}")
    if policy.placer not in PLACERS:
        refuse(f"has an unknown placer {policy.placer!r}; there are {', '.join(PLACERS)}")
    asks_again = [m for m in ("size", "place", "bid", "plan", "wake_at", "on_event") if m in policy.answers]
    if policy.static and (policy.preemptive or asks_again):
        why = f"implements {asks_again[0]}" if asks_again else "is preemptive"
        refuse(f"declares a static key but {why}: then it must be asked at every decision")
    if policy.eager and not policy.answers.isdisjoint(("size", "bid", "plan")):
        refuse("declares eager, but newcomers would start at the size they ask for without it being asked")


def check_world(policy: Policy, trace: Trace, cluster: Cluster, seen: Seen) -> None:
    """Run one trace: every answer must be valid, every job must finish, and a second run must give the same."""

    def run(watch: Callable[[Engine], None] | None, seed: int = 0) -> Result:
        return Engine(trace, cluster, policy, Settings.ideal().with_seed(seed), watch=watch).run()

    def look(engine: Engine) -> None:
        check_answer(engine)
        seen.decisions += 1
        for columns, meanings in ((engine.view.jobs, JOB_COLUMNS), (engine.view.nodes, NODE_COLUMNS)):
            seen.information.update(meanings[name][0] for name in vars(columns) if name in meanings)

    watched, plain = run(look), run(None)
    check_everybody_finishes(policy, plain)
    draws = policy.seeded or policy.placer == "random"
    by_seed = not draws and not plain.events.equals(run(None, seed=1).events)
    if not plain.events.equals(run(None).events):
        raise PolicyError(
            f"policy {policy.name!r} gives another result on the second run: let reset() forget everything,"
            " and draw random numbers from argosy.seeding.stream(context.seed, …)"
        )
    if by_seed:
        raise PolicyError(
            f"policy {policy.name!r} gives another result with another seed, but does not say that it draws random"
            " numbers: declare seeded = True"
        )
    declared = [flag for flag in ("static", "eager") if getattr(policy, flag)]
    if declared and policy.placer != "random" and not plain.events.equals(watched.events):
        raise PolicyError(
            f"policy {policy.name!r} declares {' and '.join(declared)}, but being asked at every decision"
            " changes the result"
        )


def check_answer(engine: Engine) -> None:
    """Check after a decision that each job has a finite key; the engine itself checks sizes and plans."""
    policy = engine.policy
    if "plan" in policy.answers:
        return  # the mechanism has already checked the plan and carried it out

    def refuse(row: int, problem: str) -> None:
        job = engine.job_name(int(engine.jobs.index[row]))
        raise PolicyError(f"policy {policy.name!r} at t={engine.now:g}: job {job!r} {problem}")

    key = engine.jobs.key
    wrong = np.isnan(key) if policy.key else ~np.isfinite(key)  # a column may be infinite, as a deadline that is none
    for row in np.flatnonzero(wrong).tolist():
        refuse(row, f"is ranked {key[row]}, which is not a finite number")


def check_everybody_finishes(policy: Policy, result: Result) -> None:
    left = result.jobs.filter(result.jobs["finish_s"].is_null())["job_id"].to_list()
    if left:
        raise PolicyError(
            f"policy {policy.name!r} leaves {', '.join(left)} waiting for ever, though nothing else happens:"
            " start them, or return a time from wake_at"
        )


def check_memory(policy: Policy) -> None:
    """Check that a policy's state can be saved as JSON and restored."""
    state = policy.state()
    try:
        text = json.dumps(state)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"policy {policy.name!r}: state() is not JSON: {error}") from error
    policy.restore(json.loads(text))
    if json.dumps(policy.state()) != text:
        raise PolicyError(f"policy {policy.name!r}: state() differs after restore(state())")
