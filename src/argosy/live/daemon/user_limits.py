"""Limits of users, from the cluster file and from operators, and the checks at submission.

What an operator sets overrides the file, and a limit of one user overrides that of everybody, each limit by itself.
What may run at once is decided elsewhere: see `argosy.live.daemon.limit_enforcement`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from argosy.cluster.cluster import Cluster
from argosy.cluster.limits import EVERYBODY, NAMES, Limits, merged
from argosy.errors import InputError, UnknownName
from argosy.live.daemon.audit import DAEMON
from argosy.live.daemon.tokens import OWNER
from argosy.live.errors import NotFound, OverLimit
from argosy.live.spec import JobSpec
from argosy.live.store import Actor, Store


@dataclass(frozen=True, slots=True)
class LimitRow:
    """The limits of one user, and where they come from."""

    owner: str  # or EVERYBODY
    limits: Limits  # in force
    in_file: tuple[str, ...]  # limits that the cluster file sets for this very user
    set_here: tuple[str, ...]  # limits that an operator has set for this very user
    set_by: str | None
    set_at: float | None


class LimitBook:
    """All limits of all users. `version` grows with every change."""

    def __init__(self, store: Store, cluster: Cluster | None = None) -> None:
        self._store, self._cluster, self.version = store, cluster, 0
        self._file = {one.owner: dict(one.given) for one in cluster.limits} if cluster is not None else {}
        rows = store.query("SELECT owner, given, set_by, set_at FROM limits")
        self._set: dict[str, dict[str, Any]] = {owner: json.loads(given) for owner, given, _, _ in rows}
        self._author = {owner: (by, at) for owner, _, by, at in rows}
        self._type_of = {node.name: node.gpu_type for node in cluster.nodes} if cluster is not None else {}
        self._known: dict[str, Limits] = {}  # a cache: every submission asks

    def of(self, owner: str) -> Limits:
        """Return the limits that apply to a user."""
        found = self._known.get(owner)
        if found is None:
            places = (self._file.get(EVERYBODY), self._set.get(EVERYBODY), self._file.get(owner), self._set.get(owner))
            found = self._known[owner] = merged(place for place in places if place)
        return found

    def rows(self, owner: str | None = None) -> list[LimitRow]:
        """Return the rows of all users with limits of their own, or of one user; everybody's comes first."""
        named = sorted({EVERYBODY, *self._file, *self._set}) if owner is None else [owner]
        return [
            LimitRow(
                name,
                self.of(name),
                tuple(self._file.get(name, ())),
                tuple(self._set.get(name, ())),
                *self._author.get(name, (None, None)),
            )
            for name in named
        ]

    def set(self, owner: str, given: Mapping[str, Any], by: Actor = DAEMON) -> LimitRow:
        """Set some limits of a user; those that are not named stay as they are."""
        if owner != EVERYBODY and not OWNER.fullmatch(owner):
            hint = f"write a user's name, or '{EVERYBODY}' for all"
            raise InputError(f"{owner[:60]!r} is not a valid user name", hint=hint)
        if not given:
            raise InputError("no limit is given", hint=f"give some of {', '.join(NAMES)}")
        self._check_queues(given.get("queues"))
        self._check_types(given.get("types"))
        now = self._store.clock.wall()
        before = self._set.get(owner, {})
        whole = before | dict(given)
        if given.get("types") and before.get("types"):
            whole["types"] = {**before["types"], **given["types"]}  # types that are not named stay as they are
        with self._store.transaction() as changes:
            values = (owner, json.dumps(whole), by.who, now)
            changes.execute("INSERT OR REPLACE INTO limits (owner, given, set_by, set_at) VALUES (?, ?, ?, ?)", values)
            told = ", ".join(f"{name} {_shown(value)}" for name, value in given.items())
            changes.audit(by, "limits-set", f"user {owner}", detail=told)
        self._set[owner], self._author[owner] = whole, (by.who, now)
        self._changed()
        return self.rows(owner)[0]

    def clear(self, owner: str, by: Actor = DAEMON) -> None:
        """Remove what was set for a user, so that the cluster file's limits apply again."""
        if owner not in self._set:
            raise NotFound(f"no limits are set for {owner[:60]!r}", hint="see who has some: argosy limits")
        with self._store.transaction() as changes:
            changes.execute("DELETE FROM limits WHERE owner = ?", (owner,))
            changes.audit(by, "limits-clear", f"user {owner}")
        del self._set[owner], self._author[owner]
        self._changed()

    def check(self, owner: str, specs: Sequence[JobSpec], coming: int = 0) -> None:
        """Raise OverLimit for what its owner may not submit; `coming` of the owner's jobs are not written yet."""
        limits = self.of(owner)
        for spec in specs:
            self._check_one(owner, limits, spec)
        if limits.queued is None:
            return
        more, waiting = sum(spec.array or 1 for spec in specs), self._store.queued[owner] + coming
        if waiting + more > limits.queued:
            raise OverLimit(
                f"{owner} has {waiting} jobs waiting of {limits.queued} allowed, so {more} more are too many",
                hint=f"wait for some to start, cancel some, or {_ask(owner, 'queued', waiting + more)}",
            )

    def check_priority(self, owner: str, priority: float) -> None:
        most = self.of(owner).priority
        if most is not None and priority > most:
            raise OverLimit(
                f"priority: {priority:g} is above {most:g}, the highest that {owner} may use",
                hint=f"give at most {most:g}, or {_ask(owner, 'priority', priority)}",
            )

    def check_change(self, owner: str, spec: JobSpec, changed: Set[str]) -> None:
        """Raise OverLimit for what the owner of a job may not change it to; only what has changed counts."""
        self._check_one(owner, self.of(owner), spec, changed)

    def _check_one(self, owner: str, limits: Limits, spec: JobSpec, changed: Set[str] | None = None) -> None:
        # a default priority is lowered, not refused
        if "priority" in (spec.model_fields_set if changed is None else changed):
            self.check_priority(owner, spec.priority)
        if limits.queues is not None and spec.queue not in limits.queues and (changed is None or "queue" in changed):
            may = f"may submit to {', '.join(limits.queues)}" if limits.queues else "may submit to no queue"
            raise OverLimit(
                f"queue: {owner} {may}, not to {spec.queue}",
                hint=f"choose another queue, or {_ask(owner, 'queues', ','.join((*limits.queues, spec.queue)))}",
            )
        if limits.array is not None and (spec.array or 0) > limits.array and changed is None:
            raise OverLimit(
                f"array: {spec.array} copies are too many, {owner} may have {limits.array} in one array",
                hint=f"submit fewer, or {_ask(owner, 'array', spec.array)}",
            )
        needs = least_gpus(spec)
        if limits.gpus is not None and needs > limits.gpus and (changed is None or "resources" in changed):
            raise OverLimit(
                f"resources.gpus: {spec.name} needs {needs:g} GPUs, but {owner} may hold only {limits.gpus:g} at once",
                hint=f"ask for fewer, or {_ask(owner, 'gpus', f'{needs:g}')}",
            )

        accepted, most = self.accepted(spec), limits.of_types
        too_many = bool(needs and accepted) and all(needs > most.get(name, math.inf) for name in accepted)
        if too_many and (changed is None or "resources" in changed):
            name = max(accepted, key=lambda one: most[one])
            raise OverLimit(
                f"resources: {spec.name} needs {needs:g} GPUs of type {' or '.join(accepted)}, but {owner} "
                f"may hold only {most[name]:g} of type {name} at once",
                hint=f"ask for fewer, or another type, or {_ask(owner, 'type', f'{name}={needs:g}')}",
            )

    def _check_queues(self, queues: Sequence[str] | None) -> None:
        known = {queue.name for queue in self._cluster.queues} if self._cluster is not None else set()
        for name in queues or ():
            if name not in (known or {"default"}):
                raise UnknownName("queue", name, known or {"default"})

    def _check_types(self, types: Mapping[str, Any] | None) -> None:
        known = set(self._cluster.gpu_types) if self._cluster is not None else None
        for name in types or ():
            if known is not None and name not in known:
                raise UnknownName("GPU type", name, known)

    def type_of(self, node: str) -> str:
        """Return the GPU type of a node; empty if the node is unknown."""
        return self._type_of.get(node, "")

    def accepted(self, spec: JobSpec) -> tuple[str, ...]:
        """Return the GPU types that a job accepts."""
        return spec.resources.gpu_types or (self._cluster.gpu_types if self._cluster is not None else ())

    def _changed(self) -> None:
        self._known.clear()
        self.version += 1


def least_gpus(spec: JobSpec) -> float:
    """Return the fewest GPUs that the job holds while it runs; an exclusive share of a GPU counts as a whole one."""
    low = spec.resources.gpus.low
    return 1.0 if spec.exclusive and 0 < low < 1 else low


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_shown(most)}" for name, most in value.items())
    return "none" if value is None else ",".join(value) if isinstance(value, list | tuple) else f"{value:g}"


def _ask(owner: str, name: str, value: object) -> str:
    return f"ask an operator (argosy limits set {owner} --{name} {value})"
