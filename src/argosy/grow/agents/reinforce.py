"""The training of the reference agent on tables: REINFORCE without baseline or discount.

The reward of an episode with accuracy a is R = 100 tan(a π/2). The objective is the mean over its actions of
−log p(action) · R, where p is the softmax of scores / temperature. Adam's learning rate starts at 1e-4; every 500
episodes it is multiplied by 0.99, and the temperature by 0.9. With `batch=1` there is one update per episode, as
published. With a larger batch the states of the table are read once per update for all its episodes, which is much
cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from argosy.grow.agents.policy_net import Adam, Decision, PolicyNet, merge
from argosy.grow.agents.reference import Playground, ReferenceAgent
from argosy.grow.errors import GrowError
from argosy.grow.tables.growth_table import Table
from argosy.seeding import stream

Floats = NDArray[np.float64]
RATE, RATE_DECAY, TEMPERATURE_DECAY, EVERY = 1e-4, 0.99, 0.9, 500


def reward(accuracy: float | Floats) -> Floats:
    """Return 100 tan(a π/2): a point of accuracy is worth more the higher it is."""
    return np.asarray(100.0 * np.tan(np.minimum(accuracy, 0.9999) * np.pi / 2))


@dataclass(frozen=True)
class Lesson:
    """Holds the course of learning on one table."""

    table: str
    temperature: float
    batch: int
    accuracy: Floats = field(repr=False)  # of each episode
    objective: Floats = field(repr=False)  # of each update
    checks: tuple[
        tuple[int, tuple[int, ...]], ...
    ] = ()  # pairs of a number of episodes and the greedy sequence after them


@dataclass(frozen=True)
class Anneal:
    """The temperature over episodes. The study's own code used `every=1`."""

    start: float = 1.0
    every: int = EVERY
    least: float = 1.0  # it does not fall below this

    def at(self, episode: int) -> float:
        """Return the temperature in this episode."""
        if self.start <= self.least:
            return self.start
        return float(max(self.start * TEMPERATURE_DECAY ** (episode // self.every), self.least))


def learn(
    agent: ReferenceAgent,
    tables: Sequence[Table],
    episodes: int,
    temperature: float | Anneal | Sequence[float | Anneal] = 1.0,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    *,
    batch: int = 1,
    rate: float | None = None,
    check_every: int = EVERY,
) -> list[Lesson]:
    """Learn on the tables one after another, with this many episodes on each; the agent's weights change.

    A trained agent continues from its weights, which is transfer; several tables are a curriculum. `temperature` is
    one for all tables or one for each. `progress` is called with the number of episodes done. `rate` defaults to 1e-4
    times √batch. The same seed gives the same agent.
    """
    if episodes < 1 or batch < 1:
        raise GrowError(
            f"the number of episodes, {episodes}, or their batch, {batch}, is too small", hint="give 1 or more of each"
        )
    plans = list(temperature) if isinstance(temperature, Sequence) else [temperature] * len(tables)
    if len(plans) != len(tables):
        raise GrowError(
            f"there are {len(plans)} temperatures for {len(tables)} tables", hint="give one, or one for each"
        )
    lessons = []
    with _one_thread():
        for i, (table, plan) in enumerate(zip(tables, plans, strict=True)):
            anneal = plan if isinstance(plan, Anneal) else Anneal(float(plan))
            if not anneal.start > 0:
                raise GrowError(
                    f"the temperature must be above 0, not {anneal.start:g}", hint="1 leaves the scores as they are"
                )
            lesson = _Lesson(agent.net, Playground(table, agent.sites), stream(seed, "growth reference lesson", i))
            before = i * episodes
            tell = (lambda done, before=before: progress(before + done)) if progress else None
            lessons.append(lesson.run(episodes, anneal, batch, rate or RATE * batch**0.5, check_every, tell))
    return lessons


class _Lesson:
    def __init__(self, net: PolicyNet, ground: Playground, rng: np.random.Generator) -> None:
        self.net, self.ground, self.rng = net, ground, rng
        self.adam = Adam(net.flat)
        self.decisions = ground.table.decisions
        self.rewards = reward(ground.accuracy)
        self.all_states = ground.together(tuple(range(len(ground.sequences))))
        self.all_which = np.array(ground.state)

    def run(
        self,
        episodes: int,
        anneal: Anneal,
        batch: int,
        rate: float,
        check_every: int,
        progress: Callable[[int], None] | None,
    ) -> Lesson:
        accuracy = np.empty(episodes)
        objective = []
        checks = []
        done = 0
        while done < episodes:
            count = min(batch, episodes - done)
            heat = anneal.at(done)
            if batch == 1:
                accuracy[done], loss = self._one(heat)
            else:
                accuracy[done : done + count], loss = self._many(heat, count)
            objective.append(loss)
            self.adam.step(self.net.slope, rate * RATE_DECAY ** (done // EVERY))
            before, done = done, done + count
            if done // check_every > before // check_every or done == episodes:
                checks.append((done, self.ground.greedy(self.net)))
                if progress:
                    progress(done)
        return Lesson(self.ground.table.key, anneal.start, batch, accuracy, np.array(objective), tuple(checks))

    def _one(self, heat: float) -> tuple[float, float]:
        """Run one episode and compute its gradient; states are read when the episode reaches them."""
        net, ground = self.net, self.ground
        prepared = net.prepare()
        draws = self.rng.random(self.decisions + 1).tolist()
        readings, steps, gradients, which = {}, [], [], []
        place, total = 0, 0.0
        for start, draw in zip(ground.start, draws, strict=False):
            here = start + place
            state = ground.state[here]
            if state not in readings:
                readings[state] = net.read(ground.single[state], prepared)
            step = net.decide(readings[state].summary, ground.codes[here : here + 1])
            chances = _softmax(step.scores / heat)
            action = min(int(chances[0].cumsum().searchsorted(draw, side="right")), ground.actions - 1)
            total -= float(np.log(chances[0, action]))
            chances[0, action] -= 1.0
            steps.append(step)
            gradients.append(chances)
            which.append(state)
            place = place * ground.actions + action
        run = int(draws[-1] * self.rewards.shape[1])
        scale = float(self.rewards[place, run]) / self.decisions
        states = tuple(readings)
        reading = next(iter(readings.values())) if len(states) == 1 else merge(list(readings.values()))
        decision = Decision(
            np.concatenate([step.inputs for step in steps]),
            np.concatenate([step.active for step in steps]),
            np.concatenate([step.scores for step in steps]),
        )
        rows = np.array([states.index(state) for state in which])
        gradient = np.concatenate(gradients) * np.float32(scale / heat)
        net.backward(ground.together(states), reading, decision, rows, gradient, prepared)
        return float(ground.accuracy[place, run]), total * scale

    def _many(self, heat: float, count: int) -> tuple[Floats, float]:
        """Run many episodes with the same weights, and compute the mean of their gradients."""
        net, ground = self.net, self.ground
        prepared = net.prepare()
        reading = net.read(self.all_states, prepared)
        decision = net.decide(reading.summary[self.all_which], ground.codes)
        chances = _softmax(decision.scores / heat)
        limits = chances.cumsum(axis=1)[:, :-1]
        place = np.zeros(count, np.int64)
        path = []
        for start in ground.start:
            here = start + place
            action = (self.rng.random(count)[:, None] > limits[here]).sum(axis=1)
            path.append((here, action))
            place = place * ground.actions + action
        run = self.rng.integers(self.rewards.shape[1], size=count)
        rewards = self.rewards[place, run]
        weight = np.zeros(chances.shape)
        for here, action in path:
            np.add.at(weight, (here, action), rewards)
        weight /= self.decisions * count
        gradient = (chances * weight.sum(axis=1, keepdims=True) - weight) / heat
        net.backward(self.all_states, reading, decision, self.all_which, gradient.astype(np.float32), prepared)
        loss = -(weight * np.log(np.maximum(chances, 1e-30))).sum()
        return ground.accuracy[place, run], float(loss)


def _softmax(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep the matrix library from starting threads, which make it slower at this size."""
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        yield
        return
    with threadpool_limits(1, user_api="blas"):
        yield
