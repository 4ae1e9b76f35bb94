"""The dashboard without a mouse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from benchmarks.running_demo import RunningDemo

pytest.importorskip("playwright.sync_api", reason="no browser: there is no playwright; make setup")
from playwright.sync_api import Browser, Page, expect

from argosy.live.states import State

FOCUSED = """() => {
  const at = document.activeElement, style = getComputedStyle(at);
  return at.matches(":focus-visible") && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
}"""


def test_from_signing_in_to_cancelling_a_job(browser: Browser, demo: RunningDemo) -> None:
    others = [demo.submit("ann", name=f"other-{i}") for i in range(2)]
    number = demo.submit("ann", name="by-hand")
    page = browser.new_page()
    page.goto(f"{demo.address}/signin")
    expect(page.get_by_label("Your token")).to_be_focused()
    page.keyboard.type(demo.tokens["ann"])
    page.keyboard.press("Enter")
    page.wait_for_selector(".link.live")
    page.keyboard.press("/")
    page.keyboard.type("by-hand")
    expect(page.locator(f"tr[data-job='{others[0]}']")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.evaluate(FOCUSED)
    assert page.evaluate("document.activeElement.dataset.job") == str(number)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{number}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("by-hand")
    page.keyboard.press("Escape")
    page.wait_for_url("**/jobs*")
    expect(page.locator(f"tr[data-job='{number}']")).to_be_visible()
    page.keyboard.press("j")
    page.wait_for_function(f"document.activeElement.dataset.job === '{number}'")
    page.keyboard.press("x")
    expect(page.get_by_role("toolbar")).to_contain_text("1 job marked")
    for _ in range(40):  # back from the row to the button
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.dataset.action") == "cancel":
            break
    assert page.evaluate(FOCUSED)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Enter")  # the button that does it has the focus
    expect(page.locator(".toast")).to_contain_text("was cancelled")
    demo.wait_for(page_job(page), State.CANCELLED)
    page.close()


def page_job(page: Page) -> int:
    return int(page.locator(".toast").inner_text().split()[1])


def test_every_screen_has_a_key(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    page = open_as("ann")
    titles = {"t": "Timeline", "c": "Cluster", "p": "People and queues", "l": "Policy lab", "f": "Finished"}
    titles |= {"s": "Studies", "h": "Health", "j": "Jobs"}
    for key, title in titles.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    for title in ("Timeline", "Health", "search"):
        expect(dialog).to_contain_text(title)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_the_content_can_be_reached_at_once(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    page = open_as("ann", "/people")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
