"""Turn tables of growth sequences into the observations that a surrogate learns from."""

from __future__ import annotations

import numpy as np

from argosy.grow.agents.plan_features import Plan, Task
from argosy.grow.agents.surrogate import Observed
from argosy.grow.tables.growth_table import Table


def task_of(table: Table) -> Task:
    """Return the task that a table is about."""
    left = table.time_left.mean(axis=0)
    epochs = float(left[0] / (left[0] - left[1])) if len(left) > 1 and left[0] > left[1] else None
    return Task(table.graph, tuple(float(x) / table.budget for x in left), epochs, name=table.key)


def plans_of(table: Table) -> list[Plan]:
    """Return the plan of each row of a table."""
    return [tuple(() if table.options[a] is None else (table.options[a],) for a in row) for row in table.sequences]


def observations(table: Table) -> Observed:
    """Return the validation results of a whole table as observations."""
    return Observed.of(task_of(table), plans_of(table), np.asarray(table.means()), table.runs)
