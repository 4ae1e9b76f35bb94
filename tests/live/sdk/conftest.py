"""A warm process for all tests of this folder, and workers for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sdk_crew
import torch


@pytest.fixture(scope="session")
def warm() -> Iterator[sdk_crew.Warm]:
    process = sdk_crew.Warm()
    yield process
    process.close()


@pytest.fixture
def crew_of(warm: sdk_crew.Warm, tmp_path: Path) -> Iterator[Callable[..., sdk_crew.Crew]]:
    """`crew_of(script, **env)`: a run of this script."""
    torch.set_num_threads(1)
    made: list[sdk_crew.Crew] = []

    def make(script: Path, **env: str) -> sdk_crew.Crew:
        folder = tmp_path / f"run-{len(made)}"
        folder.mkdir()
        made.append(sdk_crew.Crew(warm, folder, script, **env))
        return made[-1]

    yield make
    for crew in made:
        crew.close()
