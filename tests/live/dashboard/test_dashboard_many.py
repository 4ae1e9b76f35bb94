"""Ten thousand jobs in a real browser: all are there, and only those that can be seen are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from serving import Serving, serving

pytest.importorskip("playwright.sync_api", reason="no browser: there is no playwright; make setup")
from benchmarks.browser import signed_in
from playwright.sync_api import Browser, Page, expect

from argosy.dashboard import PAGES, demo_history
from argosy.dashboard.demo import Demo

JOBS, MOST_DRAWN = 10_000, 80
pytestmark = pytest.mark.slow(10)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, int]]:
    folder: Path = tmp_path_factory.mktemp("many")
    cluster = Demo(folder, nodes=250).cluster()
    with serving(folder / "home", cluster=cluster, pages=PAGES) as api:
        api.do(lambda service: demo_history.write(service.store, cluster, JOBS))
        with api.as_("ann") as ann:  # and some that wait, of two thousand in one request
            for _ in range(2):
                jobs = [{"name": "waits", "run": "true"}] * 1000
                assert ann.post("/v1/jobs", json={"jobs": jobs, "workdir": "/"}).status_code == 201
        count = partial(lambda service: int(service.store.query("SELECT count(*) FROM jobs")[0][0]))
        yield api, api.do(count)


def test_ten_thousand_jobs(many: tuple[Serving, int], browser: Browser) -> None:
    api, count = many
    assert count >= JOBS
    context, page = signed_in(browser, api.url, api.tokens["olga"], viewport={"width": 1400, "height": 900})
    page.set_default_timeout(60_000)
    expect(page.locator(".head")).to_contain_text(f"{count:,} jobs")

    def drawn() -> int:
        return page.locator("tr.job").count()

    assert 10 < drawn() < MOST_DRAWN
    expect(page.locator(f"tr[data-job='{count}']")).to_be_visible()
    page.locator("tr.job").first.focus()
    page.keyboard.press("End")
    expect(page.locator("tr[data-job='1']")).to_be_in_viewport()
    assert page.locator("tr[data-job='1']").get_attribute("aria-rowindex") == str(count + 1)
    assert drawn() < MOST_DRAWN
    page.get_by_role("searchbox").fill("ppo-walker dana")
    expect(page.locator(".head")).to_contain_text(f" of {count:,} jobs")
    shown = page.locator("tr.job:visible")
    expect(shown.first).to_contain_text("ppo-walker")
    assert all("dana" in text for text in shown.all_inner_texts())
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="waiting").click()
    expect(page.locator(".head")).to_contain_text(f"2,000 of {count:,} jobs")
    changed = count - 1500  # far from what is drawn
    api.do(lambda service: service.cancel([changed]))
    expect(page.locator(".head")).to_contain_text(f"1,999 of {count:,} jobs")
    context.close()


def test_users_get_only_their_own_of_many(many: tuple[Serving, int], browser: Browser) -> None:
    api, _ = many
    own = api.do(lambda service: service.store.query("SELECT count(*) FROM jobs WHERE owner = 'bob'")[0][0])
    context, page = signed_in(browser, api.url, api.tokens["bob"])
    expect(page.locator(".head")).to_contain_text(f"{own:,} jobs")
    owners: list[str] = page.evaluate(
        "async () => [...new Set([...(await import('/pages/js/jobs.js')).jobs.values()].map((job) => job.owner))]"
    )
    assert owners == ["bob"]
    context.close()


def test_a_page_without_a_stream_asks(many: tuple[Serving, int], browser: Browser) -> None:
    """A fourth window of one browser leaves the connections to others, and asks every two seconds."""
    api, _ = many
    context, _ = signed_in(browser, api.url, api.tokens["bob"])
    pages: list[Page] = [context.new_page() for _ in range(3)]
    for page in pages:
        page.goto(f"{api.url}/jobs")
    expect(pages[-1].locator(".link")).to_have_text("every 2 s")
    number = api.submit("bob", name="arrives-late")
    for page in pages:
        expect(page.locator(f"tr[data-job='{number}']")).to_contain_text("arrives-late")
    context.close()
