"""Space sharing for Gavel: job pairs in the program, and a plan that puts pairs on the same GPUs.

Only jobs with the same number of GPUs share, and only where their speeds together exceed one job's alone. The program
pairs groups of like jobs; the time of a pair of groups is then distributed over pairs of their jobs, so that all jobs
of a group receive the same.
"""

from __future__ import annotations

import numpy as np

from argosy.cluster.view import View
from argosy.mechanism.compose import Walk
from argosy.mechanism.free_nodes import Claim
from argosy.mechanism.plan import Plan
from argosy.mechanism.rounds import Rounds
from argosy.policies.base import Floats, Ints
from argosy.policies.gavel.linear_program import Pairs, Program, grouped

ANYWHERE = -1  # stands for any GPU type
WORTH_IT = 1.0  # the sum of both speeds, each relative to running alone, that a pair must exceed
JobPairs = dict[tuple[int, int], Floats]  # rows of two jobs → share of time on each column


def fairest_with_pairs(
    speed: Floats,
    gpus: Floats,
    due: Floats,
    kind: Ints,
    beside: Floats,
    capacity: Floats,
    column_type: Ints,
    extra: bool = True,
) -> tuple[Floats, JobPairs, float]:
    """Return shares of single jobs and of pairs that give every job at least t · due; kind -1 is never packed."""
    able = np.flatnonzero((speed > 0).any(axis=1) & (due > 0))
    shares = np.zeros(speed.shape)
    if not len(able):
        return shares, {}, 0.0
    first, group, count = grouped(speed[able], gpus[able], due[able], kind[able].astype(float))
    rows = able[first]
    pairs = worthwhile(speed[rows], gpus[rows], kind[rows], count, beside)
    program = Program(speed[rows], gpus[rows], count.astype(float), capacity, column_type, extra, pairs)
    x, t = program.fairest(due[rows])
    shares[able] = x[group]
    jobs = [able[group == g] for g in range(len(rows))]
    handed: JobPairs = {}
    for p, times in enumerate(program.together):
        for column in np.flatnonzero(times > 1e-9).tolist():
            ones, others = jobs[pairs.first[p]], jobs[pairs.second[p]]
            distribute(ones, others, float(times[column]), column, speed.shape[1], handed)
    return shares, handed, t


def worthwhile(speed: Floats, gpus: Floats, kind: Ints, count: Ints, beside: Floats) -> Pairs:
    """Return the pairs of groups whose jobs do more together than one of them alone."""
    a, b = np.triu_indices(len(gpus))
    can = (kind[a] >= 0) & (kind[b] >= 0) & (gpus[a] == gpus[b]) & (gpus[a] >= 1) & ((a != b) | (count[a] > 1))
    a, b = a[can], b[can]
    slowed_a, slowed_b = beside[kind[a], kind[b]], beside[kind[b], kind[a]]
    good = slowed_a + slowed_b > WORTH_IT
    a, b = a[good], b[good]
    both = (speed[a] > 0) & (speed[b] > 0)
    return Pairs(
        a,
        b,
        np.where(both, speed[a] * slowed_a[good][:, None], 0.0),
        np.where(both, speed[b] * slowed_b[good][:, None], 0.0),
    )


def distribute(ones: Ints, others: Ints, time: float, column: int, columns: int, handed: JobPairs) -> None:
    """Distribute the time of two groups over pairs of their jobs, so that all jobs of a group get the same."""

    def give(a: int, b: int, amount: float) -> None:
        handed.setdefault((min(a, b), max(a, b)), np.zeros(columns))[column] += amount

    if ones is others or (len(ones) == len(others) and bool((ones == others).all())):
        for i, a in enumerate(ones.tolist()):  # a ring: every job with both of its neighbours
            give(a, int(ones[(i + 1) % len(ones)]), time / len(ones))
        return
    i = j = 0
    left_i, left_j = time / len(ones), time / len(others)
    while i < len(ones) and j < len(others):
        amount = min(left_i, left_j)
        give(int(ones[i]), int(others[j]), amount)
        left_i, left_j = left_i - amount, left_j - amount
        if left_i <= 1e-12 * time:
            i, left_i = i + 1, time / len(ones)
        if left_j <= 1e-12 * time:
            j, left_j = j + 1, time / len(others)


class RoundPlanner(Walk):
    """Builds the plan of one round: which jobs stop, which start, and which run on the GPUs of another."""

    def leave(self, rows: set[int], partner: dict[int, int]) -> None:
        """Stop these jobs; the GPUs of a pair become free when both of its jobs stop."""
        for row in sorted(rows):
            self._stop(row)
            if partner.get(row, row) in rows and row < partner.get(row, row):
                for part in self.view.placement(row):
                    self.free.gpus[part.node] += part.devices.bit_count()

    def join(self, guest: int, host: int) -> None:
        """Run a job on the GPUs of another, if their nodes have CPUs and memory for it."""
        placement = self.plan.placements.get(host)
        if placement is None:
            gpus = {part.node: part.devices.bit_count() for part in self.view.placement(host)}
        else:
            gpus = placement.gpus
        units = [Claim(node, 0, n * self._cpus[guest], n * self._memory_gib[guest]) for node, n in gpus.items()]
        if not any(self.free.lacks(claim) for claim in units):
            self.free.take(units)
            self.plan.pack(guest, host)


def plan_of_round(view: View, rounds: Rounds, column_type: Ints) -> Plan:
    """Plan a round: the chosen jobs run, alone or in pairs, on the column's GPU type; running ones stay in place."""
    jobs, nodes = view.jobs, view.nodes
    row_of = {int(job): row for row, job in enumerate(jobs.index)}
    units = [(row, row, ANYWHERE) for row in np.flatnonzero(jobs.gpus == 0).tolist()]
    units += [(row_of[a], row_of[b], int(column_type[c])) for (a, b), c in rounds.columns_of().items()]
    units.sort(key=lambda unit: (-jobs.gpus[unit[0]], jobs.index[unit[0]]))
    type_of, place_of, partner = where_they_are(view)
    stays: set[int] = set()
    starts: dict[int, int] = {}  # row → GPU type
    joins: list[tuple[int, int]] = []
    anchored: set[tuple[int, int]] = set()
    for a, b, t in units:
        if a != b and partner.get(a) == b and type_of[a] == t:
            stays |= {a, b}
            continue
        here = [r for r in (a, b) if r in type_of and t in (type_of[r], ANYWHERE) and place_of[r] not in anchored]
        host = here[0] if here else a
        if here:
            stays.add(host)
            anchored.add(place_of[host])
        else:
            starts[host] = t
        if a != b:
            joins.append((a + b - host, host))

    def place(view: View, row: int, gpus: int, free: Ints) -> dict[int, int] | None:
        return best_fit(gpus, np.where(nodes.type == starts[row], free, 0))

    walk = RoundPlanner(view, place, None)
    walk.leave(set(type_of) - stays, partner)
    for row in starts:
        walk.start(row)
    for guest, host in joins:
        if host in stays or host in walk.plan.placements:
            walk.join(guest, host)
    return walk.plan


def where_they_are(view: View) -> tuple[dict[int, int], dict[int, tuple[int, int]], dict[int, int]]:
    """Return the GPU type, the GPUs (or the job itself, if it has no whole GPU) and the partner of running jobs."""
    type_of: dict[int, int] = {}
    place_of: dict[int, tuple[int, int]] = {}
    partner: dict[int, int] = {}
    there: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(view.jobs.state == 1).tolist():
        part = view.placement(row)[0]
        type_of[row] = int(view.nodes.type[part.node])
        if view.jobs.gpus[row] < 1:
            place_of[row] = (-1, row)
            continue
        place_of[row] = (part.node, part.devices)
        other = there.setdefault(place_of[row], row)
        if other != row:
            partner[row], partner[other] = other, row
    return type_of, place_of, partner


def best_fit(gpus: int, free: Ints) -> dict[int, int] | None:
    """Choose the node with the least room that is enough, else as few nodes as possible; None if there is no room."""
    enough = np.flatnonzero(free >= gpus)
    if len(enough):
        return {int(enough[np.argmin(free[enough])]): gpus}
    if free.sum() < gpus:
        return None
    chosen: dict[int, int] = {}
    for node in np.argsort(-free, kind="stable").tolist():
        chosen[node] = min(int(free[node]), gpus)
        gpus -= chosen[node]
        if gpus == 0:
            break
    return chosen
