"""Which bids are taken: a multiple-choice knapsack with several resources, in compiled code.

Maximise Σ value · x with at most one row of each job, and Σ use · x ≤ 1 of every resource (uses are shares of what
there is). Prices of the resources are found by subgradient steps on the Lagrangian dual, whose value is an upper
bound; from the rows that are best at the prices, a feasible choice is made by repairing and filling up. Where few jobs
bid, a depth-first search with that bound then finds the best choice. Like jobs pick the same row and do not all fit:
so a second repair begins at the best prices so far, and a job whose row does not fit takes its next best one at these
prices; then jobs get less where others that have nothing make more of it. Where very many bid, there is only the second
repair, and the search for prices ends once the choice is good enough.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from argosy._jit import kernel
from argosy.mechanism.kernels.sorting import sort_down
from argosy.slack import RELATIVE_SLACK

PER_ROW = 4  # resources that a row may use: GPUs, CPUs and memory of its type, and its queue's limit
STEPS = 60  # subgradient steps
REPAIR_EVERY = 6
SEARCHED_JOBS = 14  # so few jobs are searched through
SEARCHED_NODES = 20_000  # of the search tree, at most
ENOUGH = 1e-6  # a choice whose gap to the bound is smaller than this counts as the best
MANY_JOBS = 2_000  # with more jobs than this, decisions would take too long without the following
FEWER_STEPS = 30
GOOD_ENOUGH = 1e-3  # the gap that ends the search for prices
EXCHANGED_JOBS = 400  # with fewer jobs, a choice that is not good enough is improved by exchanges
RECEIVERS = 8  # jobs without anything that are considered in an exchange
NEARLY = 0.95  # of its cost at the prices must a row be worth to be the next best one


@partial(kernel, allocates=True)
def take_best(
    first: Any, value: Any, use: Any, resource: Any, resources: int, prices: Any, taken: Any
) -> tuple[float, float]:
    """Write the row taken for each job (-1: none) and the prices; return the worth and its upper bound.

    The rows of job j are first[j] … first[j + 1] - 1. `use[r, k]` is the share that row r takes of `resource[r, k]`.
    """
    jobs = len(first) - 1
    load, best_prices, repaired = np.zeros(resources), np.zeros(resources), np.zeros(resources)
    pick, trial = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    density, order = np.empty(jobs), np.empty(jobs, np.int64)
    lower, upper = -1.0, np.inf
    first_prices(first, value, use, resource, prices)
    many = jobs > MANY_JOBS
    steps, enough = (FEWER_STEPS, GOOD_ENOUGH) if many else (STEPS, ENOUGH)
    theta, since, improved = 1.0, 0, False
    for step in range(steps):
        dual = best_rows(first, value, use, resource, prices, pick, load)
        if step == 0 or dual < upper - ENOUGH * abs(upper):
            upper, since, improved = dual, 0, True
            best_prices[:] = prices
        else:
            since += 1
            if since >= 4:
                theta, since = 0.5 * theta, 0
        due = step % REPAIR_EVERY == 0 or step == steps - 1
        if due and not many:
            worth = repair(first, value, use, resource, prices, pick, trial, repaired, density, order, False)
            if worth > lower:
                lower = worth
                taken[:] = trial
        if due and improved and upper - lower > enough * upper:
            best_rows(first, value, use, resource, best_prices, pick, repaired)
            worth = repair(first, value, use, resource, best_prices, pick, trial, repaired, density, order, True)
            improved = False
            if worth > lower:
                lower = worth
                taken[:] = trial
        if upper - lower <= enough * upper:
            break
        norm = 0.0
        for k in range(resources):
            over = load[k] - 1.0
            if over > 0.0 or prices[k] > 0.0:
                norm += over * over
        if norm <= 0.0:
            break
        length = theta * (dual - lower) / norm
        for k in range(resources):
            prices[k] = max(prices[k] + length * (load[k] - 1.0), 0.0)
    prices[:] = best_prices
    if jobs <= EXCHANGED_JOBS and upper - lower > GOOD_ENOUGH * upper:
        held = np.empty(jobs, np.int64)
        lower += exchange(first, value, use, resource, prices, taken, trial, held, load, density, order)
    if jobs <= SEARCHED_JOBS and upper - lower > ENOUGH * upper:
        promised, held = np.zeros(jobs + 1), np.full(jobs, -1, np.int64)
        load[:] = 0.0
        lower, upper = search(
            first, value, use, resource, prices, taken, lower, upper, promised, load, trial, held, prices.sum()
        )
    return lower, max(upper, lower)


@kernel
def first_prices(first: Any, value: Any, use: Any, resource: Any, prices: Any) -> None:
    """Begin with prices at which all that is best for each job would cost what it is worth, if it fits half."""
    prices[:] = 0.0
    wanted = 0.0
    worth = 0.0
    for j in range(len(first) - 1):
        best = -1
        for r in range(first[j], first[j + 1]):
            if best < 0 or value[r] > value[best]:
                best = r
        if best >= 0 and value[best] > 0.0:
            worth += value[best]
            wanted += use[best, 0]
    if wanted > 1.0:
        for r in range(len(value)):
            prices[resource[r, 0]] = 0.5 * worth / wanted


@kernel
def cost_of(use: Any, resource: Any, prices: Any, r: int) -> float:
    """Return what a row costs at these prices."""
    cost = 0.0
    for k in range(PER_ROW):
        cost += prices[resource[r, k]] * use[r, k]
    return cost


@kernel
def best_rows(first: Any, value: Any, use: Any, resource: Any, prices: Any, pick: Any, load: Any) -> float:
    """Pick what is best for each job at these prices; return the value of the dual."""
    dual = 0.0
    for k in range(len(load)):
        load[k] = 0.0
        dual += prices[k]
    for j in range(len(first) - 1):
        best, at = 0.0, -1
        for r in range(first[j], first[j + 1]):
            net = value[r] - cost_of(use, resource, prices, r)
            if net > best:
                best, at = net, r
        pick[j] = at
        dual += best
        if at >= 0:
            for k in range(PER_ROW):
                load[resource[at, k]] += use[at, k]
    return dual


@kernel
def fits(use: Any, resource: Any, load: Any, r: int) -> bool:
    """Say whether there is room for a row beside the load."""
    for k in range(PER_ROW):
        if load[resource[r, k]] + use[r, k] > 1.0 + RELATIVE_SLACK:
            return False
    return True


@kernel
def add(use: Any, resource: Any, load: Any, r: int, sign: float) -> None:
    for k in range(PER_ROW):
        load[resource[r, k]] += sign * use[r, k]


@kernel
def repair(
    first: Any,
    value: Any,
    use: Any,
    resource: Any,
    prices: Any,
    pick: Any,
    trial: Any,
    load: Any,
    density: Any,
    order: Any,
    next_best: bool,
) -> float:
    """Make a feasible choice from the picked rows, dearest per cost first; then let jobs have more where it fits.

    With `next_best`, a job whose row does not fit takes the best one at the prices that does, before those behind it;
    and jobs that have nothing come before those that would have more.
    """
    jobs = len(first) - 1
    for j in range(jobs):
        trial[j], density[j] = -1, 0.0
        if pick[j] >= 0:
            density[j] = value[pick[j]] / (cost_of(use, resource, prices, pick[j]) + 1e-12)
        else:
            for r in range(first[j], first[j + 1]):
                density[j] = max(density[j], value[r] / (cost_of(use, resource, prices, r) + 1e-12))
    sort_down(density, order, jobs)
    for k in range(len(load)):
        load[k] = 0.0
    for i in range(jobs):
        j = order[i]
        at = pick[j]
        if next_best and density[j] >= NEARLY and not (at >= 0 and fits(use, resource, load, at)):
            at = best_that_fits(first, value, use, resource, prices, load, j, NEARLY)
        if at >= 0 and fits(use, resource, load, at):
            trial[j] = at
            add(use, resource, load, at, 1.0)
    for i in range(jobs if next_best else 0):
        j = order[i]
        at = best_that_fits(first, value, use, resource, prices, load, j, 0.0) if trial[j] < 0 else -1
        if at >= 0:
            trial[j] = at
            add(use, resource, load, at, 1.0)
    for _ in range(2):
        changed = False
        for i in range(jobs):
            j = order[i]
            at = trial[j]
            if at >= 0:
                add(use, resource, load, at, -1.0)
            best, gain = at, value[at] if at >= 0 else 0.0
            for r in range(first[j], first[j + 1]):
                if value[r] > gain and fits(use, resource, load, r):
                    best, gain = r, value[r]
            if best >= 0:
                add(use, resource, load, best, 1.0)
            changed |= best != at
            trial[j] = best
        if not changed:
            break
    worth = 0.0
    for j in range(jobs):
        if trial[j] >= 0:
            worth += value[trial[j]]
    return worth


@kernel
def exchange(
    first: Any,
    value: Any,
    use: Any,
    resource: Any,
    prices: Any,
    taken: Any,
    without: Any,
    given: Any,
    load: Any,
    density: Any,
    order: Any,
) -> float:
    """Give jobs less where what that leaves is worth more to jobs that have nothing; return what is gained.

    `without` and `given` are scratch: some jobs that have nothing, and the rows that they would get.
    """
    jobs, gained = len(first) - 1, 0.0
    load[:] = 0.0
    for j in range(jobs):
        density[j] = 0.0
        if taken[j] >= 0:
            add(use, resource, load, taken[j], 1.0)
        for r in range(first[j], first[j + 1]):
            density[j] = max(density[j], value[r] / (cost_of(use, resource, prices, r) + 1e-12))
    sort_down(density, order, jobs)
    for j in range(jobs):
        now = taken[j]
        if now < 0:
            continue
        waiting = 0
        for i in range(jobs):
            if taken[order[i]] < 0 and waiting < RECEIVERS:
                without[waiting] = order[i]
                waiting += 1
        if waiting == 0:
            break
        add(use, resource, load, now, -1.0)
        best, most = now, value[now] * (1.0 + ENOUGH)
        for r in range(first[j] - 1, first[j + 1]):  # the first of them stands for nothing
            less = r < first[j] or (resource[r, 0] == resource[now, 0] and use[r, 0] < use[now, 0])
            if less:
                worth = trade(first, value, use, resource, prices, without, waiting, given, load, r, first[j])
                if worth > most:
                    best, most = r, worth
                take_back(use, resource, waiting, given, load, r, first[j])
        if best == now:
            add(use, resource, load, now, 1.0)
            continue
        gained += trade(first, value, use, resource, prices, without, waiting, given, load, best, first[j]) - value[now]
        taken[j] = best if best >= first[j] else -1
        for i in range(waiting):
            if given[i] >= 0:
                taken[without[i]] = given[i]
    return gained


@kernel
def trade(
    first: Any,
    value: Any,
    use: Any,
    resource: Any,
    prices: Any,
    without: Any,
    waiting: int,
    given: Any,
    load: Any,
    r: int,
    least: int,
) -> float:
    """Load a row (none if it is below `least`), then what fits of jobs that have nothing; return what all is worth."""
    worth = 0.0
    if r >= least:
        add(use, resource, load, r, 1.0)
        worth = value[r]
    for i in range(waiting):
        at = best_that_fits(first, value, use, resource, prices, load, without[i], 0.0)
        given[i] = at
        if at >= 0:
            add(use, resource, load, at, 1.0)
            worth += value[at]
    return worth


@kernel
def take_back(use: Any, resource: Any, waiting: int, given: Any, load: Any, r: int, least: int) -> None:
    """Undo a trade."""
    if r >= least:
        add(use, resource, load, r, -1.0)
    for i in range(waiting):
        if given[i] >= 0:
            add(use, resource, load, given[i], -1.0)


@kernel
def best_that_fits(
    first: Any, value: Any, use: Any, resource: Any, prices: Any, load: Any, j: int, least: float
) -> int:
    """Return the row of most value above its cost for which there is room, -1 if none is worth `least` of its cost."""
    best, most = -1, -np.inf
    for r in range(first[j], first[j + 1]):
        cost = cost_of(use, resource, prices, r)
        if value[r] - cost > most and value[r] >= least * cost and fits(use, resource, load, r):
            best, most = r, value[r] - cost
    return best


@kernel
def search(
    first: Any,
    value: Any,
    use: Any,
    resource: Any,
    prices: Any,
    taken: Any,
    lower: float,
    upper: float,
    promised: Any,
    load: Any,
    at: Any,
    held: Any,
    room: float,
) -> tuple[float, float]:
    """Search depth first for a better choice; the bound of a branch is what the prices promise for the jobs below it.

    `promised`, `load`, `at` and `held` are scratch; `room` is the price of all resources.
    """
    jobs = len(first) - 1
    for j in range(jobs - 1, -1, -1):
        best = 0.0
        for r in range(first[j], first[j + 1]):
            best = max(best, value[r] - cost_of(use, resource, prices, r))
        promised[j] = promised[j + 1] + best
    worth, j, nodes = 0.0, 0, 0
    at[0] = first[0] - 1
    while j >= 0:
        if held[j] >= 0:  # take back what was tried last
            r = held[j]
            add(use, resource, load, r, -1.0)
            worth -= value[r]
            room += cost_of(use, resource, prices, r)
            held[j] = -1
        at[j] += 1
        r = at[j]
        nodes += 1
        if nodes > SEARCHED_NODES:
            return lower, upper
        if r > first[j + 1]:  # every row and nothing have been tried
            j -= 1
            continue
        if r < first[j + 1]:
            if not fits(use, resource, load, r):
                continue
            add(use, resource, load, r, 1.0)
            worth += value[r]
            room -= cost_of(use, resource, prices, r)
            held[j] = r
        if worth + promised[j + 1] + room <= lower + ENOUGH * abs(lower):
            continue
        if j == jobs - 1:
            if worth > lower:
                lower = worth
                for k in range(jobs):
                    taken[k] = held[k]
            continue
        j += 1
        at[j] = first[j] - 1
    return lower, min(upper, lower * (1.0 + ENOUGH))
