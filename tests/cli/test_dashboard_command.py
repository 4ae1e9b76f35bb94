"""`argosy dashboard` as users type it: a link that works once, and messages where there is nothing to open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
from command_line import Argosy
from live_daemon import live_daemon


def test_it_prints_a_link_that_works_once(argosy: Argosy, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with live_daemon(home) as daemon:
        done = argosy("dashboard", "--no-browser", "--home", str(home))
        assert done.code == 0 and "it works once" in done.err
        address, _, code = done.out.strip().partition("/signin#")
        assert address == (home / "address").read_text().strip() and len(code) > 40
        with httpx.Client(base_url=address, trust_env=False) as client:
            assert client.get("/jobs").text.startswith("<!doctype html>")
            assert client.post("/v1/session", json={"code": code}).json()["role"] == "operator"
            assert client.post("/v1/session", json={"code": code}).status_code == 401
        assert code not in daemon.told() and code not in (home / "daemon.log").read_text()


def test_a_daemon_without_pages_says_how_to_get_them(argosy: Argosy, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with live_daemon(home, "--no-dashboard"):
        done = argosy("dashboard", "--no-browser", "--home", str(home))
        assert done.code == 2 and "serves no dashboard" in done.err and "--dashboard" in done.err
        address = (home / "address").read_text().strip()
        assert httpx.get(f"{address}/", trust_env=False).status_code == 401


def test_no_daemon(argosy: Argosy, tmp_path: Path) -> None:
    done = argosy("dashboard", "--home", str(tmp_path / "none"))
    assert done.code != 0 and "argosy serve" in done.err


def test_a_wrong_folder_of_studies(argosy: Argosy, tmp_path: Path) -> None:
    for command in (("serve", "--home", str(tmp_path / "home")), ("dashboard", "--demo")):
        done = argosy(*command, "--studies", str(tmp_path / "nothing"))
        assert done.code == 2 and "there is no such folder" in done.err


def test_the_demonstration() -> None:
    words = [sys.executable, "-m", "argosy.cli.main", "dashboard", "--demo", "--no-browser"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        address, _, code = process.stdout.readline().strip().partition("/signin#")
        with httpx.Client(base_url=address, trust_env=False) as client:
            key = client.post("/v1/session", json={"code": code}).json()["key"]
            board = client.get("/v1/board", headers={"x-argosy-key": key}).json()
        states = [row[board["columns"].index("state")] for row in board["rows"]]
        assert states.count("succeeded") > 100 and {"pending", "failed"} <= set(states)
        assert {"running", "starting"} & set(states)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
    finally:
        process.kill()
        process.communicate()


def test_files_for_the_browser_do_not_pile_up(tmp_path: Path) -> None:
    """A file that led a browser to a link is removed later, and the command says what to do if no page opens."""
    home, browser, opened = tmp_path / "home", tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    with live_daemon(home):
        words = [sys.executable, "-m", "argosy.cli.main", "dashboard", "--home", str(home)]
        environment = {**os.environ, "DISPLAY": ":0", "BROWSER": f"{browser} %s"}
        done = [subprocess.run(words, env=environment, capture_output=True, text=True, check=True)]
        (first,) = home.glob("*.html")
        assert first.stat().st_mode & 0o777 == 0o600 and "/signin#" in first.read_text()
        long_ago = time.time() - 130
        os.utime(first, (long_ago, long_ago))
        done.append(subprocess.run(words, env=environment, capture_output=True, text=True, check=True))
        (second,) = home.glob("*.html")
        third = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert second in home.glob("*.html") and len(list(home.glob("*.html"))) == 2  # a browser may still read it
    assert opened.read_text().splitlines()[:2] == [first.as_uri(), second.as_uri()] and first != second
    for one in (*done, third):
        assert f"argosy dashboard --no-browser --home {home}" in one.stderr and one.stdout == ""
