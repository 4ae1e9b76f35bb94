"""Count the tries that finding the best plan takes: the default agent against random search, table by table.

A try is a look-up in a table. Regret is the accuracy of the table's best plan minus that of the best plan found so far.
If a table has several runs of each plan, a look-up returns one run, and regret is measured by the mean of all runs, so
that noise does not count; with only one run, noise is part of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from argosy.grow.agents.planning_agent import PlanningAgent
from argosy.grow.agents.search import Search
from argosy.grow.agents.surrogate import Surrogate, learn
from argosy.grow.agents.surrogate_data import observations, plans_of, task_of
from argosy.grow.study.branches import run_all
from argosy.grow.tables.evaluate import play
from argosy.grow.tables.growth_table import Table
from argosy.report.stats import interval

LOOKS = (1, 3, 5, 10, 20, 40)


class Worker:
    """Searches one table with a surrogate learned from the others; it is sent to other processes."""

    def __init__(self, tables: Sequence[Table], seeds: int, steps: int, price: float) -> None:
        self.tables, self.seeds, self.steps, self.price = list(tables), seeds, steps, price

    def __call__(self, row: int) -> dict[str, Any]:
        table = self.tables[row]
        others = [observations(t) for i, t in enumerate(self.tables) if i != row]
        taught = learn(others, steps=self.steps) if others else Surrogate()
        found: dict[str, Any] = {"table": table.key, "data": table.data, "plans": len(table), "runs": table.runs}
        greedy = play(PlanningAgent(taught), table)
        found["first_choice"] = {"sequence": list(greedy), "regret": table.regret(greedy), "rank": table.rank(greedy)}
        for name, surrogate in (("taught", taught), ("fresh", Surrogate())):
            found[name] = self.curves(table, surrogate)
        found["random"] = random_search(table, self.seeds)
        return found

    def curves(self, table: Table, surrogate: Surrogate) -> dict[str, Any]:
        task, plans = task_of(table), plans_of(table)
        regrets, hits, stops, stop_regrets = [], [], [], []
        for seed in range(self.seeds):
            search = Search(task, plans, surrogate, price=self.price, seed=seed)
            regret, stopped = follow(search, table, np.random.default_rng([seed, 1]))
            regrets.append(regret)
            hits.append(_first_best(regret))
            stops.append(stopped)
            stop_regrets.append(float(regret[stopped - 1]))
        return _summary(np.array(regrets), hits) | {
            "stops_after": float(np.mean(stops)),
            "regret_at_stop": float(np.mean(stop_regrets)),
        }


def follow(search: Search, table: Table, rng: np.random.Generator) -> tuple[NDArray[np.float64], int]:
    """Try all plans; return the regret after each try, and the number of tries after which the search would stop."""
    means, regret, stopped = table.means(), [], 0
    for look in range(len(table)):
        if not stopped and not search.worth_another:
            stopped = look
        plan = search.ask()
        search.tell(plan, table.look_up(table.sequences[plan], rng))
        chosen = search.best() if table.runs > 1 else int(np.array(search.tried)[np.argmax(search.results)])
        regret.append(float(means.max() - means[chosen]))
    return np.array(regret), stopped or len(table)


def random_search(table: Table, seeds: int) -> dict[str, Any]:
    """Return the regret of trying plans in random order; with one run per plan it is the exact expectation."""
    means = table.means()
    regrets, hits = [], []
    for seed in range(max(seeds, 200)):
        rng = np.random.default_rng([seed, 2])
        order = rng.permutation(len(table))
        seen = np.array([table.look_up(table.sequences[i], rng) for i in order])
        best = np.array([order[seen[: k + 1].argmax()] for k in range(len(order))])
        regrets.append(means.max() - means[best])
        hits.append(_first_best(regrets[-1]))
    found = _summary(np.array(regrets), hits)
    if table.runs == 1:
        ranked, n = np.sort(means)[::-1], len(means)
        for k in LOOKS:
            if k <= n:
                expected = sum(ranked[i] * comb(n - 1 - i, k - 1) for i in range(n - k + 1)) / comb(n, k)
                found["regret"][str(k)]["mean"] = float(ranked[0] - expected)
    return found


def study(
    tables: Sequence[Table],
    *,
    seeds: int = 20,
    steps: int = 120,
    price: float = 0.001,
    workers: int | None = 2,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Search all tables, each with a surrogate learned from the others; return results by table, and their means."""
    rows = run_all(Worker(tables, seeds, steps, price), list(range(len(tables))), workers, progress)
    return {"seeds": seeds, "price": price, "rows": rows, "mean": _mean(rows)}


def _mean(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarise over tables: regret, tries to the best plan, and the tables in which it is worse than random."""
    found: dict[str, Any] = {}
    for name in ("taught", "fresh", "random"):
        looks = [k for k in map(str, LOOKS) if all(k in row[name]["regret"] for row in rows)]
        found[name] = {
            "regret": {k: float(np.mean([row[name]["regret"][k]["mean"] for row in rows])) for k in looks},
            "looks_to_best": float(np.median(np.concatenate([row[name]["looks_to_best"] for row in rows]))),
        }
    for name in ("taught", "fresh"):
        found[name]["worse_than_random_after_10"] = [
            row["table"] for row in rows if row[name]["regret"]["10"]["mean"] > row["random"]["regret"]["10"]["mean"]
        ]
        for key in ("stops_after", "regret_at_stop"):
            found[name][key] = float(np.mean([row[name][key] for row in rows]))
    return found


def _summary(regrets: NDArray[np.float64], hits: Sequence[int]) -> dict[str, Any]:
    found: dict[str, Any] = {"regret": {}, "looks_to_best": [int(h) for h in hits]}
    for k in LOOKS:
        if k <= regrets.shape[1]:
            spread = interval(regrets[:, k - 1])
            found["regret"][str(k)] = {"mean": spread.mean, "low": spread.low, "high": spread.high}
    return found


def _first_best(regret: NDArray[np.float64]) -> int:
    return int(np.argmax(regret <= 1e-12)) + 1 if (regret <= 1e-12).any() else len(regret)
