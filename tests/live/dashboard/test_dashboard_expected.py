"""What is expected of jobs: on the board without needless changes, and on the pages as ranges."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from benchmarks.running_demo import RunningDemo

from argosy.live.api.board import CLOSE_S, differs, in_unix_s
from argosy.live.planner.forecast import Estimate, Quantiles

pytest.importorskip("playwright.sync_api", reason="no browser: there is no playwright; make setup")
from playwright.sync_api import Page, expect


def test_only_what_people_would_notice_changes_a_line() -> None:
    now = 1000.0
    eta = in_unix_s(Estimate(Quantiles(60, 120, 240), Quantiles(600, 900, None)), now)
    assert eta == (1060, 1120, 1240, 1600, 1900, None)
    near = tuple(None if time is None else time + int(CLOSE_S) for time in eta)
    assert not differs(eta, eta, now) and not differs(eta, near, now)
    assert differs(eta, (1060, 1120, 1240, 1600, 2020, None), now)  # the end is a seventh later
    assert differs(eta, (1060, 1120, 1240, 1600, 1900, 2500), now)  # its latest end is known
    assert differs(None, eta, now) and differs(eta, None, now) and not differs(None, None, now)
    assert in_unix_s(Estimate(None, Quantiles(1, 2, 3)), 0.0) == (None, None, None, 1, 2, 3)


@pytest.mark.slow(10)
def test_expected_starts_and_ends_are_shown(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    for i in range(4):
        demo.submit("bob", name=f"long-{i}", resources={"gpus": 8}, run="fake seconds=4000 figures=true")
    waits = demo.submit("ann", name="waits-for-room", resources={"gpus": 8}, run="fake seconds=600 figures=true")
    page = open_as("ann", "/jobs?q=waits-for-room", viewport={"width": 1400, "height": 900})
    row = page.locator(f"tr[data-job='{waits}']")
    expect(row).to_contain_text("waiting")
    expect(row.locator(".c-eta")).to_contain_text("starts in", timeout=240_000)
    row.click()
    expect(page.locator(".sentence")).to_contain_text("It is expected to start in")
    page.goto(f"{demo.address}/timeline?by=job")
    page.wait_for_selector(".link.live")
    expect(page.locator(".note")).to_contain_text("Waiting jobs come first")


@pytest.mark.slow(10)
def test_a_policy_is_compared_and_promoted(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    user = open_as("bob", "/policy")
    expect(user.get_by_role("heading", name="The policy that runs")).to_be_visible()
    expect(user.get_by_role("button", name="Compare")).to_have_count(0)
    page = open_as("olga", "/policy")
    page.get_by_label("Policy to compare").fill("no-such-policy")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("no-such-policy")
    page.get_by_label("Policy to compare").fill("srsf")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("main")).to_contain_text("srsf beside drf")
    page.get_by_role("button", name="Promote srsf").click()
    page.get_by_role("dialog").get_by_label("fall back if jobs stay longer by").fill("25")
    page.get_by_role("dialog").get_by_role("button", name="Promote it").click()
    expect(page.locator("main")).to_contain_text("srsf took over from drf", timeout=240_000)
    expect(page.locator("main")).to_contain_text("longer than expected by more than 25%, drf decides again")
    expect(page.locator(".bar")).to_contain_text("policy srsf", timeout=240_000)
    with demo.api("olga") as api:
        body = {"policy": "drf", "guard": None, "for_s": 60}
        assert api.post("/v1/promote", json=body).status_code == 200
        assert api.put("/v1/shadow", json={"policy": None}).status_code == 200
    expect(page.locator(".bar")).to_contain_text("policy drf", timeout=240_000)
