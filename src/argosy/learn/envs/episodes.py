"""Episodes of a scenario: which jobs come, when a run has gone on for too long, and the way to the next decision.

An episode's jobs are those of one seed of the scenario. `reset(seed=s)` takes seed s, as `argosy compare` does;
without one it is drawn from `seeds`, far from the small numbers that policies are judged with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from argosy.errors import InputError
from argosy.learn.envs.board import Board
from argosy.learn.envs.host import REWARDS, Host
from argosy.learn.envs.source import Source, find, job_types, type_names
from argosy.policies.base import Policy
from argosy.policies.learned.features import JobTypes

TRAINING_SEEDS = (1_000_000, 2_000_000)
KEPT = 32  # traces: rollouts that share their arrivals ask for the same ones


class Episodes:
    """One episode after the other, on the same board."""

    def __init__(
        self, scenario: str | Source, *, reward: str, types: Sequence[str] | None, seeds: tuple[int, int],
        max_decisions: int | None, as_policies: bool = False,
    ) -> None:  # fmt: skip
        """`as_policies`: jobs have the types that a policy sees, which a trace may know more exactly."""
        check_known("reward", reward, REWARDS)
        check_positive(max_decisions=max_decisions)
        if not 0 <= seeds[0] < seeds[1]:
            raise InputError(f"seeds must be a range of numbers ≥ 0, is {seeds}")
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
        self, board: Board, seed: int | None, options: Mapping[str, Any] | None, draws: np.random.Generator, *,
        slot_s: float = 0.0, under: Policy | None = None, autopilot: bool = False,
    ) -> int:  # fmt: skip
        """A new run, at its first decision; says with which seed."""
        drawn = int(draws.integers(*self._seeds)) if seed is None else seed
        trace_seed = int((options or {}).get("trace_seed", drawn))
        if trace_seed < 0:
            raise InputError(f"trace_seed must be ≥ 0, is {trace_seed}")
        trace = self.trace(trace_seed)
        self._host = Host(
            self.source, trace, trace_seed, slot_s=slot_s, sizing=board.sizing, reward=self._reward, under=under,
            autopilot=autopilot, newcomers=board.newcomers, cap=board.cap,
        )  # fmt: skip
        self._board, self._autopilot = board, autopilot
        context = self._host.engine.context
        types = JobTypes(context, self.types) if self._as_policies else job_types(trace, self.types, context)
        board.reset(self._host, types)
        self.decisions, self._most = 0, self._limit or 20 * len(trace) + 1000
        if not self._go_on():
            raise InputError(f"the scenario {self.source.name} has nothing to decide with seed {trace_seed}")
        return trace_seed

    def proceed(self) -> tuple[bool, bool]:
        """After a decision: to the next one; is the run over, and has it gone on for too long?"""
        self.decisions += 1
        terminated = not self._go_on()
        return terminated, not terminated and self.decisions >= self._most

    def _go_on(self) -> bool:
        """To the next decision with something to choose; False when the run is over."""
        while self.host.next():
            if self._autopilot or self._board.begin():
                return True
        return False


def check_known(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"unknown {what} {value!r}; there are {', '.join(known)}")


def check_positive(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not 0 < value < np.inf:
            raise InputError(f"{name} must be > 0, is {value}")
