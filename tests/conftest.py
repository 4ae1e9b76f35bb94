"""Fixtures and settings that all tests share."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("patient")


def pytest_configure() -> None:
    """Restore the handler of SIGINT: tests press Ctrl-C, and a shell makes background programs ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real traces and measurements beside the project; tests that need it are skipped without it."""
    folder = Path(__file__).parents[1] / "../shared/data"
    if not folder.is_dir():
        pytest.skip("no shared data beside the project")
    return folder.resolve()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say plainly if the tests in a browser were left out, and how to get one."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "no browser: " in str(report.longrepr)]
    if skipped:
        how = str(skipped[0].longrepr[2]).partition("no browser: ")[2]
        terminalreporter.write_line(f"The tests in a browser were left out ({len(skipped)}): {how}", yellow=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`pytest -n 2` divides the tests as `shares.py` says, unless another way is asked for (`--dist`)."""
    if config.option.dist != "load":
        return None
    from shares import Shares

    config.option.loadscopereorder = False  # the order of `pytest_collection_modifyitems` is kept
    return Shares(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run fast tests first, so that a mistake shows within seconds, and then the longest.

    Short tests at the end keep all workers busy until the suite is done.
    """

    def slowness(item: pytest.Item) -> tuple[bool, float]:
        mark = item.get_closest_marker("slow")
        return mark is not None, -mark.args[0] if mark and mark.args else 0.0

    items.sort(key=slowness)
