"""Train by a recipe: updates of one of the algorithms, with validations on jobs that training never sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from argosy.learn.training.dual_agent import runs
from argosy.learn.training.dual_agent.recipe import TRAINING_SEED, VALIDATION_SEED, DualAgentRecipe
from argosy.policies.dual_agent.agents import KIND, Agents
from argosy.zoo import Weights

Progress = Callable[[str], None]


class Learner(Protocol):
    """An algorithm."""

    def agents(self) -> Agents: ...

    def update(self) -> dict[str, float]: ...


def learner(recipe: DualAgentRecipe) -> Learner:
    """Return the algorithm of a recipe, at the rule written by hand."""
    if recipe.algo == "es":
        from argosy.learn.training.dual_agent.evolution import TeamEvolution

        return TeamEvolution(recipe)
    if recipe.algo == "sac":
        from argosy.learn.training.dual_agent.team_sac import TeamSAC

        return TeamSAC(recipe)
    from argosy.learn.training.dual_agent.team_ppo import TeamPPO

    return TeamPPO(recipe)


def train(recipe: DualAgentRecipe | None = None, *, progress: Progress | None = None) -> Weights:
    """Train by a recipe, and return the weights of the best validation; `progress` gets a line for each update."""
    from argosy.learn.training.threads import single_thread  # imports torch: late

    recipe = recipe or DualAgentRecipe()
    say = progress or (lambda text: None)
    seeds = list(range(VALIDATION_SEED, VALIDATION_SEED + recipe.validation))
    best: tuple[float, Agents] | None = None
    curve: list[list[float]] = []
    with single_thread():
        trained = learner(recipe)
        for update in range(recipe.updates + 1):
            if update % recipe.every == 0 or update == recipe.updates:
                agents = trained.agents()
                cost = float(np.exp(np.mean(np.log(runs.totals(recipe, agents, seeds)))))
                curve.append([update, cost])
                if best is None or cost < best[0]:
                    best = cost, agents
                say(f"update {update}: {cost:.2f} minutes and fees, the geometric mean over validation runs")
            if update < recipe.updates:
                say(f"update {update}: " + ", ".join(f"{name} {x:.4g}" for name, x in trained.update().items()))
    assert best is not None
    arrays = {name: array.astype(np.float32) for name, array in best[1].arrays.items()}
    return Weights(arrays, about(recipe, best[0], curve))


def about(recipe: DualAgentRecipe, cost: float, curve: list[list[float]]) -> dict[str, Any]:
    """Return what the file of weights says about itself."""
    default = DualAgentRecipe()
    changed = {name: value for name, value in asdict(recipe).items() if value != getattr(default, name)}
    options = [f"--scenario {','.join(recipe.scenarios)}", f"--algo {recipe.algo}", f"--seed {recipe.seed}"]
    options += [f"--set {n}={v}" for n, v in changed.items() if n not in ("seed", "algo", "scenarios")]
    return {
        "network": KIND,
        "system": "dual-agent",
        "squeeze": recipe.squeeze,
        "command": f"argosy train dual-agent {' '.join(options)} -o dual-agent.safetensors",
        "recipe": json.loads(json.dumps(asdict(recipe))) | {"scenario": ", ".join(recipe.scenarios)},
        "seed": recipe.seed,
        "window": {
            "training_seeds": [TRAINING_SEED, 2 * TRAINING_SEED],
            "validation_seeds": [VALIDATION_SEED, VALIDATION_SEED + recipe.validation],
            "jobs": recipe.jobs,
        },
        "score": {"over_base": cost / curve[0][1], "base": "the rule by hand", "validation_cost": cost},
        "curve": curve,
        "versions": {name: version(name) for name in ("argosy", "numpy", "torch")},
    }
