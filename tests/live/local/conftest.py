"""Local backends for the tests; their warm interpreters are shared by all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from strangers import public_folder
from yard import Yard

from argosy.live.backends.local.zygote_pool import ZygotePool


@pytest.fixture(scope="session")
def warm_interpreters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("zygotes")
    yield folder
    ZygotePool(folder).end()


@pytest.fixture
def make_yard(tmp_path: Path, warm_interpreters: Path) -> Iterator[Callable[..., Yard]]:
    yards: list[Yard] = []

    def make(home: Path | None = None, **settings: Any) -> Yard:
        yards.append(Yard(home or tmp_path / f"home{len(yards)}", warm_interpreters, **settings))
        return yards[-1]

    yield make
    for yard in yards:
        if yard.runs:
            yard.clear()


@pytest.fixture
def yard(make_yard: Callable[..., Yard]) -> Yard:
    return make_yard()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all users can reach."""
    with public_folder() as found:
        yield found


@pytest.fixture
def shared(make_yard: Callable[..., Yard], place: Path) -> Iterator[Yard]:
    """A backend of root's that runs jobs of other users."""
    yard = make_yard(place / "home")
    yield yard
    yard.clear()
