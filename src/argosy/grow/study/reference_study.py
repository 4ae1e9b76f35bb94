"""Repeat the published agent's experiments on recorded tables, and show every figure beside the published one.

    from_scratch      one scenario at a time: rank, accuracy, and the episodes to reach the published rank
    transfers         from one scenario to another at four temperatures, and the jump-start from it
    curricula         three scenarios in four orders, judged on those and on two that were never seen
    other_model       agents trained on CNN#1 used for CNN#2, directly and after further training
    speed             time per episode, one update each and batched

Each function runs one seed and returns rows of plain data; `study` runs several seeds and combines their rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from argosy.grow.agents.reference import Playground, ReferenceAgent
from argosy.grow.agents.reinforce import Lesson, learn
from argosy.grow.errors import GrowError
from argosy.grow.study import published
from argosy.grow.study.branches import run_all
from argosy.grow.tables.evaluate import judge, smooth
from argosy.grow.tables.growth_table import Table

Row = dict[str, Any]
Tables = Mapping[str, Table]


@dataclass(frozen=True)
class Plan:
    """Holds how long each experiment learns. The published loop has `batch=1` everywhere, at fifty times the cost."""

    scratch_episodes: int = 75_000
    scratch_batch: int = 256
    scratch_temperatures: tuple[float, ...] = (1.0, 10.0)
    transfer_episodes: int = published.EPISODES_OF_TRANSFER
    transfer_batch: int = 32
    temperatures: tuple[float, ...] = published.TEMPERATURES
    curriculum_temperature: float = 10.0  # of the second and third scenario
    window: int = 75  # episodes over which curves are smoothed


def from_scratch(tables: Tables, seed: int, plan: Plan) -> list[Row]:
    """Train a new agent on each scenario alone."""
    rows = []
    for key, (accuracy, rank) in published.FROM_SCRATCH.items():
        for temperature in plan.scratch_temperatures:
            _, lesson = _scratch(tables[key], seed, plan, temperature)
            checks = [(episode, tables[key].rank(sequence)) for episode, sequence in lesson.checks]
            rows.append(
                {"table": key, "temperature": temperature, **_judged(tables[key], lesson.checks[-1][1])}
                | {"episodes_to_published_rank": next((e for e, found in checks if found <= rank), None)}
                | {"curve": _curve(lesson, plan.window)}
                | {"published": {"accuracy": accuracy, "rank": rank}}
            )
    return rows


def transfers(tables: Tables, seed: int, plan: Plan) -> list[Row]:
    """Transfer agents from one scenario of CNN#1 to another.

    The jump-start is the gain in accuracy over a new agent in the first 500 episodes.
    """
    rows = []
    prior = {name: _scratch(tables[f"cnn1/{name}"], seed, plan)[0] for name in published.SEEN}
    fresh = {
        (name, temperature): _further(ReferenceAgent(seed=seed), tables[f"cnn1/{name}"], seed, plan, temperature)
        for name in published.SEEN
        for temperature in plan.temperatures
    }
    for (source, target), (accuracy, rank) in published.TRANSFER.items():
        table = tables[f"cnn1/{target}"]
        for temperature in plan.temperatures:
            new, old = fresh[target, temperature], prior[source].copy()
            before = _judged(table, Playground(table, old.sites).greedy(old.net))
            lesson = _further(old, table, seed, plan, temperature)
            rows.append(
                {"from": source, "to": target, "temperature": temperature, **_judged(table, lesson.checks[-1][1])}
                | {"rank_before": before["rank"], "accuracy_before": before["accuracy"]}
                | {"jump_start": float(lesson.accuracy[:500].mean() - new.accuracy[:500].mean())}
                | {"rank_of_new_agent": table.rank(new.checks[-1][1])}
                | {"published": {"accuracy": accuracy, "rank": rank}}
            )
    return rows


def curricula(tables: Tables, seed: int, plan: Plan) -> list[Row]:
    """Learn on three scenarios of CNN#1 one after another; then judge on all five, of which two were never seen."""
    rows = []
    for order in published.CURRICULA:
        agent = _curriculum(tables, order, seed, plan)
        for name in (*published.SEEN, *published.UNSEEN):
            table = tables[f"cnn1/{name}"]
            rows.append(
                {"curriculum": "-".join(order), "scenario": name, "seen": name in published.SEEN}
                | _judged(table, Playground(table, agent.sites).greedy(agent.net))
            )
    return rows


def other_model(tables: Tables, seed: int, plan: Plan) -> list[Row]:
    """Try the two best curricula of CNN#1 on CNN#2."""
    rows = []
    for order in published.BEST_CURRICULA:
        agent = _curriculum(tables, order, seed, plan)
        for name, rank in zip(published.SEEN, published.OTHER_MODEL[order], strict=True):
            table = tables[f"cnn2/{name}"]
            before = _judged(table, Playground(table, agent.sites).greedy(agent.net))
            lesson = _further(agent.copy(), table, seed, plan, plan.curriculum_temperature)
            rows.append(
                {"curriculum": "-".join(order), "scenario": name, **_judged(table, lesson.checks[-1][1])}
                | {"rank_before": before["rank"], "accuracy_before": before["accuracy"]}
                | {"published": {"rank": rank}}
            )
    return rows


def speed(table: Table, episodes: int = 300, batch: int = 64) -> Row:
    """Measure the processor time of learning, with one update per episode and batched, beside the published time."""
    agent = ReferenceAgent()
    learn(agent, [table], 20)
    before = time.process_time()
    learn(agent, [table], episodes)
    single = (time.process_time() - before) / episodes
    before = time.process_time()
    learn(agent, [table], episodes * batch, batch=batch, check_every=episodes * batch)
    batched = (time.process_time() - before) / (episodes * batch)
    return {
        "single_ms_per_episode": 1e3 * single,
        "published_ms_per_episode": published.MS_PER_EPISODE,
        "batch": batch,
        "batched_episodes_per_s": 1 / batched,
        "batched_against_published": published.MS_PER_EPISODE / 1e3 / batched,
        "batched_against_single": single / batched,
    }


PARTS: dict[str, Callable[[Tables, int, Plan], list[Row]]] = {
    "from_scratch": from_scratch,
    "transfers": transfers,
    "curricula": curricula,
    "other_model": other_model,
}


@dataclass
class _Part:
    """Runs one part of the study with one seed; it is sent to other processes."""

    tables: dict[str, Table]
    plan: Plan

    def __call__(self, task: tuple[str, int]) -> tuple[str, list[Row]]:
        return task[0], PARTS[task[0]](self.tables, task[1], self.plan)


def study(
    tables: Iterable[Table],
    seeds: int = 5,
    plan: Plan | None = None,
    parts: Sequence[str] = tuple(PARTS),
    workers: int | None = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Row:
    """Run every part with every seed. Each entry has the ranks of all seeds, their median and the best."""
    plan = plan or Plan()
    by_key = {table.key: table for table in tables}
    wanted = {*published.FROM_SCRATCH, *(f"cnn1/{name}" for name in published.UNSEEN)}
    missing = sorted(wanted - set(by_key))
    if missing or seeds < 1:
        what = f"the study needs the tables {', '.join(missing)}" if missing else f"{seeds} seeds are too few"
        raise GrowError(what, hint="give all tables of the recorded study, and 1 seed or more")
    tasks = [(part, seed) for part in parts for seed in range(seeds)]
    rows: dict[str, list[Row]] = {part: [] for part in parts}
    for part, found in run_all(_Part(by_key, plan), tasks, workers, progress, threads_each=0):
        rows[part] += found
    return {"seeds": seeds, "plan": asdict(plan), **{part: _together(found) for part, found in rows.items()}}


_PER_SEED = (
    "rank",
    "accuracy",
    "regret",
    "sequence",
    "episodes_to_published_rank",
    "rank_before",
    "accuracy_before",
    "jump_start",
    "rank_of_new_agent",
    "curve",
)
_THE_SAME = ("published", "best", "none", "random")


def _together(rows: list[Row]) -> list[Row]:
    """Combine rows that differ only by seed into one row."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        name = tuple(row[key] for key in row if key not in (*_PER_SEED, *_THE_SAME))
        groups.setdefault(name, []).append(row)
    return [_one_row(group) for group in groups.values()]


def _one_row(group: list[Row]) -> Row:
    first = group[0]
    whole = {key: value for key, value in first.items() if key not in _PER_SEED}
    for key in _PER_SEED:
        values = [row[key] for row in group if key in row]
        if not values:
            continue
        if key == "curve":
            whole[key] = {name: np.mean([value[name] for value in values], axis=0).tolist() for name in values[0]}
            continue
        whole[f"{key}s"] = values
        if key in ("rank", "rank_before", "rank_of_new_agent"):
            whole |= {f"median_{key}": statistics.median(values), f"best_{key}": min(values)}
        elif key in ("accuracy", "regret", "accuracy_before", "jump_start"):
            whole[f"mean_{key}"] = statistics.fmean(values)
    if "published" in first:
        target = first["published"]["rank"]
        whole["at_least_as_good"] = {
            "median": whole["median_rank"] <= target,
            "best": whole["best_rank"] <= target,
            "share_of_seeds": statistics.fmean(rank <= target for rank in whole["ranks"]),
        }
    return whole


def _scratch(table: Table, seed: int, plan: Plan, temperature: float | None = None) -> tuple[ReferenceAgent, Lesson]:
    agent = ReferenceAgent(seed=seed)
    heat = plan.scratch_temperatures[0] if temperature is None else temperature
    lesson = learn(agent, [table], plan.scratch_episodes, heat, seed, batch=plan.scratch_batch, check_every=1000)[0]
    return agent, lesson


def _further(agent: ReferenceAgent, table: Table, seed: int, plan: Plan, temperature: float) -> Lesson:
    return learn(
        agent, [table], plan.transfer_episodes, temperature, seed, batch=plan.transfer_batch, check_every=1000
    )[0]


def _curriculum(tables: Tables, order: Sequence[str], seed: int, plan: Plan) -> ReferenceAgent:
    agent, _ = _scratch(tables[f"cnn1/{order[0]}"], seed, plan)
    for name in order[1:]:
        _further(agent, tables[f"cnn1/{name}"], seed, plan, plan.curriculum_temperature)
    return agent


def _judged(table: Table, sequence: tuple[int, ...]) -> Row:
    verdict = judge(table, sequence).to_dict()
    names = ("rank", "accuracy", "regret", "sequence", "best", "none", "random")
    return {name: verdict[name] for name in names}


def _curve(lesson: Lesson, window: int, points: int = 100) -> dict[str, list[float]]:
    """Return smoothed accuracy and objective at about a hundred points over the episodes."""
    window = max(window, lesson.batch)
    ends = np.unique(np.linspace(min(window, len(lesson.accuracy)), len(lesson.accuracy), points).astype(int))
    updates = np.minimum((ends - 1) // lesson.batch, len(lesson.objective) - 1)
    return {
        "episode": ends.tolist(),
        "accuracy": smooth(lesson.accuracy, window)[ends - 1].tolist(),
        "objective": smooth(lesson.objective, max(1, window // lesson.batch))[updates].tolist(),
    }
