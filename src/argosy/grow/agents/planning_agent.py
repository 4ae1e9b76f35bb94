"""Argosy's own growth agent: plan to the end by the expected accuracy, do the first step, then plan again.

Decision: all plans for the remaining decisions are compared by the final accuracy that the surrogate expects; the
    first step of the best one is done. If the plan that does nothing more is best, the agent stops growing.
State used: the layer graph, what was grown before, the time left and the budget; if known the epoch's time, the GPUs
    gained and their utilisation.
Parameters: `several`, the most surgeries per decision; `at_least`, the gain in accuracy that growing must be expected
    to bring; `most_plans`, the most plans that are compared.

More replicas are one more option, so plans that grow and plans that replicate are compared with each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from argosy.grow.agents.base import Situation
from argosy.grow.agents.plan_features import Floats, Plan, Step, Task
from argosy.grow.agents.store import read, write
from argosy.grow.agents.surrogate import Observed, Surrogate
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery

PRETRAINED = Path(__file__).with_name("pretrained.safetensors")


@dataclass(frozen=True)
class Forecast:
    """Holds the expected gain in accuracy of an option over doing nothing, if the best plan follows it."""

    step: Step
    gain: float
    deviation: float

    def __str__(self) -> str:
        name = " and ".join(map(str, self.step)) or "leave it"
        return f"{name}: {100 * self.gain:+.1f} ± {100 * self.deviation:.1f} points"


class PlanningAgent:
    """This agent decides by planning on a learned surrogate."""

    def __init__(
        self, surrogate: Surrogate, *, several: int = 1, at_least: float = 0.0, most_plans: int = 4096
    ) -> None:
        if several < 1:
            raise GrowError(f"several = {several} surgeries per decision is too small", hint="give 1 or more")
        self.surrogate, self.several, self.at_least, self.most_plans = surrogate, several, at_least, most_plans
        self.forecasts: tuple[Forecast, ...] = ()  # for the last decision, best first

    @classmethod
    def load(cls, path: str | Path | None = None) -> PlanningAgent:
        """Read an agent from a file; without a path, return the agent that comes with Argosy."""
        return cls(read(path if path is not None else PRETRAINED))

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the agent, and how it was made, to a file."""
        write(path, self.surrogate, about or {})

    def decide(self, situation: Situation) -> tuple[Surgery, ...]:
        """Return the first step of the best plan."""
        self.forecasts = self.forecast(situation)
        best = self.forecasts[0]
        return best.step if best.gain > self.at_least else ()

    @property
    def why(self) -> str:
        """Return the reason for the last decision: the expected gains of the best steps."""
        return "expected gain over doing nothing: " + "; ".join(map(str, self.forecasts[:3])) if self.forecasts else ""

    def forecast(self, situation: Situation) -> tuple[Forecast, ...]:
        """Return the forecast of each possible step, best first."""
        task, before = task_before(situation)
        steps = steps_of(situation.options, self.several)
        ahead = max(situation.decisions_left, 1)
        while ahead > 1 and len(steps) ** ahead > self.most_plans:
            ahead -= 1  # too many to compare, so plan for fewer decisions
        rest: Plan = [()] * (max(situation.decisions_left, 1) - ahead)
        plans = [(*before, *plan, *rest) for plan in itertools.product(steps, repeat=ahead)]
        mean, covariance = self._expect(task, plans)
        each = len(steps) ** (ahead - 1)  # plans that begin with the same step
        found = []
        for i, step in enumerate(steps):
            best = i * each + int(mean[i * each : (i + 1) * each].argmax())
            variance = covariance[best, best] + covariance[0, 0] - 2 * covariance[best, 0]
            found.append(Forecast(step, float(mean[best] - mean[0]), float(np.sqrt(max(variance, 0.0)))))
        return tuple(sorted(found, key=lambda f: -f.gain))

    def _expect(self, task: Task, plans: Sequence[Plan]) -> tuple[Floats, Floats]:
        """Return the expected accuracy of each plan; the first plan does nothing more."""
        asked = Observed(task, *task.notes(plans), np.zeros(len(plans)))
        mean, covariance = self.surrogate.expect(asked)
        spread = self.surrogate.usual_spread
        return mean * spread, covariance * spread**2


def task_before(situation: Situation) -> tuple[Task, list[Step]]:
    """Return the task that this decision belongs to, and the steps that were done before it."""
    times: dict[float, list[Surgery]] = {}
    for left, surgery in situation.done:
        times.setdefault(left, []).append(surgery)
    budget = situation.time_budget
    if not budget > 0:
        raise GrowError(f"the time budget must be above 0 for planning, not {budget:g}")
    earlier = sorted(times, reverse=True)
    pause = situation.epoch_s if situation.epoch_s else 0.02 * budget
    ahead = [max(situation.time_left - i * pause, 0.0) for i in range(max(situation.decisions_left, 1))]
    shares = tuple(left / budget for left in (*earlier, *ahead))
    epochs = (earlier[0] if earlier else situation.time_left) / situation.epoch_s if situation.epoch_s else None
    task = Task(situation.graph, shares, epochs, situation.gpus_gained, situation.utilisation)
    return task, [tuple(times[left]) for left in earlier]


def steps_of(options: Sequence[Surgery], several: int) -> list[Step]:
    """Return every choice of at most `several` options; the empty choice comes first."""
    return [step for size in range(several + 1) for step in itertools.combinations(options, size)]


def pretrained() -> PlanningAgent:
    """Return the agent that comes with Argosy."""
    return PlanningAgent.load()
