"""A shadow policy: it is asked what it would do at decisions of the live policy, and does nothing.

A copy of the planner's process asks it. Its share of a CPU is bounded: decisions that fall into its rest, or while it
still works on an earlier one, are skipped and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from argosy.errors import ArgosyError, InputError
from argosy.live.daemon.audit import DAEMON
from argosy.live.daemon.forecasts import Foresight, ask
from argosy.live.daemon_log import note
from argosy.live.planner.shadowing import Shadowed, describe
from argosy.live.store import Actor, Store
from argosy.policies.base import create

CPU_SHARE = 0.05  # of one CPU
LIMIT_S = 20.0
SHADOW = "shadow"  # key in `meta`: the policy, and since when
KEPT = 10_000  # rows
WINDOW = 200  # of the latest comparisons, for the figures
INSERT = (
    "INSERT INTO shadow (at_s, at, policy, live, jobs, differ, agreement, gain, cpu_s)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def check_registered(policy: str) -> None:
    """Raise an InputError unless this is a registered policy: a request must not make the daemon load a file."""
    if ".py" in policy.partition(":")[0]:
        hint = "the daemon loads files only where it is started: argosy serve --policy FILE or --shadow FILE"
        raise InputError(f"{policy[:100]!r} is a file", hint=hint)
    create(policy)


@dataclass
class Shadow:
    """The shadow of one daemon; `policy` is None while there is none."""

    store: Store
    live: str
    policy: str | None = None
    since_at: float = 0.0
    decisions: int = 0
    compared: int = 0
    skipped: int = 0
    slow: int = 0
    failed: int = 0
    problem: str = ""
    last: Shadowed | None = None
    _state: str = "{}"
    _agreements: list[float] = field(default_factory=list)
    _gains: list[float] = field(default_factory=list)
    _due_s: float = 0.0
    _task: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Go on with the shadow that the former daemon had."""
        found = self.store.query("SELECT value FROM meta WHERE key = ?", (SHADOW,))
        known = json.loads(found[0][0]) if found else None
        if known:
            self._begin(known["policy"], known["since_at"])

    def set(self, policy: str | None, by: Actor = DAEMON) -> None:
        """Begin to compare with a policy, or stop; a policy that does not exist is refused."""
        if policy is not None and by is not DAEMON:  # the daemon's own options may name a file
            check_registered(policy)
        since = self.store.clock.wall()
        with self.store.transaction() as changes:
            changes.meta(SHADOW, None if policy is None else {"policy": policy, "since_at": since})
            changes.audit(by, "shadow", policy or "none", detail=f"the live policy is {self.live}")
        self._begin(policy, since)

    def _begin(self, policy: str | None, since_at: float) -> None:
        self.policy, self.since_at, self.last, self.problem, self._state = policy, since_at, None, "", "{}"
        self.decisions = self.compared = self.skipped = self.slow = self.failed = 0
        self._agreements, self._gains, self._due_s = [], [], 0.0

    def decided(self, planner: object) -> None:
        """Compare the decision that the live policy has just made, unless the shadow is busy or rests."""
        if self.policy is None or not self.store.jobs or not isinstance(planner, Foresight):
            return
        self.decisions += 1
        now = self.store.clock.now()
        if now < self._due_s or (self._task is not None and not self._task.done()):
            self.skipped += 1
            return
        self._due_s = now + 1.0
        self._task = asyncio.create_task(self._compare(planner, self.policy))

    async def _compare(self, planner: Foresight, policy: str) -> None:
        arguments = {"policy": policy, "state": self._state, "seed": self.compared}
        try:
            answer = await ask(planner, "shadow", LIMIT_S, arguments)
        except ArgosyError:
            self.skipped += 1  # the planner has failed, which is reported elsewhere
            return
        except Exception:
            logging.getLogger(__name__).exception("a shadow failed")
            self.failed += 1
            return
        self._due_s = self.store.clock.now() + answer.cpu_s / CPU_SHARE
        if policy != self.policy:
            return
        if answer.problem:
            self.slow += "longer than" in answer.problem
            self.failed += "longer than" not in answer.problem
            self._due_s += min(2.0 ** (self.slow + self.failed), 600.0)
            if answer.problem != self.problem:
                note("the shadow policy failed; the live one is not affected", logging.WARNING, problem=answer.problem)
            self.problem = answer.problem
            return
        found: Shadowed = answer.answer
        self.problem, self.last, self._state, self.compared = "", found, found.state, self.compared + 1
        self._agreements = [*self._agreements, found.agreement][-WINDOW:]
        if found.gains:
            self._gains = [*self._gains, sum(found.gains) / len(found.gains)][-WINDOW:]
        wall = self.store.clock.wall() - self.store.clock.now()
        gain = describe(found.gains)
        with suppress(ArgosyError), self.store.transaction() as changes:
            row = (found.at_s, found.at_s + wall, policy, self.live, found.jobs, json.dumps(found.differ))
            changes.execute(INSERT, (*row, found.agreement, gain["mean"], answer.cpu_s))
            changes.execute("DELETE FROM shadow WHERE id <= (SELECT max(id) FROM shadow) - ?", (KEPT,))

    def summary(self) -> dict[str, Any]:
        """Return what the API shows."""
        wall = self.store.clock.wall() - self.store.clock.now()
        last = self.last
        differ = (
            [{"job": job, "gpus": ours, "shadow_gpus": theirs} for job, ours, theirs in last.differ] if last else []
        )
        return {
            "policy": self.policy,
            "live": self.live,
            "since": self.since_at if self.policy is not None else None,
            "decisions": self.decisions,
            "compared": self.compared,
            "skipped": self.skipped,
            "slow": self.slow,
            "failed": self.failed,
            "problem": self.problem,
            "agreement": sum(self._agreements) / len(self._agreements) if self._agreements else None,
            "gain": describe(self._gains),
            "last_at": None if last is None else round(last.at_s + wall, 1),
            "differ": differ,
        }

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
