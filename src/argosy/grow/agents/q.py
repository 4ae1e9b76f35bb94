"""A value-based growth agent: Q(state, step) for any set of possible steps.

Decision: the step with the highest value; doing nothing is also a step.
State used: as the planning agent, but values are learned for single steps instead of found by planning to the end.
Parameters: a layer's features → 4 numbers; their sums over the layers that a plan grows, with the time and the
    decisions left → 32 → 32 → value.

A step is judged by the network that it leads to, so the set of steps may differ from state to state. Learning is
Q-learning over the prefixes of a table's sequences:

    Q(prefix, step) ← r + max over next steps Q(prefix + step, next),   at the end: ← r

r is 0 except at the end, where it is the standardised accuracy; with `dense` it is the accuracy gained since the
previous decision, which carries more information, and earlier.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from argosy.atomic import writing
from argosy.grow.agents.base import Situation
from argosy.grow.agents.plan_features import NODE_INPUTS, NOTES, WHOLE, Plan, Step, Task
from argosy.grow.agents.planning_agent import steps_of, task_before
from argosy.grow.agents.surrogate_data import plans_of, task_of
from argosy.grow.describe import FEATURES
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import Table

FORMAT = "argosy q growth agent 1"
CODE, HIDDEN = 4, 32


class Values(nn.Module):
    """A network that estimates the value of the steps done so far."""

    centre: torch.Tensor
    scale: torch.Tensor

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encode = nn.Linear(NODE_INPUTS, CODE)
            self.value = nn.Sequential(
                nn.Linear(len(NOTES) * CODE + len(WHOLE) + 2, HIDDEN),
                nn.Tanh(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.Tanh(),
                nn.Linear(HIDDEN, 1),
            )
        self.register_buffer("centre", torch.zeros(NODE_INPUTS))
        self.register_buffer("scale", torch.ones(NODE_INPUTS))

    def forward(self, task: Task, plans: Sequence[Plan], left: int) -> torch.Tensor:
        """Return one value per plan; `left` decisions are still to come."""
        layers, whole = (torch.from_numpy(part).float() for part in task.notes(plans))
        nodes = (torch.from_numpy(task.nodes).float() - self.centre) / self.scale
        summed = (layers @ torch.tanh(self.encode(nodes))).flatten(1)
        outside = torch.tensor([task.share_left[0], float(left)]).expand(len(plans), 2)
        return self.value(torch.cat([summed, whole, outside], dim=1))[:, 0]  # type: ignore[no-any-return]


class QAgent:
    """This agent takes the step with the highest value."""

    def __init__(self, values: Values | None = None, *, several: int = 1) -> None:
        self.values, self.several = values or Values(), several

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        """Return the best step now."""
        task, before = task_before(situation)
        steps = steps_of(situation.options, self.several)
        left = max(situation.decisions_left, 1) - 1
        plans = [(*before, step, *[()] * left) for step in steps]
        with torch.no_grad():
            return steps[int(self.values(task, plans, left).argmax())]

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the weights (safetensors)."""
        header = {"format": FORMAT, "features": FEATURES, "about": dict(about or {})}
        with writing(path) as temporary:
            save_file(self.values.state_dict(), temporary, metadata={"argosy": json.dumps(header)})

    @classmethod
    def load(cls, path: str | Path) -> QAgent:
        """Read what `save` wrote; nothing in the file is executed."""
        try:
            with safe_open(str(path), framework="pt") as file:
                header = json.loads((file.metadata() or {}).get("argosy", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if header.get("format") != FORMAT or tuple(header.get("features", ())) != FEATURES:
                raise GrowError("the file is not a Q agent of this version", where=str(path), hint="train it again")
            values = Values()
            values.load_state_dict(tensors)
        except (OSError, SafetensorError, ValueError, RuntimeError) as problem:
            line = str(problem).splitlines()[0]
            raise GrowError(
                f"the agent is incomplete or damaged: {line}", where=str(path), hint="train it again"
            ) from None
        return cls(values)


def learn_q(
    tables: Sequence[Table],
    *,
    steps: int = 400,
    seed: int = 0,
    rate: float = 0.01,
    dense: bool = False,
    progress: Callable[[int, float], None] | None = None,
) -> QAgent:
    """Learn from whole tables; each update uses every step after every prefix."""
    if not tables:
        raise GrowError("there is nothing to learn from", hint="give at least one table")
    lessons = [_Prefixes(table, dense) for table in tables]
    values = Values(seed)
    nodes = np.concatenate([lesson.task.nodes for lesson in lessons])
    values.centre = torch.from_numpy(nodes.mean(0)).float()
    values.scale = torch.from_numpy(nodes.std(0) + 0.1).float()
    learning = torch.optim.Adam(values.parameters(), rate, weight_decay=1e-4)
    for step in range(steps):
        loss = torch.stack([lesson.error(values) for lesson in lessons]).mean()
        if not torch.isfinite(loss):
            raise GrowError(f"the loss is not finite in update {step + 1}", hint="learn with a smaller rate")
        learning.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        learning.step()
        if progress:
            progress(step + 1, float(loss.detach()))
    return QAgent(values)


class _Prefixes:
    """Holds a table's sequences, cut off after each decision."""

    def __init__(self, table: Table, dense: bool) -> None:
        self.task, self.options, self.decisions = task_of(table), len(table.options), table.decisions
        means = table.means()
        self.spread = float(means.std()) or 1.0
        full = dict(zip(map(tuple, table.sequences.tolist()), plans_of(table), strict=True))
        self.levels: list[list[Plan]] = []
        self.rewards: list[torch.Tensor] = []
        for depth in range(1, self.decisions + 1):
            tail = (table.nothing,) * (self.decisions - depth)
            prefixes = list(itertools.product(range(self.options), repeat=depth))
            rest: list[Step] = [()] * (self.decisions - depth)
            self.levels.append([(*full[(*prefix, *tail)][:depth], *rest) for prefix in prefixes])
            self.rewards.append(self._rewards(table, prefixes, dense))

    def _rewards(self, table: Table, prefixes: list[tuple[int, ...]], dense: bool) -> torch.Tensor:
        depth = len(prefixes[0])
        last = depth == table.decisions
        if dense:
            if table.progress is None:
                raise GrowError(
                    f"the table {table.key} has no accuracy at each decision, which a dense reward needs",
                    hint="make it again, or learn without dense",
                )
            gained = [table.gained(prefix) for prefix in prefixes]
            return torch.tensor(gained, dtype=torch.float32) / self.spread
        if not last:
            return torch.zeros(len(prefixes))
        standard = (table.means() - table.means().mean()) / self.spread
        return torch.tensor([standard[table.index(p)] for p in prefixes], dtype=torch.float32)

    def error(self, values: Values) -> torch.Tensor:
        """Return the temporal-difference loss of the values."""
        found = [values(self.task, plans, self.decisions - 1 - i) for i, plans in enumerate(self.levels)]
        total = torch.zeros(())
        for i, now in enumerate(found):
            target = self.rewards[i]
            if i + 1 < len(found):
                target = target + found[i + 1].detach().reshape(len(now), self.options).amax(1)
            total = total + nn.functional.smooth_l1_loss(now, target)
        return total
