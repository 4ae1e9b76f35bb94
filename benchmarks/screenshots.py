"""Takes pictures of the dashboard's demonstration: those of the docs, or every screen in every size and theme.

make screenshots                                        # docs/images/dashboard-*.png
python -m benchmarks.screenshots --all out/screens      # to look at: 390, 1,024 and 1,920 pixels, light and dark
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from argosy.dashboard.demo import Demo
from argosy.errors import ArgosyError
from argosy.live.daemon.service import Service
from benchmarks.browser import browsing, missing, signed_in
from benchmarks.harness import ROOT
from benchmarks.running_demo import RunningDemo, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENS = ("jobs", "job", "timeline", "cluster", "people", "policy", "finished", "studies", "health")
SIZES = {"390": (390, 844), "1024": (1024, 768), "1920": (1920, 1080)}
IN_DOCS, IN_DOCS_EXTRA = (1280, 800), ("dark", "phone")
SETTLED_S = 45.0  # real seconds of the demonstration before the first picture: three quarters of an hour of its day
MOST_BYTES = 200_000
DRAWN_MS = 1500


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screenshots", description="Pictures of the dashboard.")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every screen, size and theme, into this folder")
    parser.add_argument("--screens", default=",".join(SCREENS), help="some of them, separated by commas")
    given = parser.parse_args(arguments)
    if problem := missing():
        print(problem, file=sys.stderr)
        return 1
    try:
        take(given.all, given.screens.split(","))
    except ArgosyError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


def take(everything: Path | None, screens: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="argosy-pictures-") as name:
        folder = Path(name)
        studies = make_studies(folder / "studies")
        with running(Demo(folder / "home", studies=studies)) as demo, browsing() as browser:
            demo.do(lambda service: service.shadow.set("srsf") if service.shadow is not None else None)
            time.sleep(SETTLED_S)
            if everything is None:
                for_docs(demo, browser, ROOT / "docs" / "images", screens)
            else:
                for_eyes(demo, browser, everything, screens)


def make_studies(folder: Path) -> Path:
    """Make a small comparison and a training log, so that there is something to see under Studies."""
    folder.mkdir()
    words = "compare --like philly --jobs 200 --load 1 --cluster small --policies fifo,srtf,las --no-progress"
    command = [sys.executable, "-m", "argosy.cli.main", *words.split(), "--report", str(folder / "philly-small.html")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    return folder


def for_docs(demo: RunningDemo, browser: Browser, folder: Path, screens: list[str]) -> None:
    size = {"width": IN_DOCS[0], "height": IN_DOCS[1]}
    context, page = signed_in(browser, demo.address, demo.tokens["olga"], viewport=size, color_scheme="light")
    for screen in screens:
        open_screen(page, demo, screen)
        save(page, folder / f"dashboard-{screen}.png")
    context.close()
    if screens != list(SCREENS):
        return
    context, page = signed_in(browser, demo.address, demo.tokens["olga"], viewport=size, color_scheme="dark")
    open_screen(page, demo, "cluster")
    save(page, folder / "dashboard-dark.png")
    context.close()
    size = {"width": SIZES["390"][0], "height": SIZES["390"][1]}
    context, page = signed_in(browser, demo.address, demo.tokens["olga"], viewport=size, color_scheme="light")
    open_screen(page, demo, "jobs")
    save(page, folder / "dashboard-phone.png")
    context.close()


def for_eyes(demo: RunningDemo, browser: Browser, folder: Path, screens: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        context, page = signed_in(browser, demo.address, demo.tokens["olga"], color_scheme=theme)
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            for screen in screens:
                open_screen(page, demo, screen)
                save(page, folder / f"{screen}-{size}-{theme}.png")
        context.close()


def open_screen(page: Page, demo: RunningDemo, screen: str) -> None:
    """Open a screen, and wait until it is drawn."""
    path = f"jobs/{a_job(demo)}" if screen == "job" else screen
    page.goto(f"{demo.address}/{path}")
    page.wait_for_selector(".link.live")
    page.wait_for_selector("main h1")
    if screen == "job":
        page.wait_for_timeout(3 * DRAWN_MS)  # its curves are asked for after the rest
    if screen == "studies":
        page.get_by_role("link", name="philly-small.html").click()
        page.frame_locator("iframe").locator("canvas, svg").first.wait_for(timeout=60_000)
    page.wait_for_timeout(DRAWN_MS)


def a_job(demo: RunningDemo) -> int:
    """Return a running job with many resizes, which has the most to show, and which does not end at once."""

    def choose(service: Service) -> int:
        told = service.store.reports
        running = [service.store.jobs[number] for number in service.store.runs]
        lasting = [job for job in running if 0.1 < told.get(job.id, {}).get("progress", 0.0) < 0.7] or running
        return max(lasting, key=lambda job: (job.resizes, job.id)).id

    return demo.do(choose)


def save(page: Page, path: Path) -> None:
    """Save a picture with few enough colours to be small."""
    page.screenshot(path=path)
    for colours in (256, 128, 64, 32):
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            break
    print(f"{path} ({path.stat().st_size // 1000} kB)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
