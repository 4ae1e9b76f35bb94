"""Train RLTune's actor: PPO on whole windows of jobs, rewarded at the end for beating a base heuristic.

    train(RlTuneRecipe(), progress=print)        returns `argosy.zoo.Weights` for the policy `rltune`

An episode is a window of 256 jobs of one of the scenarios. The policy runs it on the simulator's engine, and draws each
pick from the softmax of the actor's scores. The reward is 0 until the window is over, and then

    (S(base) − S(rltune)) / max(S(base), S(rltune), 1)

with S the mean of a score over the window's jobs, the mean bounded slowdown by default, and S(base) that of the base
heuristic on the same jobs: always its first job is picked, and placed in the same way. An epoch is some episodes
followed by up to 80 steps on all their decisions for the actor and 80 for the critic, as the authors have it.

Everything is deterministic: the same recipe gives the same weights, bit for bit, on one machine. Training seeds begin
at 1,000,000, validation seeds at 500,000, and results are reported on small ones. The weights that are returned are
those of the best validation, where the likeliest job is picked.

References: Dongare et al., RLTune, SoCC'25 (the code, dshruti20/RLTune, is after RLScheduler, Zhang et al., SC'20).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from argosy.errors import InputError
from argosy.policies.base import Floats
from argosy.policies.rltune.network import INPUTS, KIND, LAYERS, SHAPES, Actor, Matrix, softmax
from argosy.policies.rltune.policy import SHOWN, RlTune
from argosy.scenario import Scenario, read_scenario
from argosy.seeding import stream
from argosy.sim.result import Result
from argosy.sim.run import simulate
from argosy.zoo import Weights

if TYPE_CHECKING:
    import torch

TRAINING_SEED, VALIDATION_SEED = 1_000_000, 500_000
PADDING = (0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0)  # what the critic sees of a row without a job
BOUND_S = 10.0  # shorter jobs count as so long in the bounded slowdown
PART_ROWS = 8192
Progress = Callable[[str], None]


@dataclass(frozen=True)
class RlTuneRecipe:
    """Everything that the weights depend on. The defaults are the authors' where a line does not say otherwise."""

    scenarios: tuple[str, ...] = ("philly-rigid", "overload", "fluctuating", "mixed")  # ours: windows come from all
    base: str = "fifo"  # the heuristic that orders the queue and is to be beaten
    mapping: str = "first"  # how jobs are placed while training
    score: str = "bounded-slowdown"  # one of SCORES
    jobs: int = 256  # of a window
    windows: int = 32  # different training windows of each scenario (ours: so that the base runs once on each)
    epochs: int = 40  # the authors have 100
    episodes: int = 24  # of an epoch, in turn from the scenarios (the authors: 100, of one trace)
    gamma: float = 1.0  # nothing is discounted
    lam: float = 0.97  # of the generalised advantage estimate
    clip: float = 0.2  # of the ratio of probabilities
    actor_lr: float = 3e-4
    critic_lr: float = 1e-3
    steps: int = 80  # full-batch steps of each of the two networks in an epoch, at most
    most_kl: float = 0.015  # at which the actor's steps end
    validation_windows: int = 3  # of each scenario
    every: int = 4  # epochs between validations
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("jobs", "windows", "epochs", "episodes", "steps", "validation_windows", "every"):
            if getattr(self, name) < 1:
                raise InputError(f"rltune recipe: {name} must be at least 1, is {getattr(self, name)}")
        for name in ("clip", "actor_lr", "critic_lr", "most_kl"):
            if not 0 < getattr(self, name) < np.inf:
                raise InputError(f"rltune recipe: {name} must be > 0, is {getattr(self, name)}")
        if self.score not in SCORES:
            raise InputError(f"rltune recipe: score must be one of {', '.join(SCORES)}, is {self.score!r}")
        if not self.scenarios:
            raise InputError("rltune recipe: there must be at least one scenario")


# -- scores of a run ---------------------------------------------------------------------------------------------


def _column(result: Result, name: str) -> Floats:
    return np.asarray(result.jobs[name].to_numpy(), np.float64)


def _turnaround(result: Result) -> Floats:
    finish, submit = _column(result, "finish_s"), _column(result, "submit_s")
    return np.where(np.isnan(finish), result.end_s, finish) - submit


def _run_s(result: Result) -> Floats:
    return np.maximum(_column(result, "alone_s"), 0.0)


SCORES: dict[str, Callable[[Result], float]] = {  # of all, smaller is better
    "bounded-slowdown": lambda r: float(np.maximum(_turnaround(r) / np.maximum(_run_s(r), BOUND_S), 1.0).mean()),
    "wait": lambda r: float(np.nan_to_num(_column(r, "first_start_s") - _column(r, "submit_s")).mean()),
    "turnaround": lambda r: float(_turnaround(r).mean()),
    "slowdown": lambda r: float((_turnaround(r) / np.maximum(_run_s(r), 1.0)).mean()),
    "utilisation": lambda r: -float(np.nan_to_num(_column(r, "held_gpu_s")).sum() / max(r.end_s, 1.0)),
}


def reward(base: float, ours: float) -> float:
    """Return the reward of an episode: by which part of the larger score ours is smaller than the base's."""
    return (base - ours) / max(base, ours, 1.0)


# -- episodes ----------------------------------------------------------------------------------------------------


class BaseOrder(RlTune):
    """The base heuristic under the same rules: always its first job is picked."""

    name = "base order"

    def choose(self, table: Matrix) -> int:
        return 0


class Drawing(RlTune):
    """The policy while it learns: a pick is drawn with its probability, and remembered."""

    name = "rltune, learning"

    def __init__(self, actor: Actor, draws: np.random.Generator, recipe: RlTuneRecipe) -> None:
        super().__init__(actor, recipe.base, recipe.mapping)
        self._draws = draws
        self.tables: list[Matrix] = []
        self.picks: list[int] = []

    def choose(self, table: Matrix) -> int:
        chances = softmax(self.actor.scores(table)).cumsum()
        pick = min(int(np.searchsorted(chances, self._draws.random() * chances[-1], "right")), len(table) - 1)
        self.tables.append(table)
        self.picks.append(pick)
        return pick


@dataclass(frozen=True)
class Windows:
    """The windows of jobs of the recipe's scenarios, and what the base heuristic makes of each."""

    recipe: RlTuneRecipe
    base_scores: dict[tuple[str, int], float] = field(default_factory=dict)

    def run(self, name: str, seed: int, policy: RlTune) -> float:
        """Return the score of a policy in a window."""
        scenario = _scenario(name, self.recipe.jobs)
        result = simulate(
            _trace(name, self.recipe.jobs, seed), scenario.cluster, policy, scenario.settings.with_seed(seed)
        )
        return SCORES[self.recipe.score](result)

    def base(self, name: str, seed: int) -> float:
        """Return the score of the base heuristic in a window; it is run once."""
        found = self.base_scores.get((name, seed))
        if found is None:
            nobody = Actor({array: np.zeros(shape, np.float32) for array, shape in SHAPES.items()})
            policy = BaseOrder(nobody, self.recipe.base, self.recipe.mapping)
            found = self.base_scores[name, seed] = self.run(name, seed, policy)
        return found

    def validate(self, actor: Actor) -> dict[str, float]:
        """Return the score over that of the base heuristic on each scenario's validation windows, means of both."""
        over: dict[str, float] = {}
        for name in self.recipe.scenarios:
            seeds = range(VALIDATION_SEED, VALIDATION_SEED + self.recipe.validation_windows)
            policy = RlTune(actor, self.recipe.base, self.recipe.mapping)
            ours = sum(self.run(name, seed, policy) for seed in seeds)
            over[name] = ours / sum(self.base(name, seed) for seed in seeds)
        return over


@lru_cache(maxsize=16)
def _scenario(name: str, jobs: int) -> Scenario:
    return read_scenario(name).with_count(jobs)


@lru_cache(maxsize=512)
def _trace(name: str, jobs: int, seed: int) -> Any:
    return _scenario(name, jobs).trace(seed)


@dataclass(frozen=True)
class Batch:
    """The decisions of an epoch. Rows of all tables follow each other; `owner` says to which decision a row belongs."""

    rows: Matrix  # [row, 7]
    owner: NDArray[np.int64]
    picked: NDArray[np.int64]  # the row that each decision picked
    padded: Matrix  # [decision, 128 · 7], for the critic
    episode: NDArray[np.int64]  # of each decision
    rewards: Floats  # of each episode

    @classmethod
    def of(cls, episodes: list[tuple[Drawing, float]]) -> Batch:
        tables = [table for drawing, _ in episodes for table in drawing.tables]
        picks = np.array([pick for drawing, _ in episodes for pick in drawing.picks])
        sizes = np.array([len(table) for table in tables])
        padded = np.tile(np.array(PADDING, np.float32), (len(tables), SHOWN, 1))
        for i, table in enumerate(tables):
            padded[i, : len(table)] = table
        first = np.concatenate([[0], sizes.cumsum()[:-1]])
        return cls(
            np.concatenate(tables),
            np.repeat(np.arange(len(tables)), sizes),
            first + picks,
            padded.reshape(len(tables), -1),
            np.repeat(np.arange(len(episodes)), [len(drawing.picks) for drawing, _ in episodes]),
            np.array([reward for _, reward in episodes]),
        )

    def in_parts(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return rows, owners and picks of some decisions at a time: what fits into a processor's cache is quicker."""
        import torch

        first = np.concatenate([[0], np.flatnonzero(np.diff(self.owner)) + 1, [len(self.owner)]])  # row of a decision
        cuts, parts = [0], []
        for i in range(1, len(first)):
            if first[i] - first[cuts[-1]] >= PART_ROWS or i == len(first) - 1:
                cuts.append(i)
        for begin, end in pairwise(cuts):
            rows = slice(first[begin], first[end])
            owner, picked = self.owner[rows] - begin, self.picked[begin:end] - first[begin]
            parts.append((torch.from_numpy(self.rows[rows]), torch.from_numpy(owner), torch.from_numpy(picked)))
        return parts


def collect(actor: Actor, windows: Windows, epoch: int) -> Batch:
    """Run the episodes of an epoch."""
    recipe = windows.recipe
    order = stream(recipe.seed, "rltune windows", epoch)
    episodes: list[tuple[Drawing, float]] = []
    for number in range(recipe.episodes):
        name = recipe.scenarios[number % len(recipe.scenarios)]
        seed = TRAINING_SEED + int(order.integers(recipe.windows))
        drawing = Drawing(actor, stream(recipe.seed, "rltune picks", epoch, number), recipe)
        gain = reward(windows.base(name, seed), windows.run(name, seed, drawing))
        if drawing.picks:
            episodes.append((drawing, gain))
    if not episodes:
        hint = "use more jobs, or a scenario with a higher load"
        raise InputError("no job ever had to be picked from a queue, so there is nothing to learn", hint=hint)
    return Batch.of(episodes)


def advantages(
    values: Floats, episode: NDArray[np.int64], rewards: Floats, gamma: float, lam: float
) -> tuple[Floats, Floats]:
    """Return the generalised advantage estimates and the returns; an episode is rewarded after its last step."""
    advantage, outcome = np.zeros(len(values)), np.zeros(len(values))
    ahead = following = to_come = 0.0
    for i in range(len(values) - 1, -1, -1):
        last = i + 1 == len(values) or episode[i + 1] != episode[i]
        gain = rewards[episode[i]] if last else 0.0
        if last:
            ahead = following = to_come = 0.0
        advantage[i] = ahead = gain + gamma * following - values[i] + gamma * lam * ahead
        outcome[i] = to_come = gain + gamma * to_come
        following = values[i]
    return advantage, outcome


# -- learning ----------------------------------------------------------------------------------------------------


class Learner:
    """The two networks in torch, and the published update."""

    def __init__(self, recipe: RlTuneRecipe) -> None:
        import torch

        self.recipe = recipe
        draws = torch.Generator().manual_seed(recipe.seed)
        self.actor = _layers(LAYERS, draws)
        self.critic = _layers((SHOWN * INPUTS, *LAYERS[1:]), draws)
        self._actor_optimizer = torch.optim.Adam([p for layer in self.actor for p in layer], lr=recipe.actor_lr)
        self._critic_optimizer = torch.optim.Adam([p for layer in self.critic for p in layer], lr=recipe.critic_lr)

    def arrays(self) -> dict[str, Matrix]:
        """Return the actor's parameters as they are in a file of weights."""
        pairs = {f"{kind}{i}": p for i, layer in enumerate(self.actor, 1) for kind, p in zip("wb", layer)}
        return {name: p.detach().numpy().copy() for name, p in pairs.items()}

    def update(self, batch: Batch) -> dict[str, float]:
        """Learn from the decisions of an epoch, and return figures about it."""
        import torch

        recipe, decisions = self.recipe, len(batch.picked)
        parts = batch.in_parts()
        padded = torch.from_numpy(batch.padded)
        with torch.no_grad():
            before = [self._log_chances(*part) for part in parts]
            values = _forward(self.critic, padded)[:, 0].double().numpy()
        advantage, outcome = advantages(values, batch.episode, batch.rewards, recipe.gamma, recipe.lam)
        normal = ((advantage - advantage.mean()) / max(advantage.std(), 1e-8)).astype(np.float32)
        worth = torch.split(torch.from_numpy(normal), [len(then) for then in before])
        kl, steps = 0.0, 0
        for _ in range(recipe.steps):
            self._actor_optimizer.zero_grad()
            kl = 0.0
            for part, then, gain in zip(parts, before, worth):  # gradients of the parts add up to that of the whole
                now = self._log_chances(*part)
                ratio = torch.exp(now - then)
                clipped = ratio.clamp(1.0 - recipe.clip, 1.0 + recipe.clip)
                _backward(-torch.minimum(ratio * gain, clipped * gain).sum() / decisions)
                kl += float((then - now.detach()).sum()) / decisions
            if kl > recipe.most_kl:
                break
            self._actor_optimizer.step()
            steps += 1
        wanted, error = torch.from_numpy(outcome.astype(np.float32)), 0.0
        for _ in range(recipe.steps):
            self._critic_optimizer.zero_grad()
            error = _backward(((_forward(self.critic, padded)[:, 0] - wanted) ** 2).mean())
            self._critic_optimizer.step()
        return {"kl": kl, "steps": steps, "critic_error": error, "reward": float(batch.rewards.mean())}

    def _log_chances(self, rows: torch.Tensor, owner: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the probability of each decision's pick: a softmax over the rows of the decision."""
        import torch

        scores = _forward(self.actor, rows)[:, 0]
        highest = torch.full((len(picked),), -torch.inf).scatter_reduce(0, owner, scores.detach(), "amax")
        powers = torch.exp(scores - highest[owner])
        total = torch.zeros(len(picked)).index_add(0, owner, powers)
        return scores[picked] - highest - torch.log(total)


def _layers(sizes: tuple[int, ...], draws: torch.Generator) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Draw layers as Glorot and Bengio do, which is what the authors' library does, with biases of 0."""
    import torch

    layers = []
    for inputs, outputs in pairwise(sizes):
        most = (6.0 / (inputs + outputs)) ** 0.5
        weight = (2.0 * torch.rand(inputs, outputs, generator=draws) - 1.0) * most
        layers.append((weight.requires_grad_(), torch.zeros(outputs, requires_grad=True)))
    return layers


def _forward(layers: list[tuple[torch.Tensor, torch.Tensor]], x: torch.Tensor) -> torch.Tensor:
    for weight, bias in layers[:-1]:
        x = (x @ weight + bias).relu()
    weight, bias = layers[-1]
    return x @ weight + bias


def _backward(loss: torch.Tensor) -> float:
    """Add the gradient of a loss, and return the loss."""
    value = float(loss.detach())
    if not np.isfinite(value):
        raise InputError("the loss is not a finite number, so training cannot go on", hint="lower the learning rates")
    loss.backward()  # type: ignore[no-untyped-call]
    return value


def train(recipe: RlTuneRecipe | None = None, *, progress: Progress | None = None) -> Weights:
    """Train by a recipe, and return the weights of the best validation; `progress` gets a line for each epoch.

    Ctrl-C ends training at the last validation; the recipe in the weights then has as many epochs as were validated.
    """
    from argosy.learn.training.threads import single_thread  # imports torch: late

    recipe = recipe or RlTuneRecipe()
    say = progress or (lambda text: None)
    windows, curve = Windows(recipe), []
    best: tuple[float, dict[str, float], dict[str, Matrix]] | None = None
    with single_thread():
        learner = Learner(recipe)
        try:
            for epoch in range(recipe.epochs + 1):
                actor = Actor(learner.arrays())
                if epoch % recipe.every == 0 or epoch == recipe.epochs:
                    over = windows.validate(actor)
                    mean = float(np.exp(np.mean(np.log(list(over.values())))))
                    curve.append([epoch, mean])
                    if best is None or mean < best[0]:
                        best = mean, over, actor.arrays
                    say(f"epoch {epoch}: {mean:.3f} × base ({', '.join(f'{n} {x:.3f}' for n, x in over.items())})")
                if epoch < recipe.epochs:
                    figures = learner.update(collect(actor, windows, epoch))
                    say(f"epoch {epoch}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
        except KeyboardInterrupt:
            if len(curve) < 2:
                raise
            recipe = replace(recipe, epochs=int(curve[-1][0]))
            say(f"interrupted: these are the best weights of the first {recipe.epochs} epochs")
    assert best is not None
    mean, over, arrays = best
    return Weights(arrays, _about(recipe, mean, over, curve))


def _about(recipe: RlTuneRecipe, mean: float, over: dict[str, float], curve: list[list[float]]) -> dict[str, Any]:
    """Return what the file of weights says about itself."""
    training = [TRAINING_SEED, TRAINING_SEED + recipe.windows]
    validation = [VALIDATION_SEED, VALIDATION_SEED + recipe.validation_windows]
    return {
        "network": KIND,
        "system": "rltune",
        "command": "argosy train rltune",
        "recipe": json.loads(json.dumps(asdict(recipe))) | {"scenario": ", ".join(recipe.scenarios)},
        "seed": recipe.seed,
        "window": {"training_seeds": training, "validation_seeds": validation, "jobs": recipe.jobs},
        "score": {"over_base": mean, "base": recipe.base, "of": recipe.score, "by_scenario": over},
        "curve": curve,
        "versions": {name: version(name) for name in ("argosy", "numpy", "torch")},
    }


def recipe_of(weights: Weights) -> RlTuneRecipe:
    """Return the recipe by which weights were made; training by it again gives the same weights."""
    try:
        given = {name: value for name, value in weights.about["recipe"].items() if name != "scenario"}
        return RlTuneRecipe(**given | {"scenarios": tuple(given["scenarios"])})
    except (KeyError, TypeError) as bad:
        hint = "only weights that this trainer wrote can be made again"
        raise InputError(
            f"these weights do not say how they were made: {bad}", where=weights.source, hint=hint
        ) from None
