"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real traces and measurements beside the project; tests that need them are extra."""
    folder = Path(__file__).parents[1] / "../shared/data"
    if not folder.is_dir():
        pytest.skip("no shared data beside the project")
    return folder.resolve()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first: a mistake shows within seconds, not after the long studies."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
