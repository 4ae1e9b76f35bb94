"""Two people who must not see each other's jobs, and jobs that try to be more than text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from benchmarks.running_demo import RunningDemo

pytest.importorskip("playwright.sync_api", reason="no browser: there is no playwright; make setup")
from benchmarks.browser import signed_in
from playwright.sync_api import Browser, Page, expect

from argosy.live.daemon.service import Service
from argosy.live.states import State

SCREENS = ("jobs", "timeline", "cluster", "people", "policy", "finished", "studies", "health")
HOSTILE = (
    "<img src=x onerror='window.pwned=1'><script>window.pwned=1</script>\"'`${window.pwned=1}"
    "\x1b[31mred\x1b]0;title\x07\u202egnp.exe\u2066\u200b\x9b javascript:window.pwned=1"
)


def test_nothing_of_others_arrives(demo: RunningDemo, browser: Browser) -> None:
    secret = "ann-keeps-this-quiet"
    number = demo.submit("ann", name=secret, run="fake seconds=100000")
    demo.wait_for(number, State.RUNNING)
    demo.write_log(number, "ann's log\n")
    own = demo.submit("bob", name="of-bob")
    context, page = signed_in(browser, demo.address, demo.tokens["bob"])
    page.set_default_timeout(30_000)
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url) if request.method == "GET" else None)
    for screen in SCREENS:
        page.goto(f"{demo.address}/{screen}")
        page.wait_for_selector(".link.live")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.wait_for_load_state("load")
        assert secret not in page.content()
    page.goto(f"{demo.address}/jobs")
    expect(page.locator(f"tr[data-job='{own}']")).to_be_visible()
    expect(page.locator(f"tr[data-job='{number}']")).to_have_count(0)
    page.goto(f"{demo.address}/jobs/{number}")
    expect(page.get_by_role("heading", name=f"There is no job {number}")).to_be_visible()
    asks = """async (path) => {
      const key = localStorage.getItem("argosy-key");
      const answer = await fetch(path, { headers: { "x-argosy-key": key } });
      return [answer.status, await answer.text()];
    }"""
    for path in ("", "/log", "/log?follow=true&generation=1", "/events", "/runs", "/explain", "/curves", "/similar"):
        status, text = page.evaluate(asks, f"/v1/jobs/{number}{path}")
        assert status == 404 and secret not in text and "ann's log" not in text
    for path in ("/v1/board", "/v1/map", "/v1/timeline?since=0&until=9999999999", "/v1/usage?since=0&until=9999999999"):
        status, text = page.evaluate(asks, path)
        assert status == 200 and secret not in text and '"ann"' not in text
    again = [address for address in asked if "/v1/" in address and "/v1/stream" not in address]
    assert len(again) > 8 and not any(secret in page.evaluate(asks, address)[1] for address in again)
    cancels = """async (id) => {
      const headers = { "x-argosy-key": localStorage.getItem("argosy-key"), "content-type": "application/json" };
      const body = JSON.stringify({ ids: [id] });
      return (await fetch("/v1/jobs/cancel", { method: "POST", body, headers })).status;
    }"""
    assert page.evaluate(cancels, number) == 404 and demo.state(number) is State.RUNNING
    context.close()


def test_users_are_offered_only_what_they_may_do(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    page = open_as("bob", "/cluster")
    page.locator(".node").first.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page = open_as("olga", "/cluster")
    page.locator(".node").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
    expect(page.locator(".node.draining")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".node.draining")).to_have_count(0)


def test_whatever_a_job_says_is_text(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    number = demo.submit("ann", name="evil", run="fake seconds=100000 figures=true", model=HOSTILE[:100])
    ended = demo.submit("ann", name="fails", run="fake seconds=1 exit=3", retries=0)
    demo.wait_for(number, State.RUNNING)
    demo.wait_for(ended, State.FAILED)

    def spoil(service: Service) -> None:
        """Write what could not be submitted, as if every check had failed."""
        store = service.store
        with store.transaction() as changes:
            changes.save(replace(store.jobs[number], name=HOSTILE))
            changes.save(replace(store.job(ended), name=HOSTILE + "x" * 2**20, message=HOSTILE))
            changes.event(store.jobs[number], "evil", HOSTILE)
        service.curves.note({number: {"metrics": {HOSTILE: 1.0, "loss": 2.0}}})

    demo.do(spoil)
    demo.write_log(number, "y" * 2**20 + f"\n{HOSTILE}\n</div><script>window.pwned=1</script>\nthe end\n")
    page = open_as("olga", viewport={"width": 1400, "height": 900})
    for screen in (*SCREENS, f"jobs/{number}", f"jobs/{ended}"):
        page.goto(f"{demo.address}/{screen}")
        page.wait_for_selector(".link.live")
        if screen == "jobs":
            expect(page.locator(f"tr[data-job='{number}']")).to_contain_text("<img src=x")
            expect(page.locator(f"tr[data-job='{ended}']")).to_contain_text("\\u202egnp.exe")
        elif screen == "finished":
            expect(page.locator(f"tr[data-job='{ended}']")).to_contain_text("<script>")
        elif screen == "cluster":
            page.locator(f"[data-job='{number}']").first.hover()
            expect(page.get_by_role("tooltip")).to_contain_text("<img src=x")
        elif screen == f"jobs/{number}":
            expect(page.get_by_role("log")).to_contain_text("the end")
            expect(page.get_by_role("log")).to_contain_text("<script>window.pwned=1</script>")
            expect(page.locator(".story")).to_contain_text("<img src=x")
        text = page.evaluate("document.body.innerText")
        assert not any(sign in text for sign in "\x1b\u202e\u2066\u200b\x9b\x07")
        assert page.locator("main img, main script, main iframe").count() == 0
        assert page.evaluate("window.pwned") is None
        assert len(text) < 200_000
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), screen


def test_a_report_cannot_reach_the_dashboard(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    page = open_as("olga", "/studies")
    page.get_by_role("link", name="report.html").click()
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("heading", name="A report")).to_be_visible()
    inner = next(frame for frame in page.frames if "/studies/view/" in frame.url)
    inner.wait_for_function("document.title === 'refused'")  # its scripts run, but may call nobody …
    assert inner.evaluate("origin") == "null"  # … and without an origin: no cookie, no storage, no parent
    reaches = "() => { try { return parent.document.title } catch (problem) { return problem.name } }"
    assert inner.evaluate(reaches) == "SecurityError"
    page.get_by_role("button", name="All studies").click()
    page.get_by_role("link", name="train.jsonl").click()
    expect(page.get_by_role("heading", name="loss")).to_be_visible()
    expect(page.locator("path.line")).to_have_count(1)
