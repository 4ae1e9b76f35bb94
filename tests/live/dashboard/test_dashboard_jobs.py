"""The table of jobs in a real browser: what it shows, how it is filtered, and what may be done."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from benchmarks.running_demo import RunningDemo

playwright = pytest.importorskip("playwright.sync_api", reason="no browser: there is no playwright; make setup")
from playwright.sync_api import Browser, Page, expect  # noqa: E402

from argosy.live.states import State  # noqa: E402


def row(page: Page, number: int | str):  # type: ignore[no-untyped-def]
    return page.locator(f"tr[data-job='{number}']")


def test_a_link_signs_in_once_and_leaves_no_trace(browser: Browser, demo: RunningDemo) -> None:
    with demo.api("ann") as api:
        code = api.post("/v1/session/links").json()["code"]
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{demo.address}/signin#{code}")
    page.wait_for_selector(".link.live")
    assert page.url == f"{demo.address}/jobs"
    assert page.evaluate("history.length") <= 2  # the empty page, and this one
    assert not any(code in address for address in asked)
    assert code not in page.content()
    page.go_back()
    assert code not in page.url
    again = context.new_page()
    again.goto(f"{demo.address}/signin#{code}")
    expect(again.get_by_role("alert")).to_contain_text("this link was used before")
    assert code not in again.url
    context.close()


def test_a_wrong_token_is_refused_in_words(browser: Browser, demo: RunningDemo) -> None:
    page = browser.new_page()
    page.goto(f"{demo.address}/jobs/7")
    page.wait_for_url("**/signin")
    page.get_by_label("Your token").fill("argosy-wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("no such token")
    page.get_by_label("Your token").fill(demo.tokens["olga"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/7")  # where it was meant to go
    page.close()


def test_filters_live_in_the_address(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    wanted = demo.submit_waiting("ann", name="filter-me")
    other = demo.submit("bob", name="other-one")
    page = open_as("olga", "/jobs?state=waiting,running")
    expect(row(page, wanted)).to_contain_text("waiting")
    expect(row(page, other)).to_contain_text("running")
    page.get_by_role("searchbox").fill("filter-me")
    expect(row(page, other)).to_have_count(0)
    assert "q=filter-me" in page.url and "state=waiting,running" in page.url
    page.reload()
    expect(row(page, wanted)).to_be_visible()
    expect(row(page, other)).to_have_count(0)
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("Owner").select_option("bob")
    expect(row(page, wanted)).to_have_count(0)
    expect(row(page, other)).to_be_visible()
    assert page.url.endswith("/jobs?owner=bob")
    page.get_by_role("searchbox").fill("nothing like this")
    expect(page.get_by_role("heading", name="No job fits these filters")).to_be_visible()


def test_a_reason_is_given_for_what_waits(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    first = demo.submit("ann", name="first", resources={"gpus": 8})
    after = demo.submit("ann", name="second", after=[first])
    page = open_as("ann")
    expect(row(page, after)).to_contain_text(f"waits for job {first} to succeed")
    row(page, after).click()
    expect(page.locator(".sentence")).to_contain_text(f"waits for job {first} to succeed")


def test_sort_by_a_column(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    numbers = [demo.submit("ann", name=name, priority=p) for name, p in (("bb", 20), ("aa", 90), ("cc", 50))]
    page = open_as("ann", "/jobs?state=running,waiting,starting", viewport={"width": 1500, "height": 800})
    expect(row(page, numbers[0])).to_be_visible()

    def order() -> list[int]:
        found = page.eval_on_selector_all("tr.job:not([hidden])", "rows => rows.map((row) => Number(row.dataset.job))")
        return [number for number in found if number in numbers]

    assert order() == numbers[::-1]
    page.get_by_role("button", name="Name").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Name")
    assert order() == [numbers[1], numbers[0], numbers[2]]
    page.get_by_role("button", name="Prio").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Prio")
    assert order() == [numbers[1], numbers[2], numbers[0]] and "sort=-priority" in page.url


def test_cancel_a_job_and_submit_it_again(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    number = demo.submit("ann", name="to-cancel")
    page = open_as("ann")
    expect(row(page, number)).to_contain_text("running")
    row(page, number).get_by_role("checkbox").check()
    page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("to-cancel")
    dialog.get_by_role("button", name="Keep as it is").click()
    expect(dialog).to_have_count(0)
    assert demo.state(number) is State.RUNNING
    page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name=f"Cancel job {number}").click()
    expect(row(page, number)).to_contain_text("cancelled")
    assert demo.state(number) is State.CANCELLED
    expect(page.locator(".toast")).to_contain_text(f"Job {number} was cancelled.")
    page.get_by_role("button", name="Submit again").click()
    expect(page.locator(".toast")).to_contain_text("Submitted again")
    again = int(re.findall(r"job (\d+)", page.locator(".toast").last.inner_text())[0])
    expect(row(page, again)).to_contain_text("to-cancel")


def test_an_operator_takes_a_cancel_back(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    """The jobs stay their owners', an array's member keeps its index, and dependencies that have ended are left out."""
    before = demo.submit("ann", name="before", run="fake seconds=40")
    first = demo.submit("ann", name="taken-back", array=3, after=[before])
    member, other = first + 1, demo.submit("bob", name="taken-back-too")
    demo.wait_for(member, State.RUNNING)
    page = open_as("olga", "/jobs?q=taken-back&arrays=all")
    for number in (member, other):
        row(page, number).get_by_role("checkbox").check()
    page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 2 jobs").click()
    page.locator(".toast").get_by_role("button", name="Submit again").click()
    expect(page.locator(".toast").last).to_contain_text("Submitted again: 2 jobs")
    new = range(other + 1, other + 3)
    jobs = {job.name: job for job in demo.do(lambda service: [service.store.job(number) for number in new])}
    assert {name: job.owner for name, job in jobs.items()} == {"taken-back": "ann", "taken-back-too": "bob"}
    again = jobs["taken-back"].parsed
    assert again.env == {"ARGOSY_ARRAY_INDEX": "1"} and again.array is None and not again.after.numbers
    expect(row(page, other + 2)).to_be_visible()


def test_hold_release_and_priority_of_several(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    numbers = [demo.submit_waiting("ann", name=f"big-{i}") for i in range(3)]
    page = open_as("ann", "/jobs?q=big-")
    bar = page.get_by_role("toolbar")
    for number in numbers:
        row(page, number).get_by_role("checkbox").check()
    bar.get_by_role("button", name="Hold").click()
    page.get_by_role("dialog").get_by_role("button", name="Hold 3 jobs").click()
    for number in numbers:
        expect(row(page, number)).to_contain_text("held")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    for number in numbers:
        expect(row(page, number)).to_contain_text("waiting")
    row(page, numbers[0]).get_by_role("checkbox").check()
    bar.get_by_role("button", name="Priority").click()
    page.get_by_role("dialog").get_by_role("spinbutton").fill("77")
    page.keyboard.press("Enter")
    expect(page.locator(".toast").last).to_contain_text("given a new priority")
    assert demo.do(lambda service: service.store.jobs[numbers[0]].priority) == 77


def test_arrays_are_folded(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    first = demo.submit("ann", name="sweep", array=5)
    page = open_as("ann", "/jobs?q=sweep")
    folded = row(page, f"array-{first}")
    expect(folded).to_contain_text("sweep ×5")
    expect(row(page, first + 1)).to_have_count(0)
    folded.get_by_role("button").click()
    expect(row(page, first + 4)).to_contain_text("sweep [4]")
    folded.get_by_role("button").click()
    page.get_by_role("button", name="unfold arrays").click()
    expect(row(page, first + 4)).to_be_visible()
    expect(folded).to_have_count(0)
