"""Where a job stands in the queue: on the board, in the table, on the job's page, and on a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from benchmarks.running_demo import RunningDemo

from argosy.live.api.board import MOST_PLACES, Board
from argosy.live.daemon.service import Service
from argosy.live.planner.forecast import Estimate, Forecast, Quantiles

pytest.importorskip("playwright.sync_api", reason="no browser: there is no playwright; make setup")
from playwright.sync_api import Page, expect

PHONE = {"width": 390, "height": 844}
CLAMP = "span => [getComputedStyle(span).webkitLineClamp, span.getBoundingClientRect().height]"


def fill(demo: RunningDemo) -> None:
    """Let jobs hold all 32 GPUs."""
    for i in range(4):
        demo.submit("bob", name=f"fills-{i}", resources={"gpus": "8"}, priority=90)


def test_the_order_of_the_places(demo: RunningDemo) -> None:
    """First by expected start; jobs without one come after, by priority and number; some jobs have no place."""
    fill(demo)
    soon, late, low, high = (
        demo.submit(owner, name="waits", resources={"gpus": 8}, priority=priority)
        for owner, priority in (("ann", 10), ("bob", 90), ("ann", 20), ("ann", 60))
    )
    held = demo.submit("ann", name="held")
    dependent = demo.submit("ann", name="dependent", after=[late])

    def ask(service: Service) -> tuple[dict[int, int], dict[int, int]]:
        service.control.hold([held])
        forecasts, end = service.forecasts, Quantiles(9e3, 9e3, 9e3)
        assert forecasts is not None
        kept = forecasts.latest
        estimates = {
            late: Estimate(Quantiles(100, 200, 300), end),
            soon: Estimate(Quantiles(150, 160, 170), end),
        }
        board = Board(service)
        try:
            forecasts.latest = Forecast(0.0, estimates, 100, 0.1, "drf")
            board.refresh()
            return dict(board.places(None)), dict(board.places("ann"))
        finally:
            forecasts.latest = kept
            board.rest()

    everybody, anns = demo.do(ask)
    assert {everybody[soon]: soon, everybody[late]: late} == {1: soon, 2: late}
    assert everybody[high] < everybody[low] and not {held, dependent} & everybody.keys()
    assert anns == {number: everybody[number] for number in (soon, high, low)}


def test_no_reader_is_told_of_more_than_a_hundred(demo: RunningDemo) -> None:
    fill(demo)
    first = demo.submit("ann", name="many", resources={"gpus": 8}, array=MOST_PLACES + 20)
    last = demo.submit("bob", name="last", resources={"gpus": 8}, priority=0)

    def ask(service: Service) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        board = Board(service)
        board.refresh()
        try:
            return board.places(None), board.places("bob")
        finally:
            board.rest()

    everybody, bobs = demo.do(ask)
    assert len(everybody) == MOST_PLACES and first in dict(everybody)
    assert bobs[-1][0] == last and (bobs[-1][1] > MOST_PLACES or bobs[-1][1] == 1)


def test_places_are_shown_and_sorted(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    fill(demo)
    waits = [demo.submit("ann", name=f"queues-{i}", resources={"gpus": 8}) for i in range(3)]
    apart = demo.submit_waiting("ann", name="queues-not")
    page = open_as("ann", "/jobs?q=queues&sort=place", viewport={"width": 1400, "height": 900})
    cells = page.locator("tr.job:not([hidden]) .c-place")
    expect(cells).to_have_text(["#1", "#2", "#3", ""])
    assert page.locator("tr.job:not([hidden])").last.get_attribute("data-job") == str(apart)
    page.get_by_role("button", name="Place").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Place")
    expect(cells).to_have_text(["", "#3", "#2", "#1"])
    page.locator(f"tr[data-job='{waits[0]}']").click()
    place = page.locator(".figures > div", has=page.get_by_text("Place", exact=True)).locator("dd")
    expect(place).to_have_text("#1")
    demo.do(lambda service: service.cancel([waits[0]]))
    expect(place).to_have_count(0)  # it has left the queue
    page.go_back()
    expect(page.locator(f"tr[data-job='{waits[1]}'] .c-place")).to_have_text("#1")


def test_a_phone_shows_progress_place_and_what_is_expected(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    runs = demo.submit("ann", name="runs", run="fake seconds=4000 figures=true")
    waits = [demo.submit("ann", name="waits", resources={"gpus": 8}) for _ in range(4)][-1]
    page = open_as("ann", viewport=PHONE)
    row = page.locator(f"tr[data-job='{runs}']")
    expect(row.locator(".c-progress .meter")).to_be_visible()
    expect(row.locator(".c-eta")).to_contain_text("done in")
    expect(row.locator(".c-eta")).to_be_in_viewport()
    expect(page.locator(f"tr[data-job='{waits}'] .c-place")).to_have_text("#1")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_reason_has_two_lines(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    first = demo.submit("ann", name="first", resources={"gpus": 8})
    after = demo.submit("ann", name="second", after=[first, demo.submit("ann", name="other"), demo.submit("ann")])
    page = open_as("ann", viewport={"width": 1280, "height": 800})
    why = page.locator(f"tr[data-job='{after}'] .c-why span")
    expect(why).to_contain_text(f"waits for job {first}")
    lines, high = why.evaluate(CLAMP)
    assert lines == "2" and 20 < high < 40
    page.set_viewport_size({"width": 1500, "height": 800})
    assert why.evaluate(CLAMP)[0] == "none"
