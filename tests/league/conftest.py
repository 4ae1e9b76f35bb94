"""A season small enough for every test: two scenarios, three policies, two seeds, one run that fails."""

from __future__ import annotations

import pytest

from argosy.errors import ArgosyError
from argosy.league.run import Score, Season
from argosy.league.table import League
from argosy.scenario import read_scenario

TINY = """
title: {title}
description: for tests
jobs: {{like: philly, count: 40, quick: 20, load: {load}, seed: {seed}}}
changes: {{shortest: 1m, longest: 2h, largest_gpus: 4}}
cluster: {{nodes: [{{count: 2, gpu: v100, gpus: 4}}]}}
parameters: {{las: {{quantum_s: 120}}}}
"""


@pytest.fixture(scope="session")
def season(tmp_path_factory: pytest.TempPathFactory) -> Season:
    folder = tmp_path_factory.mktemp("scenarios")
    for name, load, seed in (("calm", 0.3, 1), ("busy", 1.5, 2)):
        (folder / f"{name}.yaml").write_text(TINY.format(title=f"a {name} cluster", load=load, seed=seed))
    scenarios = tuple(read_scenario(str(folder / f"{name}.yaml")) for name in ("calm", "busy"))
    return Season(scenarios, ("fifo", "las", "srtf"), (0, 1))


@pytest.fixture(scope="session")
def scores(season: Season) -> list[Score]:
    return season.play_all(workers=1)


@pytest.fixture(scope="session")
def league(season: Season, scores: list[Score]) -> League:
    return League(season, tuple(scores), command="argosy league -s calm.yaml,busy.yaml")


@pytest.fixture(scope="session")
def broken(season: Season, scores: list[Score]) -> League:
    """las failed in `busy` with seed 1."""

    def hurt(score: Score) -> Score:
        if (score.match.scenario, score.match.policy, score.match.seed) != ("busy", "las", 1):
            return score
        return Score(score.match, error=ArgosyError("rank by <zero> | bad"))

    return League(season, tuple(hurt(score) for score in scores))
