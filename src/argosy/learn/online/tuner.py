"""Small guarded updates of argonaut from what happened: tune, judge in the shadow, adopt, and take back.

Every period the host says what happened so far. A candidate, which begins as the present weights, makes a few
generations of evolution strategies on the earlier jobs of the log. The later jobs judge it: it replaces the present
weights if it is better than they are and not worse than the guard. Otherwise it goes on learning in the shadow in the
next period. Weights that were adopted are judged again by the jobs that came after; if they are worse than the weights
before them, those return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.learn.online.history import LEAST_JOBS, History, split
from argosy.learn.online.shadow import Score, judge
from argosy.learn.training.evolution_stage import EvolutionStage
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.stop import Stop
from argosy.learn.training.student import Arrays
from argosy.learn.training.student_choice import BidStudent
from argosy.learn.training.workers import Workers
from argosy.policies.base import create
from argosy.policies.learned.argonaut import Argonaut
from argosy.policies.learned.bid_network import BidNetwork
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

PLAIN = {"decay": 0.0, "average": 0.0}  # a few generations: the last weights count
SMALL: dict[str, float] = {"pairs": 6, "arrivals": 3, "sigma": 0.1, "lr": 0.04, "tail": 0.1} | PLAIN
CAP = 16
PROBATION_JOBS = 15  # that must have come after an adoption before it is judged again
TOLERATED = 1.01  # worse by less than this factor is not told apart from as good
LOST = 1.1  # a candidate that is worse than the present weights by this factor begins again
PRESENT, CANDIDATE, GUARD, BEFORE = "present", "candidate", "guard", "before"
ADOPTED, KEPT, ROLLED_BACK, INTERRUPTED = "adopted", "kept", "rolled back", "interrupted"


@dataclass(frozen=True)
class Step:
    """What a period brought: the outcome, why, and the scores in the shadow that it rests on."""

    outcome: str
    reason: str
    scores: Mapping[str, Score] = field(default_factory=dict)


class OnlineTuner:
    """Keeps the present weights, those before them, and a candidate that learns in the shadow."""

    def __init__(
        self,
        weights: Mapping[str, NDArray[np.float32]],
        cluster: Cluster,
        settings: Settings | None = None,
        *,
        guard: str = "tiresias-las",
        generations: int = 4,
        remembered_s: float = 3 * 86400.0,
        options: Mapping[str, float] | None = None,
        seed: int = 0,
        workers: Workers | None = None,
        stop: Stop | None = None,
    ) -> None:
        """Begin with `weights`; a period makes `generations`, from jobs submitted in the last `remembered_s`."""
        if generations < 1:
            raise InputError(f"the number of generations must be at least 1, is {generations}")
        BidNetwork(weights)  # raises an error if they are for another network
        create(guard)  # or if there is no such policy
        self.present: Arrays = {name: np.array(array, np.float32) for name, array in weights.items()}
        self.candidate: Arrays = self.present
        self.before: Arrays | None = None  # what returns if the present weights turn out worse
        self.steps: list[Step] = []
        self._adopted_s = 0.0
        self._cluster, self._guard, self._seed = cluster, guard, seed
        self._settings = settings or Settings(oversized="skip")
        self._generations, self._remembered_s = generations, remembered_s
        self._options = SMALL | dict(options or {})
        self._workers, self._stop = workers or Workers(1), stop or Stop()

    def step(self, happened: Trace, now_s: float) -> Step:
        """Learn from the jobs that ended up to now; whatever is raised, the present weights are the last good ones."""
        done = self._check_adoption(happened) or self._learn(happened, now_s)
        self.steps.append(done)
        return done

    def _check_adoption(self, happened: Trace) -> Step | None:
        """Judge adopted weights by the jobs that came after; return None if they stay or it is too early to say."""
        if self.before is None:
            return None
        since = happened.frame.filter(pl.col("submit_s") >= self._adopted_s)
        if since.height < PROBATION_JOBS:
            return None
        window = _from_zero(since, happened.name)
        scores = {PRESENT: self._score(self.present, window), BEFORE: self._score(self.before, window)}
        if scores[PRESENT].mean_s <= TOLERATED * scores[BEFORE].mean_s:
            self.before = None
            return None
        self.present, self.candidate, self.before = self.before, self.before, None
        reason = f"on the {since.height} jobs since then {_against(scores[PRESENT], scores[BEFORE])} the weights before"
        return Step(ROLLED_BACK, reason, scores)

    def _learn(self, happened: Trace, now_s: float) -> Step:
        recent = happened.frame.filter(pl.col("submit_s") >= now_s - self._remembered_s)
        if recent.height < LEAST_JOBS:
            return Step(KEPT, f"{recent.height} jobs are too few to learn from, {LEAST_JOBS} are needed")
        earlier, later = split(Trace(recent, happened.name))
        tuned = self._evolve(History(earlier, self._cluster, self._settings))
        if tuned is None:
            return Step(INTERRUPTED, "interrupted; the present weights stay")
        scores = {
            PRESENT: self._score(self.present, later),
            CANDIDATE: self._score(tuned, later),
            GUARD: judge(create(self._guard), later, self._cluster, self._settings),
        }
        self.candidate = tuned
        found, now = scores[CANDIDATE], scores[PRESENT]
        if found.mean_s >= now.mean_s:
            if found.mean_s > LOST * now.mean_s:
                self.candidate = self.present
            return Step(KEPT, f"the candidate's mean is {_against(found, now)} the present weights", scores)
        if found.mean_s > scores[GUARD].mean_s:
            return Step(KEPT, f"the candidate's mean is {_against(found, scores[GUARD])} the guard", scores)
        if self.before is None:  # otherwise those before are still on call, and those in between are forgotten
            self.before = self.present
        self.present, self._adopted_s = tuned, now_s
        return Step(ADOPTED, f"the candidate's mean is {_against(found, now)} the present weights", scores)

    def _evolve(self, history: History) -> Arrays | None:
        """Return the candidate after a few generations; None if the user interrupted it."""
        recipe = Recipe.of(
            "argonaut",
            scenario=history.trace.name,
            updates=self._generations,
            seed=self._seed + len(self.steps),  # other changes are tried in every period
            options=self._options,
        )
        student = BidStudent(recipe.seed, CAP)
        actor = student.actor(torch.Generator())
        actor.take(self.candidate)
        stage = EvolutionStage(recipe, student, history, actor, self._workers)
        while stage.done < stage.total:
            if self._stop.interrupted:
                return None
            stage.update()
        return stage.arrays()

    def _score(self, arrays: Arrays, jobs: Trace) -> Score:
        return judge(Argonaut(BidNetwork(arrays)), jobs, self._cluster, self._settings)

    def about(self) -> dict[str, Any]:
        """Return what a file of the present weights says about them."""
        return {
            "network": BidNetwork.kind,
            "system": "argonaut",
            "guard": self._guard,
            "seed": self._seed,
            "options": self._options,
            "generations": self._generations,
            "steps": [[step.outcome, step.reason] for step in self.steps],
        }


def _from_zero(frame: pl.DataFrame, name: str) -> Trace:
    begin = pl.col("submit_s").min()
    return Trace.of(frame.with_columns(pl.col("submit_s") - begin, pl.col("deadline_s") - begin), name)


def _against(found: Score, other: Score) -> str:
    percent = 100.0 * (found.mean_s / other.mean_s - 1.0)
    return f"{abs(percent):.1f} % {'above' if percent > 0 else 'below'} that of"
