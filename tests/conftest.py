"""What all tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("patient")


def pytest_configure() -> None:
    """Tests press Ctrl-C, also when they run in the background, where a shell lets programs ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
