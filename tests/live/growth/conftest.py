"""A warm process with the growth libraries for all tests of this folder, and workers for each test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "sdk"))
import sdk_crew


@pytest.fixture(scope="session")
def warm_to_grow() -> Iterator[sdk_crew.Warm]:
    process = sdk_crew.Warm(str(Path(__file__).with_name("growth_warm.py")))
    yield process
    process.close()


@pytest.fixture
def growing(warm_to_grow: sdk_crew.Warm, tmp_path: Path) -> Iterator[Callable[..., sdk_crew.Crew]]:
    """`growing(**env)`: a run of the script whose network may grow."""
    torch.set_num_threads(1)
    made: list[sdk_crew.Crew] = []

    def make(**env: str) -> sdk_crew.Crew:
        folder = tmp_path / f"run-{len(made)}"
        folder.mkdir()
        said = {"ARGOSY_GROW": '{"allowed": true, "time_budget": 600.0}'}
        made.append(sdk_crew.Crew(warm_to_grow, folder, Path(__file__).with_name("growth_train.py"), **said | env))
        return made[-1]

    yield make
    for crew in made:
        crew.close()
