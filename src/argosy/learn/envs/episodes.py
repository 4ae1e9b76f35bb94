"""Episodes of a scenario: which jobs arrive, when a run is truncated, and how it proceeds to the next decision.

An episode's jobs are those of one seed of the scenario. `reset(seed=s)` takes seed s, as `argosy compare` does; without
one the seed is drawn from `seeds`, which are far from the small seeds on which policies are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from argosy.errors import InputError
from argosy.learn.envs.action_table import ActionTable
from argosy.learn.envs.host import REWARDS, Host
from argosy.learn.envs.source import Source, find, job_types, type_names
from argosy.policies.base import Policy
from argosy.policies.learned.features import JobTypes

TRAINING_SEEDS = (1_000_000, 2_000_000)
KEPT = 32  # traces in the cache: rollouts that share their arrivals ask for the same ones


class Episodes:
    """Runs one episode after the other on the same action table."""

    def __init__(
        self,
        scenario: str | Source,
        *,
        reward: str,
        types: Sequence[str] | None,
        seeds: tuple[int, int],
        max_decisions: int | None,
        as_policies: bool = False,
    ) -> None:
        """With `as_policies`, jobs have the types that policies see; otherwise the trace's, which may be more exact."""
        check_known("reward", reward, REWARDS)
        check_positive(max_decisions=max_decisions)
        if not 0 <= seeds[0] < seeds[1]:
            raise InputError(f"seeds must be two numbers ≥ 0, the second one larger, is {seeds}")
        self.source = find(scenario)
        self.trace = lru_cache(maxsize=KEPT)(self.source.trace)
        self.types = type_names(self.trace, types)
        self._reward, self._seeds, self._limit = reward, seeds, max_decisions
        self._as_policies = as_policies
        self.decisions = 0
        self._host: Host | None = None

    @property
    def host(self) -> Host:
        if self._host is None:
            raise InputError("there is no run yet", hint="call reset()")
        return self._host

    def begin(
        self,
        table: ActionTable,
        seed: int | None,
        options: Mapping[str, Any] | None,
        draws: np.random.Generator,
        *,
        slot_s: float = 0.0,
        under: Policy | None = None,
        autopilot: bool = False,
    ) -> int:
        """Begin a new run, go to its first decision, and return its seed."""
        drawn = int(draws.integers(*self._seeds)) if seed is None else seed
        trace_seed = int((options or {}).get("trace_seed", drawn))
        if trace_seed < 0:
            raise InputError(f"trace_seed must be ≥ 0, is {trace_seed}")
        trace = self.trace(trace_seed)
        self._host = Host(
            self.source,
            trace,
            trace_seed,
            slot_s=slot_s,
            sizing=table.sizing,
            reward=self._reward,
            under=under,
            autopilot=autopilot,
            newcomers=table.newcomers,
            cap=table.cap,
            bidding=table.bidding,
        )
        self._table, self._autopilot = table, autopilot
        context = self._host.engine.context
        types = JobTypes(context, self.types) if self._as_policies else job_types(trace, self.types, context)
        table.reset(self._host, types)
        self.decisions, self._most = 0, self._limit or 20 * len(trace) + 1000
        if not self._go_on():
            raise InputError(f"the scenario {self.source.name} has no decision for a learner with seed {trace_seed}")
        return trace_seed

    def proceed(self) -> tuple[bool, bool]:
        """Go on to the next decision; return whether the run has ended, and whether it is truncated."""
        self.decisions += 1
        terminated = not self._go_on()
        return terminated, not terminated and self.decisions >= self._most

    def _go_on(self) -> bool:
        """Go on to the next decision in which there is something to choose; return False when the run is over."""
        while self.host.next():
            if self._autopilot or self._table.begin():
                return True
        return False


def check_known(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"unknown {what} {value!r}; there are {', '.join(known)}")


def check_positive(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not 0 < value < np.inf:
            raise InputError(f"{name} must be > 0, is {value}")
