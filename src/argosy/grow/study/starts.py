"""Study how new weights should be initialised: so that the function is preserved, or at random.

All arms branch from one checkpoint per seed and grow the same layers at successive epochs:

    identity, random             deepening: the new layer begins as the identity, or like any new layer
    copy, copy_noise, fresh      widening: new channels copy old ones, exactly or with noise, or are random and are
                                 read with weight 0
    none, none_reset             no growth, without and with the learning rate reset at each decision
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from argosy.errors import UnknownName
from argosy.grow.errors import GrowError
from argosy.grow.study.branches import (
    BaseSetting,
    Progress,
    Row,
    finish,
    follow,
    need_decisions,
    study_arms,
)
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import SCENARIOS

PAIRS = (
    ("identity", "random"),
    ("copy", "fresh"),
    ("copy_noise", "fresh"),
    ("copy_noise", "copy"),
    ("identity", "none"),
    ("identity", "none_reset"),
    ("random", "none"),
    ("random", "none_reset"),
    ("copy", "none"),
    ("copy", "none_reset"),
    ("copy_noise", "none"),
    ("copy_noise", "none_reset"),
    ("fresh", "none"),
    ("fresh", "none_reset"),
)


@dataclass(frozen=True, kw_only=True)
class Setting(BaseSetting):
    """Holds the setting. `chosen` lists deepenings, one per decision; each arm replaces their `init`."""

    chosen: tuple[Surgery | None, ...]
    scenario: str = "early"
    widen: tuple[str | None, ...] = ("0", "4", None)  # the site of each decision
    widen_by: float = 1.5
    noise: float = 0.01  # added to copies, relative to the scale of the weights

    def check(self) -> None:
        """Raise an error if the setting is wrong, before anything is trained."""
        if self.scenario not in SCENARIOS:
            raise UnknownName("scenario", self.scenario, SCENARIOS)
        need_decisions(self.chosen)
        if not any(self.widen):
            raise GrowError("no site is given to widen", hint='give for instance widen=("0", "4", None)')
        if not self.noise > 0:
            raise GrowError(f"noise = {self.noise:g} makes no difference", hint="give a number above 0")


@dataclass
class _Seed:
    """Trains all arms of one seed, from which new weights are drawn as well."""

    setting: Setting

    def __call__(self, number: int) -> Row:
        setting = self.setting
        trunk, seed = setting.trunk(number, SCENARIOS[setting.scenario]), setting.seed_of(number)
        nothing = (None,) * max(len(setting.chosen), len(setting.widen))
        arms = {
            "none": finish(trunk.fork()),
            "none_reset": finish(follow(trunk, nothing, reset=True)),
        }
        for init in ("identity", "random"):
            deepen = [surgery and replace(surgery, init=init, noise=0.0, seed=seed) for surgery in setting.chosen]
            arms[init] = finish(follow(trunk, deepen))
        ways = {"copy": ("copy", 0.0), "copy_noise": ("copy", setting.noise), "fresh": ("fresh", 0.0)}
        for name, (init, noise) in ways.items():
            widen = [
                None if site is None else Surgery("widen", site, setting.widen_by, init, noise, seed)
                for site in setting.widen
            ]
            arms[name] = finish(follow(trunk, widen))
        return {"begin": trunk.clock.now(), "arms": arms}


def study(setting: Setting, seeds: int = 10, workers: int | None = 2, progress: Progress | None = None) -> Row:
    """Train all arms with this many fresh seeds. `progress` is called with (runs done, runs in all)."""
    return study_arms(setting, _Seed, PAIRS, ("begin",), seeds, workers, progress)
