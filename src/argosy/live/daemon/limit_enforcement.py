"""Enforces the limits on what users may run at once.

This happens in two places. `LimitFilter` shows the policy only as much of a user's queue as the limits allow: what
runs, then the waiting jobs by priority and number as far as they fit; what is left over goes to elastic jobs, so that
all jobs together can never hold more than the limits. `Headroom` is asked before anything starts or grows, whatever the
policy decided, because its decision may be older than the latest changes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from argosy.cluster.limits import Limits
from argosy.live.backends.base import Part
from argosy.live.daemon.user_limits import LimitBook
from argosy.live.daemon.views import held
from argosy.live.planner.messages import JobFacts
from argosy.live.states import State
from argosy.live.store import Job, RunRow, Store
from argosy.slack import GPU_SLACK


def holds(run: RunRow) -> float:
    """Return the GPUs of a run; while it changes, the larger of old and new. A paused run keeps its place."""
    return max(held(run.parts), held(run.former or ()))


@dataclass(slots=True)
class Queue:
    """The jobs of one user who has limits."""

    running: set[int] = field(default_factory=set)
    waiting: list[tuple[float, int]] = field(default_factory=list)  # by priority, then number
    keys: dict[int, tuple[float, int]] = field(default_factory=dict)  # of waiting jobs
    shown: dict[int, float] = field(default_factory=dict)  # the most GPUs of each job that the policy sees
    types: dict[int, tuple[str, ...]] = field(default_factory=dict)  # the GPU types of waiting jobs, where limits bind
    held_types: dict[str, float] = field(default_factory=dict)  # GPUs held, by type
    held_gpus: float = 0.0
    first: int | None = None  # the first waiting job that is shown

    def put(self, number: int, job: Job | None, eligible: bool) -> None:
        """Update the queue with the new state of a job."""
        key = self.keys.pop(number, None)
        if key is not None:
            del self.waiting[bisect_left(self.waiting, key)]
        self.running.discard(number)
        if job is None:
            return
        if job.state is not State.PENDING:
            self.running.add(number)
        elif eligible:
            key = self.keys[number] = (-job.priority, number)
            insort(self.waiting, key)


class LimitFilter:
    """Decides which jobs the policy may see. `eligible` says whether a waiting job could run but for the limits."""

    def __init__(self, store: Store, limits: LimitBook, eligible: Callable[[Job], bool]) -> None:
        self._store, self._limits, self._eligible = store, limits, eligible
        self._queues: dict[str, Queue] = {}  # by user, only of users whose runs are limited
        self._owners: dict[int, str] = {}
        self._changed: set[str] = set()
        self._version = limits.version

    def touch(self, numbers: Iterable[int]) -> None:
        """Note that something has happened to these jobs."""
        for number in numbers:
            job = self._store.jobs.get(number)
            owner = job.owner if job is not None else self._owners.pop(number, None)
            if owner is None or not self._limits.of(owner).bound_runs:
                continue
            if job is not None:
                self._owners[number] = owner
            self._queues.setdefault(owner, Queue()).put(number, job, job is not None and self._eligible(job))
            self._changed.add(owner)

    def settle(self) -> set[int]:
        """Decide again which jobs are shown where something has changed; return jobs for which the answer changed."""
        news = self._start_over() if self._version != self._limits.version else set()
        for owner in sorted(self._changed):
            queue = self._queues[owner]
            before, types = queue.shown, queue.types
            queue.shown = self._plan(queue, self._limits.of(owner))
            news |= {number for number in before.keys() | queue.shown if before.get(number) != queue.shown.get(number)}
            news |= {number for number in types.keys() | queue.types if types.get(number) != queue.types.get(number)}
        self._changed.clear()
        return news

    def shows(self, job: Job) -> bool:
        """Return whether the policy may see this waiting job."""
        if not self._limits.of(job.owner).bound_runs:
            return True
        queue = self._queues.get(job.owner)
        return queue is not None and job.id in queue.shown

    def most_gpus(self, job: Job) -> float:
        """Return how many GPUs its owner's limits allow a job at most; infinite without limits."""
        queue = self._queues.get(job.owner)
        return math.inf if queue is None else queue.shown.get(job.id, math.inf)

    def types_of(self, job: Job) -> tuple[str, ...] | None:
        """Return the GPU types on which its owner's limits let a waiting job start; None without such a limit."""
        queue = self._queues.get(job.owner)
        return None if queue is None else queue.types.get(job.id)

    def reason(self, job: Job) -> dict[str, Any] | None:
        """Return why its owner's limits hold a job back; None if they do not."""
        queue = self._queues.get(job.owner)
        if queue is None or job.id not in queue.keys or job.id in queue.shown:
            return None
        owner, limits, runs, first = job.owner, self._limits.of(job.owner), len(queue.running), queue.first
        gpus, needs = queue.held_gpus, _sizes(job)[0]
        change = f"ask an operator: argosy limits set {owner} --gpus {gpus + needs:g}"
        if limits.gpus is not None and needs > limits.gpus:
            text = f"it needs {needs:g} GPUs, {owner} may hold {limits.gpus:g} at once"
            change = f"ask an operator: argosy limits set {owner} --gpus {needs:g}"
        elif limits.running is not None and runs >= limits.running:
            text = f"{owner} runs {runs} of {limits.running} jobs allowed at once"
            change = f"ask an operator: argosy limits set {owner} --running {runs + 1}"
        elif limits.gpus is not None and gpus + needs > limits.gpus + GPU_SLACK:
            text = f"{owner} holds {gpus:g} of {limits.gpus:g} GPUs allowed"
            text += f", and it needs {needs:g}" if gpus < limits.gpus else ""
        elif full := self._full_types(queue, limits, job, needs):
            held_now = ", ".join(f"{queue.held_types.get(t, 0.0):g} of {limits.of_types[t]:g} {t}" for t in full)
            text = f"{owner} holds {held_now} allowed, and it needs {needs:g}"
            change = f"ask an operator: argosy limits set {owner} --type {full[0]}="
            change += f"{queue.held_types.get(full[0], 0.0) + needs:g}"
        else:
            of_gpus = "" if limits.gpus is None else f"hold {limits.gpus:g} GPUs"
            of_jobs = "" if limits.running is None else f"run {limits.running} jobs"
            of_types = "".join(f"hold {most:g} {name}" for name, most in limits.types[:1])
            text = f"{owner} may {' and '.join(filter(None, (of_gpus, of_jobs, of_types)))} at once"
            text += "" if first is None else f", and job {first} comes first"
            if first is not None:
                change = f"let job {first} start first, or cancel it: argosy cancel {first}"
        evidence = {"held_gpus": gpus, "running": runs, "behind": [] if first is None else [first]}
        return {"category": "limit", "text": text, "evidence": evidence, "change": change}

    def _full_types(self, queue: Queue, limits: Limits, job: Job, needs: float) -> list[str]:
        """Return the types that a job accepts, if its owner's limits leave too few GPUs of each of them."""
        accepted, most = self._limits.accepted(job.parsed), limits.of_types
        full = [t for t in accepted if queue.held_types.get(t, 0.0) + needs > most.get(t, math.inf) + GPU_SLACK]
        return full if len(full) == len(accepted) else []

    def _plan(self, queue: Queue, limits: Limits) -> dict[int, float]:
        """Decide which jobs are shown, with how many GPUs at most, and on which types they may start.

        A waiting job counts for every limited type on which it may start, because it may start on any of them.
        """
        left, bound = limits.of_types, dict[int, tuple[str, ...]]()  # of each job, the limited types that it counts for
        queue.types, queue.held_types = {}, {}
        gpus = math.inf if limits.gpus is None else limits.gpus
        jobs = math.inf if limits.running is None else float(limits.running)
        shown: dict[int, float] = {}
        queue.held_gpus, queue.first = 0.0, None
        for number in sorted(queue.running):
            job, run = self._store.jobs[number], self._store.runs.get(number)
            now = holds(run) if run is not None else 0.0
            shown[number] = max(_sizes(job)[1], now)
            queue.held_gpus += now
            here = _by_type(run, self._limits.type_of) if run is not None and left else {}
            for name, some in here.items():
                queue.held_types[name] = queue.held_types.get(name, 0.0) + some
            bound[number] = tuple(name for name in here if name in left)
            for name in bound[number]:
                left[name] -= here[name] + max(0.0, shown[number] - now)
            gpus, jobs = gpus - shown[number], jobs - 1
        most = math.inf if limits.gpus is None else limits.gpus
        for _, number in queue.waiting:
            low, asked, _ = _sizes(self._store.jobs[number])
            size = max(low, asked if asked <= most else math.floor(most))
            if size > gpus + GPU_SLACK or jobs < 1:
                break  # no job overtakes another, or a large one might wait for ever
            if left and size > 0:
                accepted = self._limits.accepted(self._store.jobs[number].parsed)
                able = tuple(name for name in accepted if size <= left.get(name, math.inf) + GPU_SLACK)
                if len(able) < len(accepted):
                    queue.types[number] = able
                bound[number] = tuple(name for name in able if name in left)
                for name in bound[number]:
                    left[name] -= size
                if not able:
                    left |= {name: -1.0 for name in accepted if name in left}  # so that no later job overtakes it
                    continue
            shown[number] = size
            queue.first = queue.first or number
            gpus, jobs = gpus - size, jobs - 1
        for number, size in shown.items():
            spare = min([gpus, *(left[name] for name in bound.get(number, ()))])
            more = min(_sizes(self._store.jobs[number])[2] - size, spare)
            if more >= 1:
                shown[number] = size + math.floor(more)
                gpus -= math.floor(more)
                for name in bound.get(number, ()):
                    left[name] -= math.floor(more)
        return shown

    def _start_over(self) -> set[int]:
        """Rebuild everything, because the limits have changed."""
        self._version = self._limits.version
        news = {number for queue in self._queues.values() for number in queue.keys.keys() | queue.shown}
        self._queues, self._owners, self._changed = {}, {}, set()
        self.touch(list(self._store.jobs))
        news |= {number for queue in self._queues.values() for number in queue.keys.keys() | queue.running}
        return news


def _sizes(job: Job) -> tuple[float, float, float]:
    """Return the least number of GPUs, what the job asks for, and the most."""
    facts = JobFacts.of(job.parsed, job.id, submitted_s=job.submitted_s)
    return facts.min_gpus or 0.0, facts.gpus, facts.max_gpus or 0.0


def _of_parts(parts: Iterable[Part], type_of: Callable[[str], str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        name = type_of(part.node)
        found[name] = found.get(name, 0.0) + held((part,))
    return found


def _by_type(run: RunRow, type_of: Callable[[str], str]) -> dict[str, float]:
    """Return the GPUs of a run by type; while it changes, the larger of old and new of each type."""
    now, before = _of_parts(run.parts, type_of), _of_parts(run.former or (), type_of)
    return {name: max(now.get(name, 0.0), before.get(name, 0.0)) for name in now.keys() | before}


def usage_by_type(store: Store, type_of: Callable[[str], str]) -> dict[str, dict[str, float]]:
    """Return GPUs held now, by user and type."""
    used: dict[str, dict[str, float]] = {}
    for run in store.runs.values():
        mine = used.setdefault(store.jobs[run.job].owner, {})
        for name, some in _by_type(run, type_of).items():
            mine[name] = mine.get(name, 0.0) + some
    return used


def usage(store: Store) -> dict[str, tuple[float, int]]:
    """Return GPUs held and jobs running now, by user."""
    return _usage(store.jobs, store.runs)


def _usage(jobs: Mapping[int, Job], runs: Mapping[int, RunRow]) -> dict[str, tuple[float, int]]:
    used: dict[str, tuple[float, int]] = {}
    for run in runs.values():
        gpus, count = used.get(jobs[run.job].owner, (0.0, 0))
        used[jobs[run.job].owner] = gpus + holds(run), count + 1
    return used


class Headroom:
    """What users may still take in one pass; counted only when it is first asked for a user with limits."""

    def __init__(
        self,
        limits: Callable[[str], Limits],
        jobs: Mapping[int, Job],
        runs: Mapping[int, RunRow],
        type_of: Callable[[str], str] = lambda node: "",
    ) -> None:
        self._limits, self._jobs, self._runs, self._type_of = limits, jobs, runs, type_of
        self._used: dict[str, tuple[float, int]] | None = None
        self._by_type: dict[str, dict[str, float]] = {}  # by owner, only of those with limits of types

    def allows(self, job: Job, parts: tuple[Part, ...], run: RunRow | None = None) -> bool:
        """Return whether the job may start with these parts, or its run change to them. Shrinking is always allowed."""
        limits = self._limits(job.owner)
        if not limits.bound_runs:
            return True
        gpus, jobs = self._of(job.owner)
        more = held(parts) - (holds(run) if run is not None else 0.0)
        too_many = run is None and limits.running is not None and jobs + 1 > limits.running
        if limits.types and not self._types_allow(job, parts, run, limits):
            return False
        return not too_many and (limits.gpus is None or more <= 0 or gpus + more <= limits.gpus + GPU_SLACK)

    def take(self, job: Job, parts: tuple[Part, ...], run: RunRow | None = None) -> None:
        """Count a start or change that was allowed."""
        if job.owner in self._by_type:
            for name, more in self._more(parts, run).items():
                self._by_type[job.owner][name] = self._by_type[job.owner].get(name, 0.0) + max(0.0, more)
        if self._used is not None:
            gpus, jobs = self._of(job.owner)
            more = max(0.0, held(parts) - (holds(run) if run is not None else 0.0))
            self._used[job.owner] = gpus + more, jobs + (run is None)

    def _types_allow(self, job: Job, parts: tuple[Part, ...], run: RunRow | None, limits: Limits) -> bool:
        if job.owner not in self._by_type:
            used: dict[str, float] = {}
            self._by_type[job.owner] = used
            for one in self._runs.values():
                if self._jobs[one.job].owner == job.owner:
                    for name, some in _by_type(one, self._type_of).items():
                        used[name] = used.get(name, 0.0) + some
        now, most = self._by_type[job.owner], limits.of_types
        more = self._more(parts, run)
        return all(
            some <= 0 or now.get(name, 0.0) + some <= most.get(name, math.inf) + GPU_SLACK
            for name, some in more.items()
        )

    def _more(self, parts: tuple[Part, ...], run: RunRow | None) -> dict[str, float]:
        """Return how many GPUs more of each type these parts are than what the run holds."""
        before = _by_type(run, self._type_of) if run is not None else {}
        after = _of_parts(parts, self._type_of)
        return {name: after.get(name, 0.0) - before.get(name, 0.0) for name in after}

    def _of(self, owner: str) -> tuple[float, int]:
        if self._used is None:
            self._used = _usage(self._jobs, self._runs)
        return self._used.get(owner, (0.0, 0))
