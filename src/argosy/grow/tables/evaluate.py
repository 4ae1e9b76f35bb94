"""Judge an agent's decisions on a table: the accuracy they lead to, their rank and their regret."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.grow.agents.base import Agent, Situation
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import Split, Table

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """Holds how good an agent's decisions are on one table."""

    table: str
    sequence: tuple[int, ...]
    accuracy: float
    rank: int
    of: int  # the number of sequences in the table
    regret: float
    best: float
    none: float
    random: float  # the mean over all sequences

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data, for JSON."""
        return asdict(self) | {"sequence": list(self.sequence)}


def judge(table: Table, sequence: Iterable[int], split: Split = "validation") -> Verdict:
    """Judge a sequence of decisions."""
    chosen = tuple(int(a) for a in sequence)
    return Verdict(
        table.key,
        chosen,
        table.mean(chosen, split),
        table.rank(chosen, split),
        len(table),
        table.regret(chosen, split),
        table.best(split),
        table.none(split),
        table.random_mean(split),
    )


def situation(table: Table, prefix: tuple[int, ...]) -> Situation:
    """Return the situation that an agent sees after these decisions."""
    done: list[tuple[float, Surgery]] = []
    for decision, chosen in enumerate(prefix):
        surgery = table.options[chosen]
        if surgery is not None:
            done.append((table.time_at(prefix[:decision]), surgery))
    return Situation(
        graph=table.graph,
        options=tuple(option for option in table.options if option is not None),
        time_left=table.time_at(prefix),
        time_budget=table.budget,
        done=tuple(done),
        decisions_left=table.decisions - len(prefix),
        most=1,
    )


def play(agent: Agent, table: Table) -> tuple[int, ...]:
    """Return the sequence of an agent's decisions, asked as in training."""
    chosen: tuple[int, ...] = ()
    for _ in range(table.decisions):
        answer = agent.decide(situation(table, chosen))
        wanted = answer[0] if answer else None
        if wanted is not None and wanted not in table.options:
            wanted = replace(wanted, init="")  # an agent may choose how new weights start; tables have the default
        if len(answer) > 1 or wanted not in table.options:
            what = " and ".join(map(str, answer))
            raise GrowError(f"the agent decided to {what}, which is not an option of the table {table.key}")
        chosen = (*chosen, table.options.index(wanted))
    return chosen


def evaluate(agent: Agent, tables: Iterable[Table], split: Split = "validation") -> list[Verdict]:
    """Let an agent decide on each table, and judge it."""
    return [judge(table, play(agent, table), split) for table in tables]


def random_sequences(table: Table, rng: np.random.Generator, count: int = 10, split: Split = "validation") -> float:
    """Return the random baseline as published: the mean accuracy of some random sequences."""
    return float(table.means(split)[rng.integers(len(table), size=count)].mean())


def smooth(values: Floats, window: int = 50) -> Floats:
    """Return a moving mean over the last `window` values; at the start there are fewer."""
    if window < 1:
        raise GrowError(f"the window must be at least 1, not {window}", hint="give 1 or more")
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
