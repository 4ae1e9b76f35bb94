"""Pages that stay open in a real browser: logs and resizes arrive, and a daemon that was killed is found again."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from benchmarks.running_demo import RunningDemo

pytest.importorskip("playwright.sync_api", reason="no browser: there is no playwright; make setup")
from benchmarks.browser import signed_in
from playwright.sync_api import Browser, Page, expect

from argosy.live.states import State

sys.path.insert(0, str(Path(__file__).parents[2] / "cli"))
from live_daemon import live_daemon


def test_a_log_is_followed_and_searched(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    number = demo.submit("ann", name="talks", run="fake seconds=100000")
    demo.wait_for(number, State.RUNNING)
    page = open_as("ann", f"/jobs/{number}")
    log = page.get_by_role("log")
    log.scroll_into_view_if_needed()
    demo.write_log(number, "epoch 1 loss 0.5\nepoch 2 loss 0.4\n")
    expect(log).to_contain_text("epoch 2 loss 0.4")
    demo.write_log(number, "".join(f"step {i} \x1b[32mfine\x1b[0m\n" for i in range(500)))
    expect(log).to_contain_text("step 499 fine")
    expect(log.get_by_text("step 499 fine")).to_be_in_viewport()
    page.get_by_label("Find in the log").fill("epoch")
    expect(log.locator(".found")).to_have_count(2)
    expect(log.get_by_text("epoch 2")).to_be_in_viewport()
    demo.write_log(number, "epoch 3 loss 0.3\n")
    expect(log.locator(".found")).to_have_count(3)


def test_a_resize_arrives_without_a_reload(demo: RunningDemo, open_as: Callable[..., Page]) -> None:
    number = demo.submit("ann", name="elastic", resources={"gpus": "1..8"}, run="fake seconds=100000 figures=true")
    page = open_as("ann", f"/jobs/{number}")
    page.evaluate("window.same = true")
    size = page.locator(".figures dd").first
    expect(size).to_have_text("8 of 1–8")
    for _ in range(3):
        demo.submit("bob", name="large", resources={"gpus": 8})
    for _ in range(7):
        demo.submit("bob", name="small")
    expect(size).to_have_text("1 of 1–8")
    expect(page.locator(".story")).to_contain_text("resizing")
    expect(page.get_by_role("img", name="GPUs held in GPUs")).to_be_visible()
    expect(page.locator(".chart .mark").first).to_be_attached()
    expect(page.get_by_role("heading", name="Loss")).to_be_visible()
    expect(page.get_by_role("heading", name="Throughput")).to_be_visible()
    assert page.evaluate("window.same") is True


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.mark.slow(20)
def test_a_daemon_that_was_killed_is_found_again(browser: Browser, tmp_path: Path) -> None:
    port, home = str(free_port()), tmp_path / "home"
    options = (home, "--port", port, "--nodes", "1", "--slots", "4")
    with live_daemon(*options) as daemon:
        token = (home / "token").read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        api = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False)

        def submit(name: str) -> int:
            job = {"name": name, "run": "sleep 10000"}
            return int(api.post("/v1/jobs", json={"jobs": [job], "workdir": "/"}).json()["ids"][0])

        ends, stays = submit("ends"), submit("stays")
        context, page = signed_in(browser, f"http://127.0.0.1:{port}", token)
        page.evaluate("window.same = true")
        ended, stayed = page.locator(f"tr[data-job='{ends}']"), page.locator(f"tr[data-job='{stays}']")
        expect(ended).to_contain_text("running")
        expect(stayed).to_contain_text("running")
        daemon.end(signal.SIGKILL)
        daemon.clean_up()
        expect(page.locator(".link")).to_have_text("no connection; trying again")
        context.set_offline(True)
    with live_daemon(*options):
        api.delete(f"/v1/jobs/{ends}").raise_for_status()
        new = submit("new")
        context.set_offline(False)
        expect(page.locator(".link")).to_have_text("live", timeout=30_000)
        expect(ended).to_contain_text("cancelled", timeout=30_000)
        expect(stayed).to_contain_text("running", timeout=30_000)
        expect(page.locator(f"tr[data-job='{new}']")).to_contain_text("running", timeout=30_000)
        assert page.evaluate("window.same") is True
        context.close()
        api.close()
