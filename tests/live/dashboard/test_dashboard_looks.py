"""Every screen on every size of screen, in light and dark: nothing overflows, everything has a name and can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.running_demo import RunningDemo

pytest.importorskip("playwright.sync_api", reason="no browser: there is no playwright; make setup")
from benchmarks.browser import signed_in
from playwright.sync_api import Browser, Page, expect

from argosy.live.states import State

SCREENS = ("jobs", "job", "timeline", "cluster", "people", "policy", "finished", "studies", "health")
CHECKS = Path(__file__).with_name("accessibility.js").read_text("utf-8")
SIZES = {"phone": (390, 844), "laptop": (1024, 768), "desk": (1920, 1080)}


@pytest.fixture(scope="module")
def filled(whole_demo: RunningDemo) -> Iterator[tuple[RunningDemo, int]]:
    """A cluster with something on every screen."""
    number = whole_demo.submit("ann", name="resnet50", resources={"gpus": "1..8"})
    whole_demo.submit("ann", name="sweep", array=4)
    whole_demo.submit_waiting("bob", name="waits-for-another")
    whole_demo.wait_for(number, State.RUNNING)
    yield whole_demo, number
    whole_demo.cancel_all()


@pytest.fixture(scope="module", params=("light", "dark"))
def page(filled: tuple[RunningDemo, int], browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    demo, _ = filled
    context, page = signed_in(browser, demo.address, demo.tokens["olga"], color_scheme=request.param)
    page.set_default_timeout(30_000)
    yield page
    context.close()


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen(filled: tuple[RunningDemo, int], page: Page, screen: str) -> None:
    demo, number = filled
    page.goto(f"{demo.address}/{f'jobs/{number}' if screen == 'job' else screen}")
    page.wait_for_selector(".link.live")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("main :is(h2, tr, .node, canvas):visible").first).to_be_visible()
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"{screen} is wider than a {size}"
        told = page.evaluate(CHECKS)
        assert not told["found"], f"{screen} on a {size}"
        assert told["texts"] > 10


def test_the_checks_find_what_is_wrong(filled: tuple[RunningDemo, int], page: Page) -> None:
    page.goto(f"{filled[0].address}/policy")
    page.wait_for_selector(".link.live")
    spoil = """() => {
      const text = document.querySelector("h1"), button = document.createElement("button");
      text.style.color = getComputedStyle(document.body).backgroundColor;
      button.id = "main";
      text.after(button);
    }"""
    page.evaluate(spoil)
    found = " ".join(page.evaluate(CHECKS)["found"])
    assert "contrast 1.00: <h1" in found and "no name: <button" in found and "the id main is used twice" in found


def test_the_way_in(browser: Browser, whole_demo: RunningDemo) -> None:
    for theme in ("light", "dark"):
        page = browser.new_page(color_scheme=theme, viewport={"width": 390, "height": 844})
        page.goto(f"{whole_demo.address}/signin")
        page.wait_for_selector("#token")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        told = page.evaluate(CHECKS)
        assert [problem for problem in told["found"] if problem != "0 × nav"] == []
        page.close()


def test_light_and_dark_are_kept(browser: Browser, whole_demo: RunningDemo) -> None:
    context, page = signed_in(browser, whole_demo.address, whole_demo.tokens["ann"], color_scheme="light")
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    page.wait_for_selector(".link.live")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    context.close()
