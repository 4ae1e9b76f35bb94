"""Run every policy in every scenario with every seed, in parallel; a run that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from argosy.errors import ArgosyError
from argosy.policies.base import create
from argosy.report.comparison import sees_future
from argosy.scenario import Scenario
from argosy.sim.compare import as_error
from argosy.sim.metrics import Window, metrics
from argosy.sim.pool import run_tasks
from argosy.sim.run import simulate
from argosy.workload.trace import Trace


@dataclass(frozen=True, slots=True)
class Match:
    """One run of the league: a policy in a scenario with a seed."""

    scenario: str
    policy: str
    seed: int

    def __str__(self) -> str:
        return f"{self.policy} in {self.scenario} (seed {self.seed})"


@dataclass(frozen=True, slots=True)
class Score:
    """The outcome of a run: metrics, or an error. Whole results would be too much to send between processes."""

    match: Match
    metrics: dict[str, float] | None = None
    uses: tuple[str, ...] = ()
    sees_future: bool = False
    cpu_s: float = 0.0
    error: ArgosyError | None = None
    details: str = ""  # the traceback, if the error is not caused by the user's input


@dataclass(frozen=True, eq=False)
class Season:
    """The runs of a league; policies are specs, and a scenario may add parameters that they do not give."""

    scenarios: tuple[Scenario, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]

    def check(self) -> None:
        """Raise an error now, rather than in the middle, if a policy cannot be created in a scenario."""
        for scenario in self.scenarios:
            for policy in self.policies:
                create(scenario.spec(policy))

    def matches(self) -> list[Match]:
        """Return all matches; those with the same jobs are adjacent."""
        return [
            Match(scenario.name, policy, seed)
            for scenario in self.scenarios
            for seed in self.seeds
            for policy in self.policies
        ]

    def scenario(self, name: str) -> Scenario:
        return next(scenario for scenario in self.scenarios if scenario.name == name)

    def play(self, match: Match) -> Score:
        """Run one match in this process."""
        try:
            scenario = self.scenario(match.scenario)
            trace, window = _jobs(self, match.scenario, match.seed)
            settings = scenario.settings.with_seed(match.seed)
            result = simulate(trace, scenario.cluster, scenario.spec(match.policy), settings)
            scores = metrics(result, window=window)
            return Score(match, scores, result.uses, sees_future(result), result.cpu_s)
        except Exception as problem:  # a policy may raise anything, which must not stop the other runs
            error, details = as_error(problem)
            return Score(match, error=error, details=details)

    def play_all(
        self, workers: int | None = None, done: Callable[[Score], None] | None = None, ray: str | None = None
    ) -> list[Score]:
        """Run all matches, here or on Ray (its address), and return their scores in the order of `matches`.

        `done` is called with each score as soon as it is known.
        """
        return run_tasks(
            self.play, self.matches(), lambda match, died: Score(match, error=died), workers, done, ray=ray
        )


@lru_cache(maxsize=1)
def _jobs(season: Season, scenario: str, seed: int) -> tuple[Trace, Window | None]:
    found = season.scenario(scenario)
    trace = found.trace(seed)
    return trace, found.window(trace)
