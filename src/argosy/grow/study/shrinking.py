"""Study what remains of growth when the GPUs are taken back: a small network taught by the grown one, or never grown.

The small network is trained, grown when GPUs come, and shrunk to its old size when they are taken back. All arms end
at the same time; while the network is grown, spare GPUs pay for the extra work.

    logits            taught by the grown network's answers, from the weights it had before the growth
    logits_weights    taught by its answers and its weights
    small             never grown: one schedule of the learning rate
    small_reset       never grown; the learning rate is reset whenever the others grow
    small_restart     as small_reset; when the GPUs are taken back it trains like the taught ones, but without a
                      teacher: the same learning rate schedule, a new optimizer, and the choice on validation data
    own               taught in the job's own way: its optimizer, its data in their order, its learning rate, which is
                      reset; and only if the grown network is better than what it would teach
    grown             the grown network at the moment when the GPUs are taken back, for information
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

from torch import nn

from argosy.grow.errors import GrowError
from argosy.grow.study.branches import (
    BaseSetting,
    Progress,
    Row,
    finish,
    follow,
    need_decisions,
    score,
    study_arms,
    train_until,
)
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.distill import Distillation, shrink
from argosy.grow.training.run import Run
from argosy.grow.training.shrinking import shrunk
from argosy.slack import RELATIVE_SLACK

TAUGHT = ("logits", "logits_weights", "own")
SMALL = ("small", "small_reset", "small_restart")
PAIRS = (*((taught, small) for taught in TAUGHT for small in SMALL), (TAUGHT[1], TAUGHT[0]), (TAUGHT[2], TAUGHT[1]))


@dataclass(frozen=True, kw_only=True)
class Setting(BaseSetting):
    """Holds the setting. `chosen` lists deepenings, one per decision. Times are shares of the budget."""

    chosen: tuple[Surgery | None, ...]
    grow_at: float = 0.4
    release_at: float = 0.75  # when the GPUs are taken back
    distillation: Distillation = field(default_factory=Distillation)

    def check(self) -> None:
        """Raise an error if the setting is wrong, before anything is trained."""
        need_decisions(self.chosen)
        if not 0 < self.grow_at < self.release_at < 1:
            raise GrowError(
                f"GPUs cannot come at {self.grow_at:g} and go at {self.release_at:g} of the budget",
                hint="give shares between 0 and 1, the first one smaller",
            )
        if not (self.distillation.weight_weight > 0 and self.distillation.logit_weight > 0):
            raise GrowError(
                "logits and weights are compared, but one of them has the weight 0",
                hint="give logit_weight and weight_weight above 0",
            )


@dataclass
class _Seed:
    """Trains all arms of one seed."""

    setting: Setting

    def __call__(self, number: int) -> Row:
        setting = self.setting
        trunk = setting.trunk(number, setting.grow_at)
        nothing = (None,) * len(setting.chosen)
        reset = follow(trunk, nothing, reset=True)
        grown = self._released(follow(trunk, setting.chosen))
        how, small = setting.distillation, trunk.model
        alone = self._released(reset.fork())
        arms = {
            "small": finish(trunk.fork()),
            "small_reset": finish(reset),
            "small_restart": self._taught(
                alone, alone.model, number, replace(how, logit_weight=0.0, weight_weight=0.0)
            ),
            "logits": self._taught(grown, small, number, replace(how, weight_weight=0.0)),
            "logits_weights": self._taught(grown, small, number, how),
            "own": self._in_its_own_way(grown, small, number),
            "grown": score(grown),
        }
        return {"grow": trunk.clock.now(), "release": grown.clock.now(), "arms": arms}

    def _released(self, run: Run) -> Run:
        """Train until the GPUs are taken back."""
        time = self.setting.release_at * self.setting.budget
        if run.clock.now() > time * (1 + RELATIVE_SLACK):
            raise GrowError(
                f"the GPUs go at {time:g}, but the last growth trains until {run.clock.now():g}",
                hint="grow earlier, release later, decide less often, or give a longer budget",
            )
        train_until(run, time)
        return run

    def _in_its_own_way(self, run: Run, small: nn.Module, number: int) -> dict[str, float]:
        """Go back to the small network as a trainer does without settings of distillation."""
        arm = run.fork()
        _, problem = shrunk(arm, small, 1.0, None, loss=None, seed=self.setting.seed_of(number))
        if problem:
            raise GrowError(f"the network cannot be shrunk: {problem}")
        return finish(arm)

    def _taught(self, run: Run, small: nn.Module, number: int, how: Distillation) -> dict[str, float]:
        """Go back to the small network, and distil into it until the end of the budget."""
        arm, teacher = run.fork(), run.model
        arm.replace(small)  # from now on the clock counts the small network's epochs
        student = shrink(
            teacher,
            small,
            arm.data,
            clock=arm.clock,
            seconds=arm.time_left,
            seed=self.setting.seed_of(number),
            **asdict(how),
        )
        arm.replace(student)
        return score(arm)


def study(setting: Setting, seeds: int = 5, workers: int | None = 2, progress: Progress | None = None) -> Row:
    """Train all arms with this many fresh seeds. `progress` is called with (runs done, runs in all)."""
    return study_arms(setting, _Seed, PAIRS, ("grow", "release"), seeds, workers, progress)
