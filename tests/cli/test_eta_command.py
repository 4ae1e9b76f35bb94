"""`argosy eta` and `submit --dry-run` against a real daemon whose jobs last a known time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Argosy
from live_daemon import LiveDaemon, live_daemon

LIMIT_S = 120.0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    with live_daemon(tmp_path_factory.mktemp("eta") / "home", "--nodes", "1", "--slots", "2") as running:
        yield running


@pytest.fixture
def live(daemon: LiveDaemon, argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> Argosy:
    monkeypatch.setenv("ARGOSY_HOME", str(daemon.home))
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return argosy


def until(ask: Callable[[], Any]) -> Any:
    limit = time.monotonic() + LIMIT_S
    while not (found := ask()):
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.3)
    return found


def job(path: Path, name: str, gpus: int, expected: str, seconds: float = 600.0) -> str:
    (path / f"{name}.yaml").write_text(
        f"name: {name}\nrun: fake seconds={seconds:g}\nresources: {{gpus: {gpus}}}\nexpected_duration: {expected}\n"
    )
    return f"{name}.yaml"


@pytest.mark.slow(20)
def test_estimates_of_waiting_and_running_jobs(live: Argosy, tmp_path: Path) -> None:
    files = [job(tmp_path, "first", 2, "10m"), job(tmp_path, "second", 2, "20m"), job(tmp_path, "third", 2, "20m")]
    first, second, third = (int(line) for line in live("submit", *files).out.split())

    def estimates() -> list[dict[str, Any]] | None:
        found = json.loads(live("eta", *map(str, (first, second, third)), "-o", "json").out)["jobs"]
        running = found[0]["state"] == "running" and all(one["eta"] for one in found)
        return found if running and found[0]["eta"]["start"] is None else None

    one, two, three = until(estimates)
    assert one["policy"] == "fifo" and one["rollouts"] > 0
    assert one["eta"]["end"]["p10"] <= one["eta"]["end"]["p50"] <= one["eta"]["end"]["p90"]
    # under fifo on two GPUs each job starts when the one before it ends
    assert two["eta"]["start"]["p50"] == pytest.approx(one["eta"]["end"]["p50"], abs=60.0)
    assert three["eta"]["start"]["p50"] > two["eta"]["start"]["p50"]
    assert three["eta"]["start"]["p90"] - three["eta"]["start"]["p10"] > two["eta"]["start"]["p90"] - time.time() - 60

    told = live("eta", str(second))
    assert told.code == 0 and "starts" in told.out and "half before" in told.out and "futures under fifo" in told.out
    assert "starts in" in live("queue").out and "probably starts" in live("status", str(second)).out
    assert "probably ends" in live("explain", str(second)).out
    assert json.loads(live("queue", "-o", "json").out)["jobs"][0]["eta"]["end"]["p50"] > time.time()

    told = live("eta")  # as squeue --start: all that wait, the next one first
    assert told.code == 0, told.err
    rows = [line.split()[0] for line in told.out.splitlines() if line.split() and line.split()[0].isdigit()]
    assert rows == [str(second), str(third)] and "half before" in told.out
    waiting = json.loads(live("eta", "-o", "json").out)["jobs"]
    assert [one["job"] for one in waiting] == [second, third] and waiting[0]["eta"]["start"]["p50"] > 0

    dry = live("submit", job(tmp_path, "fourth", 2, "5m"), "--dry-run")
    assert dry.code == 0, dry.err
    assert "as it is" in dry.out and "with 1 GPUs" in dry.out and "nothing was submitted" in dry.out
    variants = json.loads(live("submit", "fourth.yaml", "--dry-run", "-o", "json").out)["variants"]
    assert variants[0]["eta"]["start"]["p50"] > three["eta"]["start"]["p50"]
    assert (variants[0]["expected_s"], variants[0]["expected_from"]) == (300.0, "the user's estimate")
    assert variants[1]["expected_s"] == 600.0
    assert len(json.loads(live("queue", "-o", "json").out)["jobs"]) == 3

    live("cancel", str(second))
    until(lambda: "it has ended" in live("eta", str(second)).out)


@pytest.mark.slow(5)
def test_a_part_of_an_array(live: Argosy, tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text("run: fake seconds=600\nresources: {gpus: 2}\narray: 3\n")
    first = int(live("submit", "many.yaml").out.split()[0])
    told = live("eta", f"{first}[1]")
    assert told.code == 0, told.err
    assert told.out.startswith(f"job {first + 1} (")
    two = json.loads(live("eta", f"{first}[1-2]", "-o", "json").out)["jobs"]
    assert [one["job"] for one in two] == [first + 1, first + 2]
    assert live("cancel", f"{first}[*]").code == 0


def test_calibration_without_any_estimate_says_so(live: Argosy) -> None:
    told = live("eta", "--calibration")
    assert told.code == 0
    scores = json.loads(live("eta", "--calibration", "-o", "json").out)
    assert set(scores) == {"start", "end"}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("eta", "7", "--calibration"), 2, "both jobs and --calibration"),
        (("eta", "999999"), 102, "there is no job 999999"),
        (("eta", "0"), 2, "'0' is not a job"),
        (("eta", "x[1]"), 2, "'x[1]' is not a job"),
        (("submit", "--run", "fake seconds=1", "--dry-run", "--wait"), 2, "exclude each other"),
        (("submit", "--run", "fake seconds=1", "--gpus", "99", "--dry-run"), 2, "99"),
        (("submit", "--run", "fake seconds=1", "--array", "3", "--dry-run"), 2, "one job"),
    ],
)
def test_bad_input_is_refused_with_the_next_step(
    live: Argosy, arguments: tuple[str, ...], code: int, text: str
) -> None:
    answer = live(*arguments)
    assert answer.code == code, answer.err
    assert text in answer.err
