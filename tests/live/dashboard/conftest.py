from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benchmarks.browser import browsing, missing, signed_in
from benchmarks.running_demo import RunningDemo, running

from argosy.dashboard.demo import Demo
from argosy.live.daemon import forecasts

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))  # for `serving`


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module; each opens windows of its own.

    Not for the session: as long as Playwright runs, its event loop is this thread's, and other tests need their own.
    """
    if problem := missing():
        pytest.skip(f"no browser: {problem}")
    from playwright.sync_api import expect

    expect.set_options(timeout=30_000)  # a busy machine is no fault
    with browsing() as found:
        yield found


@pytest.fixture(scope="session")
def whole_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    folder = tmp_path_factory.mktemp("demo")
    studies = studies_folder(folder / "studies")
    demo = Demo(folder / "home", nodes=4, ended=60, speed=20, first=0, studies=studies, arrivals=False)
    with pytest.MonkeyPatch.context() as patch, running(demo) as found:
        patch.setattr(forecasts, "CPU_SHARE", 1.0)  # estimates are made again at once
        yield found


@pytest.fixture
def demo(whole_demo: RunningDemo) -> Iterator[RunningDemo]:
    """A daemon with 32 GPUs that no job uses; what a test submits is cancelled at its end."""
    yield whole_demo
    whole_demo.cancel_all()


@pytest.fixture
def open_as(browser: Browser, demo: RunningDemo) -> Iterator[Callable[..., Page]]:
    """Open the dashboard as somebody, in a window of its own, in which no script may fail."""
    opened = []
    problems: list[str] = []

    def is_ours(line: ConsoleMessage) -> bool:
        """Return whether our pages have broken their own policy; a report may try what it likes."""
        return "Content Security" in line.text and "/studies/view/" not in line.location["url"]

    def open_as(who: str, path: str = "/jobs", **options: object) -> Page:
        context, page = signed_in(browser, demo.address, demo.tokens[who], **options)
        opened.append(context)
        page.set_default_timeout(60_000)  # a busy machine is no fault
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if is_ours(line) else None)
        if path != "/jobs":
            page.goto(demo.address + path)
            page.wait_for_selector(".link.live")
        return page

    yield open_as
    for context in opened:
        context.close()
    assert not problems


def studies_folder(folder: Path) -> Path:
    """Make a folder of studies with a report and a training log."""
    folder.mkdir()
    reaches = "fetch('/v1/session').then(() => { document.title = 'sent' }, () => { document.title = 'refused' })"
    (folder / "report.html").write_text(f"<h1>A report</h1><script>{reaches}</script>")
    lines = [f'{{"step": {i}, "loss": {2 / (i + 1):.3f}}}\n' for i in range(40)]
    (folder / "train.jsonl").write_text("".join(lines))
    return folder
