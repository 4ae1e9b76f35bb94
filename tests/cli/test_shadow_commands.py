"""`argosy shadow` and `promote` against a real daemon: agreement, the guard, falling back, kills in every phase."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Argosy
from live_daemon import LiveDaemon, live_daemon

LIMIT_S = 120.0
OPTIONS = ("--nodes", "1", "--slots", "2")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def live(home: Path, argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> Argosy:
    monkeypatch.setenv("ARGOSY_HOME", str(home))
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return argosy


@pytest.fixture
def daemon(home: Path) -> Iterator[LiveDaemon]:
    with live_daemon(home, *OPTIONS) as running:
        yield running


def until(ask: Callable[[], Any]) -> Any:
    limit = time.monotonic() + LIMIT_S
    while not (found := ask()):
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.3)
    return found


def summary(live: Argosy) -> dict[str, Any]:
    answer = live("shadow", "-o", "json")
    assert answer.code == 0, answer.err
    found: dict[str, Any] = json.loads(answer.out)
    return found


def submit(live: Argosy, gpus: int, seconds: float, expected: str) -> None:
    at = ("submit", "--run", f"fake seconds={seconds:g}", "--gpus", str(gpus))
    path = Path("job.yaml")
    path.write_text(f"run: fake seconds={seconds:g}\nresources: {{gpus: {gpus}}}\nexpected_duration: {expected}\n")
    answer = live("submit", str(path))
    assert answer.code == 0, (at, answer.err)


@pytest.mark.slow(30)
def test_a_shadow_decides_and_never_acts(daemon: LiveDaemon, live: Argosy) -> None:
    assert "no shadow is set" in live("shadow").out
    assert live("shadow", "--set", "srtf").code == 0
    submit(live, 2, 600, "10m")  # runs
    submit(live, 2, 600, "1h")  # waits; under fifo it is next …
    submit(live, 1, 600, "1m")  # … under srtf this one is, and would even replace the first

    def compared() -> dict[str, Any] | None:
        submit(live, 1, 600, "2m")  # another decision
        found = summary(live)
        return found if found["compared"] and found["differ"] else None

    found = until(compared)
    assert (found["policy"], found["live"], found["failed"]) == ("srtf", "fifo", 0)
    assert found["decisions"] >= found["compared"] + found["skipped"] and found["problem"] == ""
    assert 0 <= found["agreement"] < 1 and found["gain"]["mean"] > 0
    told = live("shadow").out
    assert "it would win" in told and "where they differed last" in told
    running = [job for job in json.loads(live("queue", "-o", "json").out)["jobs"] if job["state"] == "running"]
    assert [job["id"] for job in running] == [1], "the shadow must not act"
    assert live("shadow", "--off").code == 0
    assert summary(live)["policy"] is None
    assert "shadow" in live("audit").out


@pytest.mark.slow(60)
def test_a_promotion_survives_a_kill_in_every_phase(daemon: LiveDaemon, live: Argosy, home: Path) -> None:
    submit(live, 1, 3600, "1h")
    until(lambda: json.loads(live("queue", "-o", "json").out)["counts"].get("running"))
    told = live("promote", "srtf", "--guard", "10%", "--for", "1h")
    assert told.code == 0 and "it was fifo" in told.err
    daemon.process.send_signal(signal.SIGKILL)  # in the middle of the switch, or just after it
    daemon.process.wait(LIMIT_S)
    daemon.clean_up()
    with live_daemon(home, *OPTIONS) as second:
        found = summary(live)
        assert found["live"] == "srtf" and found["promotion"]["phase"] == "guarded"
        assert "guarded" in live("queue").out
        again = live("promote", "srtf")
        assert again.code == 1 and "is the policy already" in again.err
        until(lambda: json.loads(live("queue", "-o", "json").out)["counts"].get("running"))
        assert live("promote", "fifo", "--guard", "none").code == 0
        second.process.send_signal(signal.SIGKILL)
        second.process.wait(LIMIT_S)
        second.clean_up()
    with live_daemon(home, *OPTIONS):
        found = summary(live)
        assert (found["live"], found["promotion"]["phase"]) == ("fifo", "unguarded")
        log = live("audit").out
        assert log.count("promote") >= 2
        assert json.loads(live("queue", "-o", "json").out)["counts"]["running"] == 1, "jobs go on through all of it"


FAILS = """
from argosy import Policy, register

@register("fails", "raises an error whenever it is asked")
class Fails(Policy):
    uses = frozenset({"demand"})

    def rank(self, view):
        raise RuntimeError("no weights")
"""
CRASHES = """
import os, signal
from argosy import Policy, register

@register("crashes", "ends its process whenever it is asked")
class Crashes(Policy):
    uses = frozenset({"demand"})

    def rank(self, view):
        os.kill(os.getpid(), signal.SIGSEGV)
"""


def running(live: Argosy) -> int:
    return int(json.loads(live("queue", "-o", "json").out)["counts"].get("running", 0))


@pytest.mark.slow(60)
def test_a_policy_that_fails_falls_back_for_good(
    live: Argosy, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed as a plugin, because a request must not make the daemon load a file."""
    (tmp_path / "fails.py").write_text(FAILS)
    about = tmp_path / "fails_policies-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fails-policies\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[argosy.policies]\nfails = fails:Fails\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with live_daemon(home, *OPTIONS) as first:
        submit(live, 1, 3600, "1h")
        until(lambda: running(live) == 1)
        assert live("promote", "fails", "--guard", "10%").code == 0
        found = until(lambda: (now := summary(live)["promotion"])["phase"] == "fell-back" and now)
        assert "it failed" in found["reason"] and "no weights" in found["reason"]
        assert "fell back from fails to fifo: it failed" in live("queue").out
        assert "fall-back" in live("audit").out
        log = (home / "daemon.log").read_text()
        assert '"what": "the guard has ended", "phase": "fell-back", "policy": "fifo"' in log
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(LIMIT_S)
        first.clean_up()
    with live_daemon(home, *OPTIONS):
        found = summary(live)
        assert (found["live"], found["promotion"]["phase"]) == ("fifo", "fell-back")
        assert running(live) == 1 and "fell back from fails" in live("queue").out
        submit(live, 1, 3600, "1h")
        until(lambda: running(live) == 2)


@pytest.mark.slow(30)
def test_a_promotion_that_was_kept_survives_a_kill(daemon: LiveDaemon, live: Argosy, home: Path) -> None:
    submit(live, 1, 3600, "1h")
    until(lambda: running(live) == 1)
    assert live("promote", "srtf", "--guard", "10%", "--for", "1s").code == 0
    until(lambda: summary(live)["promotion"]["phase"] == "kept")
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait(LIMIT_S)
    daemon.clean_up()
    with live_daemon(home, *OPTIONS):
        found = summary(live)
        assert (found["live"], found["promotion"]["phase"]) == ("srtf", "kept")
        assert running(live) == 1 and "keep" in live("audit").out


@pytest.mark.slow(30)
@pytest.mark.parametrize(("code", "name", "problem"), [(CRASHES, "Crashes", "died"), (FAILS, "Fails", "no weights")])
def test_a_shadow_that_crashes_is_noted_and_the_daemon_goes_on(
    live: Argosy, home: Path, tmp_path: Path, code: str, name: str, problem: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    with live_daemon(home, *OPTIONS, "--shadow", f"{tmp_path}/mine.py:{name}") as daemon:

        def failed() -> dict[str, Any] | None:
            submit(live, 1, 600, "2m")  # a decision
            found = summary(live)
            return found if found["failed"] else None

        found = until(failed)
        assert problem in found["problem"] and found["compared"] == 0
        log = (home / "daemon.log").read_text()
        assert "the shadow policy failed; the live one is not affected" in log
        assert f"{problem}" in live("shadow").out
        assert daemon.process.poll() is None
        until(lambda: running(live) == 2)
        assert "the policy failed" not in (home / "daemon.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("promote", "no-such-policy"), "no-such-policy"),
        (("promote", "mine.py:Mine"), "a file"),
        (("shadow", "--set", "mine.py"), "a file"),
        (("promote", "srtf", "--guard", "lots"), "--guard lots"),
        (("promote", "srtf", "--guard", "-3%"), "--guard -3%"),
        (("promote", "srtf", "--for", "soon"), "soon"),
        (("shadow", "--set", "no-such-policy"), "no-such-policy"),
        (("shadow", "--set", "srtf", "--off"), "exclude each other"),
    ],
)
def test_bad_input(daemon: LiveDaemon, live: Argosy, arguments: tuple[str, ...], text: str) -> None:
    answer = live(*arguments)
    assert answer.code == 2 and text in answer.err, answer.err
    assert summary(live)["policy"] is None and summary(live)["promotion"] is None
