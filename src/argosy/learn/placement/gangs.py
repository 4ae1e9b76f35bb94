"""Train the placer of the policy `spotlight` on random gangs in random clusters, with Spotlight's algorithm.

Each update draws some gangs and places each several times, with nodes drawn from the network's probabilities. A
placement that is better than the others of the same gang is reinforced, by the clipped surrogate of `spotlight`, for
several epochs.

    cost = ln( step time / that of one node at the fastest speed ) + tidy · Σ over its nodes of (free GPUs left) / GPUs
    step time = 1 / (slowest node's speed × speed across nodes or racks)

`optimum` enumerates all placements of a small gang, and `consolidate` and `rack_aware` are the rules to compare with.
"""

from __future__ import annotations

import itertools
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from argosy import __version__
from argosy.learn.placement.descent import descend
from argosy.policies.spotlight import FEATURES, NETWORK, Flags, Gang, GangPlacer, Matrix
from argosy.seeding import stream
from argosy.zoo import Weights

TRAINING_SEED = 1_000_000
VALIDATION_SEED = 500_000
TIDY = 0.1  # what a node's worth of GPUs that are left over on a touched node costs, beside ln(step time)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the weights are made; the same recipe gives the same bits."""

    seed: int = 0
    hidden: int = 16  # width of the score network
    updates: int = 300
    gangs: int = 16  # per update
    samples: int = 8  # placements of each
    epochs: int = 4  # passes over them
    clip: float = 0.2
    lr: float = 0.01  # of Adam; it falls to 0 in a straight line
    entropy: float = 0.01
    validation: int = 200  # gangs on which the result is judged


def draw_gang(seed: int, nodes: int | None = None) -> Gang:
    """Return a random gang, and a random cluster that is partly in use."""
    rng = stream(seed, "placement.gang")
    count = int(rng.integers(3, 33)) if nodes is None else nodes
    size = int(rng.choice([4, 8]))
    types = int(rng.choice([1, 1, 2, 3]))
    kind = np.sort(rng.integers(types, size=count))
    speed = np.sort(rng.uniform(0.3, 1.0, types))[kind] * np.exp(rng.choice([0.0, 0.1]) * rng.standard_normal(count))
    busy = rng.random() * 0.9
    free = rng.binomial(size, 1 - busy, count)
    free = np.where(rng.random(count) < 0.3, np.where(rng.random(count) < busy, 0, size), free)
    rack = np.arange(count) // int(rng.choice([2, 4, 8, 40]))
    rack_speed = float(rng.uniform(0.4, 1.0))
    most = int(max(np.bincount(kind, free).max(), 1))
    tasks = int(min(rng.choice([1, 2, 4, 8, 16, 32]), most))
    if not free.any():
        free[0], tasks = size, min(tasks, size)
    across = (rack_speed, rack_speed * float(rng.uniform(0.3, 1.0)))
    return Gang(tasks, free.astype(np.int64), np.full(count, size), kind, rack, speed, across)


def cost(gang: Gang, chosen: dict[int, int]) -> float:
    """Return the cost of a placement: see the top of this file."""
    nodes = np.array(sorted(chosen))
    racks = len(set(gang.rack[nodes].tolist()))
    locality = 1.0 if len(nodes) == 1 else gang.across[0] if racks == 1 else gang.across[1]
    left = sum((gang.free[n] - chosen[n]) / gang.gpus[n] for n in nodes.tolist())
    pace = max(float(gang.speed[nodes].min()) * locality, 1e-9)
    return float(np.log(gang.speed.max() / pace) + TIDY * left)


def optimum(gang: Gang) -> float:
    """Return the least cost of all sets of nodes in all orders of filling; for a handful of nodes."""
    best = np.inf
    usable = np.flatnonzero(gang.free > 0).tolist()
    for count in range(1, min(len(usable), gang.tasks) + 1):
        for nodes in itertools.permutations(usable, count):
            if len({int(gang.type[n]) for n in nodes}) == 1:
                best = min(best, _cost_of_order(gang, nodes))
    return best


def _cost_of_order(gang: Gang, nodes: Iterable[int]) -> float:
    left, chosen = gang.tasks, {}
    for node in nodes:
        if not left:
            return np.inf  # a node too many: the same set without it is tried, too
        chosen[node] = min(int(gang.free[node]), left)
        left -= chosen[node]
    return cost(gang, chosen) if not left else np.inf


def consolidate(gang: Gang) -> dict[int, int] | None:
    """Return the usual placement: the fastest type with room, there the fullest node that suffices, or the emptiest."""
    return _by_rule(gang, lambda nodes: nodes)


def rack_aware(gang: Gang) -> dict[int, int] | None:
    """Return the same, but inside the fullest rack that suffices, if one does."""

    def one_rack(nodes: list[int]) -> list[int]:
        if any(gang.free[n] >= gang.tasks for n in nodes):
            return nodes
        free = {r: sum(int(gang.free[n]) for n in nodes if gang.rack[n] == r) for r in gang.rack[nodes].tolist()}
        fitting = [r for r, there in free.items() if there >= gang.tasks]
        rack = min(fitting, key=lambda r: (free[r], r), default=None)
        return nodes if rack is None else [n for n in nodes if gang.rack[n] == rack]

    return _by_rule(gang, one_rack)


def _by_rule(gang: Gang, narrow: Callable[[list[int]], list[int]]) -> dict[int, int] | None:
    stage = gang.start()
    kinds = {int(gang.type[n]): float(gang.speed[n]) for n in np.flatnonzero(stage.open).tolist()}
    if not kinds:
        return None
    kind = max(kinds, key=lambda k: kinds[k])
    nodes = narrow(np.flatnonzero(stage.open & (gang.type == kind)).tolist())
    single = [n for n in nodes if gang.free[n] >= gang.tasks]
    if single:
        return {min(single, key=lambda n: (gang.free[n], n)): gang.tasks}
    left, chosen = gang.tasks, {}
    for node in sorted(nodes, key=lambda n: (-gang.free[n], n)):
        chosen[node] = min(int(gang.free[node]), left)
        left -= chosen[node]
        if not left:
            return chosen
    return None


class Step(NamedTuple):
    """One stage of one placement."""

    features: Matrix
    open: Flags
    action: int
    log_p: float


def sample(placer: GangPlacer, gang: Gang, rng: np.random.Generator) -> tuple[list[Step], float]:
    """Draw a placement; return its stages and its cost."""
    stage, steps, chosen = gang.start(), [], {}
    while stage.left:
        features = stage.features()
        scores = np.where(stage.open, placer.scores(features), -np.inf)
        log_p = scores - np.logaddexp.reduce(scores)
        node = int((log_p + rng.gumbel(size=len(log_p))).argmax())
        steps.append(Step(features, stage.open, node, float(log_p[node])))
        chosen[node] = stage.take(node)
    return steps, cost(gang, chosen)


def train(recipe: Recipe | None = None, *, progress: Callable[[dict[str, float]], None] | None = None) -> Weights:
    """Return trained weights, with their mean cost on gangs that training never saw."""
    recipe = recipe or Recipe()
    rng = stream(recipe.seed, "spotlight.train")
    first = {
        "v1": rng.standard_normal((FEATURES, recipe.hidden)) / np.sqrt(FEATURES),
        "c1": np.zeros(recipe.hidden),
        "v2": 0.1 * rng.standard_normal(recipe.hidden),
        "c2": np.zeros(1),
    }
    p = {name: nn.Parameter(torch.from_numpy(array.astype(np.float32))) for name, array in first.items()}
    optimizer = torch.optim.Adam(p.values(), lr=recipe.lr)
    for update in range(recipe.updates):
        placer = GangPlacer({name: value.detach().numpy() for name, value in p.items()})
        steps: list[Step] = []
        gains: list[float] = []
        mean_cost = 0.0
        for number in range(recipe.gangs):
            gang = draw_gang(TRAINING_SEED + update * recipe.gangs + number)
            drawn = [sample(placer, gang, rng) for _ in range(recipe.samples)]
            costs = np.array([c for _, c in drawn])
            mean_cost += float(costs.mean()) / recipe.gangs
            for (stages, _), gain in zip(drawn, costs.mean() - costs):
                steps += stages
                gains += [float(gain)] * len(stages)
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * (1 - update / recipe.updates)
        _learn(p, optimizer, steps, np.array(gains, np.float32), recipe)
        if progress is not None:
            progress({"update": update, "cost": mean_cost})
    arrays = {name: value.detach().numpy().copy() for name, value in p.items()}
    placer = GangPlacer(arrays)
    gangs = [draw_gang(VALIDATION_SEED + i) for i in range(recipe.validation)]
    about = {
        "network": NETWORK,
        "system": "spotlight",
        "command": f"python -m argosy.learn.placement.gangs {recipe.seed}",
        "seed": recipe.seed,
        "window": f"random gangs, seeds from {TRAINING_SEED:,} on",
        "score": {
            name: float(np.mean([cost(gang, found) for gang in gangs if (found := place(gang)) is not None]))
            for name, place in (("trained", placer.place), ("consolidate", consolidate), ("rack-aware", rack_aware))
        },
        "versions": {"argosy": __version__, "python": platform.python_version(), "torch": torch.__version__},
        "recipe": asdict(recipe),
    }
    return Weights(arrays, about)


def _learn(
    p: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer, steps: list[Step], gains: Matrix, recipe: Recipe
) -> None:
    """Make some epochs of the clipped surrogate."""
    widest = max(len(step.features) for step in steps)
    table = np.zeros((len(steps), widest, FEATURES), np.float32)
    open_ = np.zeros((len(steps), widest), bool)
    for i, step in enumerate(steps):
        table[i, : len(step.features)], open_[i, : len(step.open)] = step.features, step.open
    x, mask = torch.from_numpy(table), torch.from_numpy(open_)
    action = torch.tensor([step.action for step in steps])
    before = torch.tensor([step.log_p for step in steps], dtype=torch.float32)
    advantage = torch.from_numpy(gains / (gains.std() + 1e-6))
    for _ in range(recipe.epochs):
        scores = (x @ p["v1"] + p["c1"]).tanh() @ p["v2"] + p["c2"]
        log_p = torch.where(mask, scores, -1e9).log_softmax(-1)
        ratio = (log_p.gather(1, action[:, None])[:, 0] - before).exp()
        clipped = ratio.clamp(1 - recipe.clip, 1 + recipe.clip)
        surrogate = torch.minimum(ratio * advantage, clipped * advantage).mean()
        entropy = -(log_p.exp() * log_p).sum(-1).mean()
        descend(optimizer, -surrogate - recipe.entropy * entropy, 1.0)


if __name__ == "__main__":
    import sys
    from pathlib import Path

    from argosy.zoo import write

    weights = train(Recipe(seed=int(sys.argv[1])), progress=lambda report: print(report, flush=True))
    print(weights.about["score"])
    for file in sys.argv[2:]:
        write(weights, Path(file))
