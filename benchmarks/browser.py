"""Finds a chromium and drives it with Playwright: for tests, measurements and pictures of the dashboard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from argosy.errors import ArgosyError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = (
    "install chromium (Debian: apt-get install chromium; Ubuntu: snap install chromium) and playwright (make setup), "
    "or name a browser: ARGOSY_BROWSER=/path/to/chrome"
)
FLAGS = (
    "--no-sandbox",  # which chromium needs when root starts it, as in containers; the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--font-render-hinting=none",
    "--hide-scrollbars",
)


def find_browser() -> str | None:
    """Return the path of a chromium, if there is one."""
    given = os.environ.get("ARGOSY_BROWSER")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


def missing() -> str:
    """Say what is missing to drive a browser; an empty text if nothing is."""
    if find_spec("playwright") is None:
        return f"there is no playwright; {HOW}"
    return "" if find_browser() else f"there is no chromium; {HOW}"


@contextmanager
def browsing(flags: tuple[str, ...] = ()) -> Iterator[Browser]:
    """Start a browser without a window."""
    if problem := missing():
        raise ArgosyError(problem)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=[*FLAGS, *flags])
        try:
            yield browser
        finally:
            browser.close()


def signed_in(browser: Browser, address: str, token: str, **options: Any) -> tuple[BrowserContext, Page]:
    """Open the dashboard as the owner of a token, in a context of its own; options are those of `new_context`."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(f"{address}/signin")
    page.fill("#token", token)
    page.click("button.main")
    page.wait_for_selector(".link.live")
    return context, page
