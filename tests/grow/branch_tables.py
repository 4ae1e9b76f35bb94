"""Made-up branch tables in which it is known what growth gains."""

from __future__ import annotations

import math

import numpy as np

from argosy.grow.agents.base import Curve
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.branch_table import Arm, BranchTable, DecisionPoint
from argosy.grow.training.recipe import Recipe

DEEPEN, WIDEN = Surgery("deepen", "3"), Surgery("widen", "1", 1.5, "fresh")
REPLICATE = Surgery("replicate", factor=2.0)


def gain_of(share_left: float, error: float) -> float:
    """What deepening gains on the logarithmic scale: much early, if there is much to learn; a loss late."""
    return 0.5 * (share_left - 0.3) + 0.1 * math.log(error / 0.3)


def branch_table(
    family: str = "mlp", data: str = "fashion-mnist", seed: int = 0, runs: int = 2, noise: float = 0.01
) -> BranchTable:
    """A table of a perceptron, whose arms gain what `gain_of` says, and noise."""
    rng = np.random.default_rng(seed)
    final = float(rng.uniform(0.1, 0.5))  # the error at the end, if the network is left alone
    recipe = Recipe(batch=32, lr=0.05, optimizer=("sgd", "adam")[seed % 2])
    return BranchTable(
        family=family,
        model="mlp",
        options={"width": 16, "classes": 10, "channels": 1, "size": 14},
        shape=(1, 14, 14),
        data=data,
        counts={"train": 2000, "validation": 3000, "test": 3000, "classes": 10},
        recipe=recipe.to_dict(),
        budget=12.0,
        runs=tuple(
            tuple(decision_point(name, time, final, rng, noise) for name, time in TIMES.items()) for _ in range(runs)
        ),
        about={"command": "made up"},
    )


TIMES = {"early": 3.0, "middle": 6.0, "late": 10.0}


def decision_point(
    scenario: str, time: float, final: float, rng: np.random.Generator, noise: float = 0.01
) -> DecisionPoint:
    """A moment in training whose error falls towards `final`."""
    epochs = range(1, int(time) + 1)
    errors = [final * (1 + 2 * math.exp(-e / 3)) for e in epochs]
    errors = [min(e, 0.9) for e in errors]
    curve = Curve(
        tuple(float(e) for e in epochs), tuple(-math.log(1 - 0.9 * e) for e in errors), tuple(1 - e for e in errors)
    )
    left = 1 - time / 12
    known = gain_of(left, errors[-1])
    ways = {
        (): (None, 0.0),
        ("reset",): (True, 0.02),
        (DEEPEN,): (None, known),
        (WIDEN,): (None, 0.5 * known),
        (REPLICATE,): (False, 0.05 * left),
    }
    arms = []
    for way, (reset, gain) in ways.items():
        score = 1 - final * math.exp(-gain + (noise * float(rng.standard_normal()) if way else 0.0))
        surgeries = () if way == ("reset",) else way
        arms.append(Arm(surgeries, reset, "free", score, score, 3500, 7000.0, int(12 - time)))
    return DecisionPoint(scenario, time, curve, 3500, 7000.0, 0.02, 1.0, (), tuple(arms))


def family_tables(count: int = 12) -> list[BranchTable]:
    """Tables of several families and data sets."""
    families, sets = ("mlp", "plain", "residual", "gelu"), ("fashion-mnist", "cifar10", "digits")
    return [branch_table(families[i % 4], sets[i % 3], seed=i) for i in range(count)]
