"""A recipe contains everything that the weights depend on: the same recipe gives the same weights, bit for bit.

The number of processes, the time limit and the folder of real data are not part of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from argosy.errors import InputError, UnknownName
from argosy.learn.training.options import OPTIONS, WARM_UP, check_options
from argosy.scenario import scenario_names

LEAGUE = "league"  # instead of one scenario: all that ship, in turn
CONTENDED = (  # scenarios in which a decision matters; `mixed`, which has everything, stands there twice
    "mixed,dl2-100,dl2-heavy,dl2-testbed,faulty,fluctuating,mixed,hetero-108,overload,packed,philly-rigid,stormy"
)
OPTIMUS = "optimus:work=estimate:newcomers=wait:verbatim=no"
USUAL: dict[str, dict[str, Any]] = {
    "dl2": {"algo": "dl2", "teacher": "drf", "jobs": 10, "warm_up": 60, "dagger": 10, "updates": 2000},
    "dl2+": {"algo": "es", "teacher": OPTIMUS, "jobs": 64, "warm_up": 40, "dagger": 0, "updates": 200},
    "argonaut": {
        "algo": "es",
        "teacher": "joint:relative=0.6:elastic=0.4",
        "scenario": CONTENDED,
        "quick": False,
        "loads": True,
        "warm_up": 0,
        "updates": 60,
        "windows": 2,
        "patience": 0,
        "options": {
            "pairs": 8,
            "arrivals": 12,
            "sigma": 0.1,
            "lr": 0.04,
            "decay": 0.5,
            "average": 0.85,
            "tail": 0.1,
        },
    },
}
LARGEST = {"jobs": 10_000, "cap": 10_000, "windows": 1_000, "slot_s": 1e9, "seed": 2**62}  # a machine can hold these
SWITCHES = ("exploration", "replay", "critic")  # parts of DL2's algorithm that can be left out


@dataclass(frozen=True)
class Recipe:
    """Says how weights are trained; `Recipe.of` fills in the defaults of a system."""

    system: str
    algo: str
    teacher: str
    scenario: str = "dl2-500"
    quick: bool = False  # the scenario's short form
    measured: bool = False  # with real traces and measured speeds, from a data folder
    loads: bool = False  # every seed at another load
    jobs: int = 64  # rows of an observation
    cap: int = 16  # most workers, and most servers, of a job
    slot_s: float = 1200.0
    warm_up: int = 40  # updates on the teacher's own steps
    dagger: int = 0  # updates after that, on the student's steps with the teacher's advice
    updates: int = 200  # of reinforcement
    curriculum: int = 0  # updates over which loads and lengths grow
    exploration: bool = True
    replay: bool = True
    critic: bool = True
    seed: int = 0
    judged: tuple[str, ...] = ()  # scenarios of the validation windows, in addition to the one trained on
    windows: int = 4  # validation windows of each scenario
    every: int = 10  # updates between two validations
    patience: int = 10  # training ends after this many validations without a better score; 0: never
    options: Mapping[str, float] = field(default_factory=dict)  # numbers of the algorithm

    @classmethod
    def of(cls, system: str, **given: Any) -> Recipe:
        """Return the recipe of a system, with defaults for whatever is None or not given."""
        if system not in USUAL:
            raise UnknownName("system to train", system, USUAL)
        usual = USUAL[system]
        chosen = usual | {name: value for name, value in given.items() if value is not None}
        if chosen.get("scenario") == LEAGUE:
            chosen["scenario"] = ",".join(scenario_names())
        algo = chosen["algo"]
        if algo not in OPTIONS:
            raise UnknownName("algorithm", algo, OPTIONS)
        if chosen["algo"] != USUAL[system]["algo"] and "updates" not in given:
            chosen["updates"] = 200
        known = WARM_UP[system] | OPTIONS[algo] | (usual.get("options", {}) if algo == usual["algo"] else {})
        chosen["options"] = known | check_options(given.get("options") or {}, known, f"--algo {algo}")
        return cls(system=system, **chosen)

    def __post_init__(self) -> None:
        for name in ("warm_up", "dagger", "updates", "curriculum", "patience", "seed"):
            if getattr(self, name) < 0:
                raise InputError(f"{_option(name)} {getattr(self, name)} is too small", hint="give 0 or more")
        for name in ("jobs", "cap", "slot_s", "windows", "every"):
            if not getattr(self, name) > 0:
                raise InputError(f"{_option(name)} {getattr(self, name)} is too small", hint="give more than 0")
        for name, most in LARGEST.items():
            if getattr(self, name) > most:
                raise InputError(f"{_option(name)} {getattr(self, name)} is too large", hint=f"give {most} or less")
        if self.curriculum and not self.loads:
            raise InputError("a curriculum varies the load, but this training has only one load", hint="add --loads")
        if self.system == "argonaut" and (self.algo != "es" or self.warm_up or self.dagger):
            what = "argonaut begins as the rule of its teacher, and learns by evolution strategies alone"
            raise InputError(what, hint="leave out --algo, --warm-up and --dagger")
        if self.options.get("paired") and self.options["rollouts"] < 2:
            hint = "give --set rollouts=2 or more, or --set paired=0 to use a critic"
            raise InputError("a paired baseline compares rollouts, but there is only one", hint=hint)
        for name in SWITCHES:
            if not getattr(self, name) and self.algo != "dl2":
                hint = "use --algo dl2, or leave it out"
                raise InputError(f"--no-{name} is for DL2's algorithm, not for {self.algo}", hint=hint)

    def with_updates(self, updates: int) -> Recipe:
        return replace(self, updates=updates)

    def as_dict(self) -> dict[str, Any]:
        """Return the recipe as JSON data; field names are part of the files of weights."""
        return asdict(self) | {"judged": list(self.judged), "options": dict(self.options)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Recipe:
        """Return the recipe that `as_dict` described; raise an error for anything else."""
        try:
            usual = WARM_UP[stored["system"]] | OPTIONS[stored["algo"]]  # for options that were added later
            options = usual | dict(stored["options"])
            return cls(**{**stored, "judged": tuple(stored["judged"]), "options": options})
        except (TypeError, KeyError, ValueError) as bad:
            raise InputError(f"this is not a recipe of this version of argosy: {bad}", hint="train again") from None

    def differs(self, other: Recipe) -> str | None:
        """Return the first difference from another recipe; the number of updates and the patience do not count."""
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            if f.name == "options" and mine != theirs:
                key = next(k for k in {**mine, **theirs} if mine.get(k) != theirs.get(k))
                return f"{key} is {theirs.get(key)} there and {mine.get(key)} here"
            if f.name not in ("updates", "patience") and mine != theirs:
                return f"{f.name} is {theirs} there and {mine} here"
        return None

    def command(self, output: str) -> str:
        """Return the command line that makes these weights, even if defaults change later."""
        words = ["argosy", "train", self.system, "--scenario", self.scenario, "--teacher", self.teacher]
        usual = USUAL[self.system]
        for name, other in (("quick", "full"), ("loads", "one-load")):
            if getattr(self, name) != usual.get(name, False):
                words.append(f"--{name if getattr(self, name) else other}")
        words += ["--data", "FOLDER"] if self.measured else []
        words += ["--algo", self.algo]
        for name in ("warm_up", "dagger", "updates", "curriculum", "jobs", "cap", "slot_s", "windows", "every"):
            words += [_option(name), f"{getattr(self, name):g}"]
        words += ["--patience", str(self.patience), "--seed", str(self.seed)]
        words += [f"--no-{name}" for name in SWITCHES if not getattr(self, name)]
        words += ["--judge", ",".join(self.judged)] if self.judged else []
        numbers = Recipe.of(self.system, algo=self.algo).options
        for name, value in self.options.items():
            words += ["--set", f"{name}={value:g}"] if numbers.get(name) != value else []
        return shlex.join([*words, "-o", output])


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
