"""Make branch tables: train the family of networks, and at moments of training try everything that could be done.

    python -m argosy.grow.study.make_branches -o FOLDER [--runs 3] [--only KEY,KEY] [--minutes M]

A run is trained without growth once; its arms branch from it early, in the middle and late. The first run of a member
tries most options, later runs try those that were best so far (successive halving). In the second run, the best growth
is also followed by a second decision, an epoch later. Runs that are finished are kept, so an interrupted call goes on
where it stopped.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from argosy import __version__
from argosy.errors import UnknownName
from argosy.grow.agents.base import PriceKind
from argosy.grow.data import Data
from argosy.grow.errors import GrowError
from argosy.grow.study.branches import priced
from argosy.grow.study.family import FAMILIES, Member, members
from argosy.grow.study.history import History
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.sites import sites
from argosy.grow.tables.branch_table import Arm, BranchTable, DecisionPoint, plain_point, read_point
from argosy.grow.tables.partial import Partial
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.run import Run
from argosy.seeding import stream

SCENARIOS = {"early": 0.2, "middle": 0.45, "late": 0.8}  # shares of the budget
WATCHED = 1000  # validation pictures for the learning curve; all of them judge the final network
FIRST = {"early": (3, 2, 1), "middle": (2, 2, 1), "late": (1, 1, 1)}  # deepened, widened, both at once
LATER = (3, 2)  # growths in the second and in every further run
PAID, UNRESET = 0.2, 0.2  # shares of growths that are paid for in time, or leave the learning rate as it is
FACTORS = (1.5, 2.0)
REPLICAS = 2.0
EVERY = (Surgery("replicate", factor=REPLICAS),)

Way = tuple[tuple[Surgery, ...], bool | None, PriceKind]  # of going on: surgeries, reset, who pays
NONE: Way = ((), None, "free")
RESET: Way = ((), True, "free")


def begin(member: Member, data: Data, seed: int) -> History:
    """Return a run of a member that has not been trained yet."""
    watched = replace(data, val_x=data.val_x[:WATCHED], val_y=data.val_y[:WATCHED])
    return History(Run(member.network(data, seed), watched, member.recipe, VirtualClock(), seed, budget=member.budget))


def point_of(history: History, scenario: str, arms: Sequence[Arm]) -> DecisionPoint:
    """Return this moment as a decision point with these arms."""
    run = history.run
    epoch_s = float(run.clock.epoch_time() or 1.0)
    now, flops, done = run.clock.now(), run.flops(), tuple(history.done)
    return DecisionPoint(scenario, now, history.curve, run.parameters, flops, run.lr, epoch_s, done, tuple(arms))


@dataclass
class Trial:
    """Trains one run of a member with all its arms. `gains` are those of earlier runs, by scenario and way."""

    member: Member
    data: Data
    number: int
    gains: Mapping[str, Mapping[Way, float]]

    def __post_init__(self) -> None:
        self.seed = int(stream(0, f"branch run {self.member.key}", self.number).integers(2**31))
        self.rng = stream(0, f"branch arms {self.member.key}", self.number)

    def points(self) -> list[DecisionPoint]:
        """Return the decision points of this run."""
        trunk = begin(self.member, self.data, self.seed)
        waiting: list[tuple[str, History, list[Arm]]] = []
        found: list[DecisionPoint] = []
        for scenario, share in SCENARIOS.items():
            trunk.train_until(share)
            ways = self._ways(scenario, trunk.run)
            arms = [arm for way in ways if (arm := self._arm(trunk.run, way)) is not None]
            waiting.append((scenario, trunk.fork(), arms))
            best = self._best_growth(scenario) if self.number == 1 and scenario != "late" else None
            if best is not None:
                left_now = next((arm for arm in arms if (arm.surgeries, arm.reset) == best[:2]), None)
                found += self._second(scenario, trunk, best, left_now)
        nothing = self._finish(trunk.run, NONE)
        for scenario, history, arms in waiting:
            epochs = nothing.epochs - history.run.epochs
            found.append(point_of(history, scenario, [replace(nothing, epochs=epochs), *arms]))
        return found

    def _arm(self, trunk: Run, way: Way) -> Arm | None:
        """Train a copy of the run to the end in this way, and return the result; None if its surgery is refused."""
        surgeries, reset, price = way
        run = priced(trunk, "flops") if price == "time" else trunk.fork()
        try:
            run.grow(surgeries, reset=reset)
        except GrowError:
            return None
        return self._finish(run, way, trunk.epochs)

    def _finish(self, run: Run, way: Way, before: int = 0) -> Arm:
        """Train to the end, and judge the network on all validation and test data."""
        failed = False
        while run.time_left > 0 and not failed:
            try:
                run.train_epoch()
            except GrowError:
                failed = True
        run.data = self.data
        scores = run.evaluate("validation"), run.evaluate("test")
        surgeries, reset, price = way
        return Arm(surgeries, reset, price, *scores, run.parameters, run.flops(), run.epochs - before, failed)

    def _second(self, scenario: str, trunk: History, way: Way, left: Arm | None) -> list[DecisionPoint]:
        """Return the decision point an epoch after this growth: leave it now, reset again, or grow further.

        `left` is the arm of this growth, whose network is left alone afterwards.
        """
        if left is None or left.failed:
            return []
        after = trunk.fork()
        after.grow(way[0], way[1])
        after.train_epoch()
        options = self._options(after.run)
        ways: list[Way] = [RESET, ((options[int(self.rng.integers(len(options)))],), None, "free")]
        arms = [arm for w in ways if (arm := self._arm(after.run, w)) is not None]
        nothing = replace(left, surgeries=(), epochs=left.epochs - 1)
        return [point_of(after, f"{scenario}, again", [nothing, *arms])]

    def _ways(self, scenario: str, run: Run) -> list[Way]:
        """Return what this run tries at a decision: anything, or what was best in earlier runs."""
        known = self.gains.get(scenario, {})
        if self.number == 0 or not known:
            replicas: list[Way] = [] if scenario == "late" else [(EVERY, False, "free")]
            return [RESET, *replicas, *self._first(scenario, run)]
        growths = sorted((way for way in known if _grows(way)), key=lambda way: -known[way])
        return [RESET, *growths[: LATER[min(self.number, len(LATER)) - 1]]]

    def _first(self, scenario: str, run: Run) -> list[Way]:
        """Return growths of all kinds, drawn at random."""
        deepen, widen, both = FIRST[scenario]
        options = self._options(run)
        order = [options[i] for i in self.rng.permutation(len(options))]
        deeper = [s for s in order if s.op == "deepen"]
        wider = [s for s in order if s.op == "widen"]
        steps = [(s,) for s in (*deeper[:deepen], *wider[:widen])]
        pairs = [(deeper[0], deeper[-1])] if len(deeper) > 1 else []
        pairs += [(deeper[0], wider[0])] if deeper and wider else []
        return [self._terms(step) for step in (*steps, *pairs[:both])]

    def _terms(self, step: tuple[Surgery, ...]) -> Way:
        """Return a growth with a price, and with or without a reset, drawn at random."""
        price: PriceKind = "time" if self.rng.random() < PAID else "free"
        return step, (False if self.rng.random() < UNRESET else None), price

    def _options(self, run: Run) -> list[Surgery]:
        """Return the growths that are possible; new channels start at random where they can."""
        found = []
        possible = {factor: sites(run.model, run.example, factor=factor) for factor in FACTORS}
        for site in possible[FACTORS[-1]]:
            if not site.original:
                continue
            if site.can_deepen:
                found.append(Surgery("deepen", site.name))
            by = [f for f in FACTORS if any(s.name == site.name and s.can_widen for s in possible[f])]
            if by:
                factor = by[int(self.rng.integers(len(by)))]
                found.append(Surgery("widen", site.name, factor, "fresh" if len(by) == len(FACTORS) else "copy"))
        return found

    def _best_growth(self, scenario: str) -> Way | None:
        """Return the free growth with a reset that was best in earlier runs."""
        known = self.gains.get(scenario, {})
        usable = [way for way in known if _grows(way) and way[1] is None and way[2] == "free"]
        return max(usable, key=lambda way: known[way], default=None)


def _grows(way: Way) -> bool:
    return any(s.op != "replicate" for s in way[0])


def gains_of(runs: Sequence[Sequence[DecisionPoint]]) -> dict[str, dict[Way, float]]:
    """Return the mean gain in validation accuracy over doing nothing, by scenario and way."""
    every: dict[str, dict[Way, list[float]]] = {}
    for point in (p for run in runs for p in run):
        for arm in point.arms:
            way: Way = (arm.surgeries, arm.reset, arm.price)
            gain = arm.validation - point.nothing.validation
            every.setdefault(point.scenario, {}).setdefault(way, []).append(gain)
    return {s: {way: float(np.mean(values)) for way, values in ways.items()} for s, ways in every.items()}


def train_member(member: Member, number: int, folder: Path) -> None:
    """Train one run of a member, if it is not there yet."""
    partial = _partial(member, folder)
    if any(part["run"] == number for part in partial.parts):
        return
    data = member.load()
    runs = [[read_point(p) for p in part["points"]] for part in partial.parts]
    torch.set_num_threads(1)
    points = Trial(member, data, number, gains_of(runs)).points()
    partial.add({"run": number, "points": [plain_point(p) for p in points]})


def write_table(member: Member, folder: Path, command: str) -> Path | None:
    """Write the table of the runs that have been made."""
    partial = _partial(member, folder)
    if not partial.parts:
        return None
    data = member.load()
    counts = {
        "train": len(data.train_y),
        "validation": len(data.val_y),
        "test": len(data.test_y),
        "classes": data.classes,
    }
    table = BranchTable(
        member.family,
        FAMILIES[member.family][0],
        member.options(data),
        data.shape,
        member.data,
        counts,
        member.recipe.to_dict(),
        member.budget,
        tuple(tuple(read_point(p) for p in part["points"]) for part in partial.parts),
        {"command": command, "versions": {"argosy": __version__, "torch": torch.__version__}},
    )
    path = folder / f"{member.key}.json"
    table.write(path)
    return path


def _partial(member: Member, folder: Path) -> Partial:
    return Partial(folder / f"{member.key}.json", member.to_dict())


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the tables as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m argosy.grow.study.make_branches", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--runs", type=int, default=3, help="runs of each member, from different seeds")
    parser.add_argument("--only", help="keys of members, separated by commas; default: all")
    parser.add_argument("--minutes", type=float, help="of this process's CPU time; then it stops after a run")
    parser.add_argument("--finish", action="store_true", help="only write the tables of the runs that are there")
    given = parser.parse_args(arguments)
    command = "python -m argosy.grow.study.make_branches " + shlex.join(arguments or sys.argv[1:])
    wanted = given.only.split(",") if given.only else None
    make_tables(given.output, given.runs, wanted, given.minutes, command, finish=given.finish)


def make_tables(
    output: Path,
    runs: int,
    only: Sequence[str] | None,
    minutes: float | None,
    command: str,
    *,
    finish: bool = False,
    say: Callable[[str], object] = print,
) -> list[Path]:
    """Train the members of these keys, or all of them, write their tables, and return the files.

    After so many minutes of this process's CPU time no further run begins; with `finish` none begins at all.
    """
    every = members()
    for key in only or ():
        if key not in {m.key for m in every}:
            raise UnknownName("member of the family", key, [m.key for m in every])
    output.mkdir(parents=True, exist_ok=True)
    chosen = [m for m in every if only is None or m.key in only]
    chosen = [chosen[i] for i in stream(0, "order of members").permutation(len(chosen))]  # if time is too short for all
    for number in range(0 if finish else runs):
        for member in chosen:
            if minutes is not None and time.process_time() > 60 * minutes:
                break
            began = time.process_time()
            train_member(member, number, output)
            say(f"{member.key} run {number}: {time.process_time() - began:.1f} s of CPU")
    return [path for member in chosen if (path := write_table(member, output, command)) is not None]


if __name__ == "__main__":
    main()
