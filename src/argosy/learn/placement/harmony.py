"""Train the policy `harmony`: a reward model of interference first, then actor and critic on its predictions.

1. Traces: some runs with random placements, in which the speeds of jobs beside others are measured.
2. Reward model, supervised: types → speed relative to running alone. It makes rewards for placements that no trace
   shows.
3. The actor learns to imitate the rule `least-interference` where a pair does more than one job alone, and waits
   otherwise, so that it does not begin with random placements.
4. Actor and critic: runs in which an option is drawn from the actor's probabilities, or with probability ε from bin
   packing or load balancing. The reward of an interval is the share of their total work that all jobs do in it, at the
   speeds that the reward model predicts. Old samples stay in a first-in, first-out replay for some updates; each counts
   with its probability under the actor relative to that under which it was drawn, at most 2. The runs of an update
   have the same arrivals, and what they gain on average at a time is subtracted.

    R(t) = Σ_j speed(j | beside) / total work(j),   G(t) = ∫ e^(−(s − t)/H) R(s) ds,   A = G − mean of runs − V(state)
    loss = −mean( min(π/μ, 2) · A · log π ) − η entropy + ½ (V − (G − mean of the runs))²

Step 3, the limit on the ratio and the equal arrivals are ours; the paper has none of them. `train(Recipe())` returns
the weights.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from argosy import __version__
from argosy.cluster.view import Context, View
from argosy.errors import InputError
from argosy.learn.placement.descent import descend
from argosy.mechanism.plan import Plan
from argosy.policies.harmony.network import FEATURES, NETWORK, HarmonyNetwork
from argosy.policies.harmony.policy import Harmony, Option
from argosy.scenario import Scenario, read_scenario
from argosy.seeding import stream
from argosy.sim.run import simulate
from argosy.zoo import Weights

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]
TRAINING_SEED = 1_000_000
VALIDATION_SEED = 500_000
SETTLED_S = 600.0  # a pair's speeds are noted when it has been together for so long


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the weights are made; the same recipe gives the same bits."""

    scenario: str = "packed"
    quick: bool = True  # the scenario's shorter traces: half as many jobs
    seed: int = 0
    traces: int = 2  # runs with random placements, for the reward model
    reward_hidden: int = 16  # width of the reward model
    reward_steps: int = 1500  # steps of Adam
    reward_lr: float = 0.01
    hidden: int = 16  # width of the actor
    imitation: int = 2  # runs of the rule that the actor first imitates
    smooth: float = 0.1  # weight of all other options in what is imitated, so that the actor goes on trying them
    updates: int = 12  # of actor and critic
    runs: int = 5  # per update, all with the same arrivals
    replay: int = 2  # updates for which samples are kept
    epochs: int = 5  # passes over the replay per update
    lr: float = 0.002
    entropy: float = 0.003  # η
    explore: float = 0.05  # ε at the beginning; it falls to 0 in a straight line
    horizon_s: float = 14400.0  # H: work that is done so much later counts 1/e
    validation: int = 4  # runs that choose the best weights, every `every` updates
    every: int = 3


def train(recipe: Recipe | None = None, *, progress: Callable[[dict[str, float]], None] | None = None) -> Weights:
    """Return trained weights, with the score on validation runs that earned their choice."""
    recipe = recipe or Recipe()
    scenario = read_scenario(recipe.scenario, quick=recipe.quick)
    types, samples = collect_speeds(scenario, recipe)
    if not samples:
        hint = "choose a scenario with jobs of known networks and equal size, such as packed"
        raise InputError(f"in the scenario {scenario.name} no two jobs ever share GPUs: nothing to learn", hint=hint)
    arrays = fit_reward_model(np.stack([x for x, _ in samples]), np.array([y for _, y in samples]), recipe)
    agent = Agent(recipe, HarmonyNetwork({**arrays, **first_actor(recipe)}, types))
    imitate(agent, scenario, recipe)
    best, best_score, curve = agent.network(), validate(agent.network(), scenario, recipe), []
    curve.append(best_score)
    replay: deque[list[Step]] = deque(maxlen=recipe.replay)
    for update in range(recipe.updates):
        epsilon = recipe.explore * (1 - update / recipe.updates)
        replay.append(explore(agent.network(), scenario, recipe, TRAINING_SEED + 100 + update, epsilon))
        for _ in range(recipe.epochs):
            agent.learn([step for steps in replay for step in steps])
        report: dict[str, float] = {"update": update, "entropy": agent.entropy}
        if (update + 1) % recipe.every == 0:
            score = report["validation"] = validate(agent.network(), scenario, recipe)
            curve.append(score)
            if score < best_score:
                best, best_score = agent.network(), score
        if progress is not None:
            progress(report)
    about = {
        "network": NETWORK,
        "system": "harmony",
        "command": f"python -m argosy.learn.placement.harmony {recipe.seed}",
        "seed": recipe.seed,
        "window": f"scenario {scenario.name}, seeds from {TRAINING_SEED:,} on",
        "score": {"mean JCT, h, on validation seeds": best_score, "by validation": curve},
        "versions": {"argosy": __version__, "python": platform.python_version(), "torch": torch.__version__},
        "types": list(types),
        "recipe": asdict(recipe),
    }
    return Weights(best.arrays, about)


# 1 and 2: what jobs cost each other


class Tracer(Harmony):
    """Places at random, and notes how fast jobs run beside others."""

    name = "harmony-traces"
    uses = Harmony.uses | {"rate"}

    def __init__(self, types: tuple[str, ...], seed: int) -> None:
        recipe = Recipe()
        blank = {"w1": np.zeros((2 * len(types), 1)), "b1": np.zeros(1), "w2": np.zeros(1), "b2": np.zeros(1)}
        arrays = {name: array.astype(np.float32) for name, array in blank.items()} | first_actor(recipe)
        super().__init__(HarmonyNetwork(arrays, types))
        self.rng = stream(seed, "harmony.traces")
        self.samples: dict[tuple[int, int], tuple[Matrix, float]] = {}
        self._since: dict[tuple[int, int], float] = {}

    def reset(self, context: Context) -> None:
        super().reset(context)
        self._types = np.array([self.network.type_of(kind) for kind in context.kinds])

    def _pick(self, options: list[Option], features: Matrix) -> int:
        return int(self.rng.integers(len(features)))

    def plan(self, view: View) -> Plan:
        jobs, nodes, known = view.jobs, view.nodes, len(self.network.types)
        places: dict[tuple[int, int], list[int]] = {}
        packed = (jobs.state == 1) & (jobs.gpus >= 1) & (jobs.held < jobs.gpus)
        for row in np.flatnonzero(packed).tolist():
            part = view.placement(row)[0]
            places.setdefault((part.node, part.devices), []).append(row)
        for (node, _), rows in places.items():
            if len(rows) != 2:
                continue
            for row, other in (rows, rows[::-1]):
                pair = (int(jobs.index[row]), int(jobs.index[other]))
                if view.now - self._since.setdefault(pair, view.now) < SETTLED_S:
                    continue
                mine, theirs = self._types[jobs.kind[row]], self._types[jobs.kind[other]]
                size, level = int(jobs.gpus[row]), int(jobs.level[row])
                alone = view.profile.rate(jobs.kind[row], nodes.type[node], size, level) / jobs.reference_rate[row]
                eye = np.eye(known, dtype=np.float32)
                self.samples[pair] = np.concatenate([eye[mine], eye[theirs]]), float(jobs.measured_rate[row] / alone)
        return super().plan(view)


def collect_speeds(scenario: Scenario, recipe: Recipe) -> tuple[tuple[str, ...], list[tuple[Matrix, float]]]:
    """Return the types of jobs, and measured speeds of jobs beside others, from runs with random placements."""
    from argosy.perf.rate_tables import compile_tables

    traces = [scenario.trace(TRAINING_SEED + run) for run in range(recipe.traces)]
    names: set[str] = set()
    for trace in traces:
        tables = compile_tables(trace.frame, scenario.cluster, model=scenario.settings.perf)  # type: ignore[arg-type]
        names |= {name.partition("@")[0] for name in tables.class_names[1:]}
    if not names:
        return (), []
    types, samples = tuple(sorted(names)), []
    for run, trace in enumerate(traces):
        tracer = Tracer(types, recipe.seed + run)
        simulate(trace, scenario.cluster, tracer, scenario.settings.with_seed(TRAINING_SEED + run))
        samples += [tracer.samples[pair] for pair in sorted(tracer.samples)]
    return types, samples


def fit_reward_model(
    inputs: Matrix, speeds: NDArray[np.floating], recipe: Recipe, start: dict[str, Matrix] | None = None
) -> dict[str, Matrix]:
    """Fit the reward model to measured speeds; `start` are arrays that new measurements refresh."""
    rng = stream(recipe.seed, "harmony.reward")
    width, hidden = inputs.shape[1], recipe.reward_hidden
    first = start or {
        "w1": (rng.standard_normal((width, hidden)) / np.sqrt(width / 2)).astype(np.float32),
        "b1": np.zeros(hidden, np.float32),
        "w2": (rng.standard_normal(hidden) / np.sqrt(hidden)).astype(np.float32),
        "b2": np.zeros(1, np.float32),
    }
    a = {name: nn.Parameter(torch.from_numpy(np.array(array))) for name, array in first.items() if name in REWARD}
    x, target = torch.from_numpy(inputs), torch.from_numpy(np.log(np.maximum(speeds, 0.01)).astype(np.float32))
    optimizer = torch.optim.Adam(a.values(), lr=recipe.reward_lr)
    for step in range(recipe.reward_steps):
        rows = torch.from_numpy(rng.integers(len(x), size=256))
        for group in optimizer.param_groups:
            group["lr"] = recipe.reward_lr * (1 - step / recipe.reward_steps)
        predicted = -nn.functional.softplus((x[rows] @ a["w1"] + a["b1"]).relu() @ a["w2"] + a["b2"])
        descend(optimizer, (predicted - target[rows]).square().mean(), 1.0)
    return {name: p.detach().numpy().copy() for name, p in a.items()}


REWARD = ("w1", "b1", "w2", "b2")
ACTOR = ("v1", "c1", "v2", "c2")


def first_actor(recipe: Recipe) -> dict[str, Matrix]:
    """Return an actor that has learned nothing yet."""
    rng = stream(recipe.seed, "harmony.actor")
    return {
        "v1": (rng.standard_normal((FEATURES, recipe.hidden)) / np.sqrt(FEATURES)).astype(np.float32),
        "c1": np.zeros(recipe.hidden, np.float32),
        "v2": (0.1 * rng.standard_normal(recipe.hidden)).astype(np.float32),
        "c2": np.zeros(1, np.float32),
    }


# 3 and 4: where to put them


@dataclass(slots=True)
class Step:
    """One choice: its options, what was chosen with which probability, and the gain that followed."""

    features: Matrix
    action: int
    probability: float  # μ: under which it was drawn
    at: float
    gain: float = 0.0  # G


class Explorer(Harmony):
    """Draws its choices, notes them, and adds up the rewards that the reward model predicts."""

    name = "harmony-training"
    uses = Harmony.uses | {"duration"}

    def __init__(
        self, network: HarmonyNetwork, rng: np.random.Generator, epsilon: float, imitates: bool = False
    ) -> None:
        super().__init__(network)
        self.rng, self.epsilon, self.imitates = rng, epsilon, imitates
        self.steps: list[Step] = []
        self.rewards: list[tuple[float, float]] = []  # from when on, share of their work that jobs do per second
        self._beside_of: dict[int, int] = {}  # kind of the partner, by job

    def _pick(self, options: list[Option], features: Matrix) -> int:
        scores = self.network.scores(features)
        p = np.exp(scores - scores.max())
        p = p / p.sum()
        rules = {name: options.index(min(options, key=self.key_of(name))) for name in ("bin-pack", "load-balance")}
        if self.imitates:
            action = self._teach(options, len(features))
        elif self.rng.random() < self.epsilon:
            action = list(rules.values())[int(self.rng.integers(2))]
        else:
            action = int(self.rng.choice(len(p), p=p / p.sum()))
        follows = sum(index == action for index in rules.values()) / 2
        probability = self.epsilon * follows + (1 - self.epsilon) * float(p[action])
        self.steps.append(Step(features, action, probability, self._view.now))
        return action

    def _teach(self, options: list[Option], choices: int) -> int:
        """Return what is imitated: the first job with a free place or a pair worth making, by least interference."""
        kind, key = self._view.jobs.kind, self.key_of("least-interference")
        for row in dict.fromkeys(option.row for option in options):
            best = min((option for option in options if option.row == row), key=key)
            mine, theirs = kind[row], kind[best.host]
            if best.host < 0 or self._beside[mine, theirs] + self._beside[theirs, mine] > 1:
                return options.index(best)
        return choices - 1

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        jobs = view.jobs
        kind = {int(i): int(k) for i, k in zip(jobs.index, jobs.kind)}
        held = dict(zip(jobs.index.tolist(), (jobs.held < jobs.gpus) & (jobs.gpus >= 1)))
        self._beside_of = {job: k for job, k in self._beside_of.items() if held.get(job, False)}
        for guest, host in plan.packs.items():
            a, b = int(jobs.index[guest]), int(jobs.index[host])
            self._beside_of[a], self._beside_of[b] = kind[b], kind[a]
        rate = 0.0
        started = set(plan.placements) | set(plan.packs)
        for row in range(len(jobs)):
            if jobs.state[row] == 1 or row in started:
                job = int(jobs.index[row])
                other = self._beside_of.get(job)
                speed = 1.0 if other is None else self._beside[kind[job], other]
                rate += speed / max(float(jobs.duration_s[row]), 60.0)
        self.rewards.append((view.now, rate))
        return plan

    def gains(self, horizon_s: float) -> tuple[Floats, Floats]:
        """Return the times of all decisions, and the discounted rewards that followed each."""
        times = np.array([at for at, _ in self.rewards])
        rates = np.array([rate for _, rate in self.rewards])
        decay = np.exp(-np.diff(times, append=times[-1] + horizon_s) / horizon_s)
        gains: Floats = np.zeros(len(times) + 1)
        for i in range(len(times) - 1, -1, -1):
            gains[i] = horizon_s * rates[i] * (1 - decay[i]) + decay[i] * gains[i + 1]
        return times, gains[:-1]


def explore(network: HarmonyNetwork, scenario: Scenario, recipe: Recipe, seed: int, epsilon: float) -> list[Step]:
    """Return the choices of some runs with the same arrivals, and what each gained beyond the mean of the runs."""
    trace = scenario.trace(seed)
    runs = []
    for run in range(recipe.runs):
        explorer = Explorer(network, stream(recipe.seed, "harmony.explore", seed, run), epsilon)
        simulate(trace, scenario.cluster, explorer, scenario.settings.with_seed(seed))
        runs.append((explorer, *explorer.gains(recipe.horizon_s)))
    for explorer, _, _ in runs:
        at = np.array([step.at for step in explorer.steps])
        every = np.stack([gains[np.searchsorted(times, at, "right").clip(1) - 1] for _, times, gains in runs])
        own = every[[run[0] for run in runs].index(explorer)]
        for step, gain in zip(explorer.steps, own - every.mean(axis=0)):
            step.gain = float(gain)
    return [step for explorer, _, _ in runs for step in explorer.steps]


def validate(network: HarmonyNetwork, scenario: Scenario, recipe: Recipe) -> float:
    """Return the mean JCT in hours on validation seeds."""
    means = []
    for seed in range(VALIDATION_SEED, VALIDATION_SEED + recipe.validation):
        trace = scenario.trace(seed)
        jobs = simulate(trace, scenario.cluster, Harmony(network), scenario.settings.with_seed(seed)).jobs
        means.append(float((jobs["finish_s"] - jobs["submit_s"]).to_numpy().mean()) / 3600)
    return float(np.mean(means))


def imitate(agent: Agent, scenario: Scenario, recipe: Recipe) -> None:
    """Teach the actor what the rule `least-interference` does."""
    steps: list[Step] = []
    for run in range(recipe.imitation):
        seed = TRAINING_SEED + 50 + run
        rng = stream(recipe.seed, "harmony.imitate", seed)
        teacher = Explorer(agent.network(), rng, 0.0, imitates=True)
        simulate(scenario.trace(seed), scenario.cluster, teacher, scenario.settings.with_seed(seed))
        steps += teacher.steps
    if steps:
        table, mask, action = padded(steps)
        for _ in range(200):
            log_p = agent.log_probabilities(table, mask)
            others = (log_p * mask).sum(1) / mask.sum(1)
            chosen = log_p.gather(1, action[:, None])[:, 0]
            descend(agent.imitating, -((1 - recipe.smooth) * chosen + recipe.smooth * others).mean(), 1.0)


@dataclass
class Agent:
    """The actor and the critic in training."""

    recipe: Recipe
    start: HarmonyNetwork
    actor: dict[str, nn.Parameter] = field(init=False)
    critic: nn.Module = field(init=False)
    entropy: float = 0.0

    def __post_init__(self) -> None:
        self.actor = {name: nn.Parameter(torch.from_numpy(np.array(self.start.arrays[name]))) for name in ACTOR}
        rng = stream(self.recipe.seed, "harmony.critic")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            self.critic = nn.Sequential(nn.Linear(2 * FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
        self.imitating = torch.optim.Adam(self.actor.values(), lr=0.02)
        self.optimizer = torch.optim.Adam(self.actor.values(), lr=self.recipe.lr)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=0.01)

    def network(self) -> HarmonyNetwork:
        arrays = {name: p.detach().numpy().copy() for name, p in self.actor.items()}
        return HarmonyNetwork({**self.start.arrays, **arrays}, self.start.types)

    def log_probabilities(self, table: Tensor, mask: Tensor) -> Tensor:
        a = self.actor
        scores = (table @ a["v1"] + a["c1"]).tanh() @ a["v2"] + a["c2"]
        return torch.where(mask, scores, -1e9).log_softmax(-1)

    def learn(self, steps: list[Step]) -> None:
        """Make one step of the critic's and the actor's descent."""
        table, mask, action = padded(steps)
        gain = torch.tensor([step.gain for step in steps])
        gain = gain / (gain.std() + 1e-6)
        drawn = torch.tensor([step.probability for step in steps]).clamp(min=1e-3)
        mean = (table * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        state = torch.cat([mean, table.masked_fill(~mask[..., None], -1e9).amax(1)], 1)
        for _ in range(5):
            value = self.critic(state)[:, 0]
            descend(self.critic_optimizer, 0.5 * (value - gain).square().mean(), 1.0)
        advantage = (gain - value.detach()) / ((gain - value.detach()).std() + 1e-6)
        log_p = self.log_probabilities(table, mask)
        chosen = log_p.gather(1, action[:, None])[:, 0]
        weight = (chosen.detach().exp() / drawn).clamp(max=2.0)
        entropy = -(log_p.exp() * log_p).sum(-1)
        self.entropy = float(entropy.detach().mean())
        loss = -(weight * advantage * chosen).mean() - self.recipe.entropy * entropy.mean()
        descend(self.optimizer, loss, 0.5)


def padded(steps: list[Step]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the steps' options as one table, which rows of it exist, and the actions."""
    widest = max(len(step.features) for step in steps)
    table = np.zeros((len(steps), widest, FEATURES), np.float32)
    mask = np.zeros((len(steps), widest), bool)
    for i, step in enumerate(steps):
        table[i, : len(step.features)], mask[i, : len(step.features)] = step.features, True
    return torch.from_numpy(table), torch.from_numpy(mask), torch.tensor([step.action for step in steps])


def main(arguments: list[str]) -> dict[str, Any]:
    """Train with a seed, and write the weights to a file: `python -m argosy.learn.placement.harmony SEED FILE`."""
    from pathlib import Path

    from argosy.zoo import write

    seed, *files = arguments
    weights = train(Recipe(seed=int(seed)), progress=lambda report: print(report, flush=True))
    for file in files:
        write(weights, Path(file))
    return weights.about


if __name__ == "__main__":
    import sys

    print(main(sys.argv[1:]))
