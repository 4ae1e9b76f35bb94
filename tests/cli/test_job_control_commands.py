"""hold, release, requeue, update, resubmit, parts of arrays, and cancel by filters, against a real daemon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from command_line import Answer, Argosy
from live_daemon import LiveDaemon, live_daemon

from argosy.cli.queue import grouped


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    """A daemon with two nodes of four fake GPUs, shared by all tests of this file."""
    with live_daemon(tmp_path_factory.mktemp("live") / "home") as running:
        yield running


@pytest.fixture
def live(daemon: LiveDaemon, argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Argosy]:
    monkeypatch.setenv("ARGOSY_HOME", str(daemon.home))
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield argosy
    argosy("cancel", "--now", "--state", "pending,starting,running,stopping")


def submitted(answer: Answer) -> list[int]:
    assert answer.code == 0, answer.err
    return [int(line) for line in answer.out.split()]


def job(live: Argosy, number: int) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(live("status", str(number), "-o", "json").out)
    return told


def until(true: Callable[[], object]) -> None:
    limit = time.monotonic() + 120
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.1)


def test_a_held_job_starts_when_it_is_released(live: Argosy) -> None:
    (big,) = submitted(live("submit", "--run", "fake seconds=600", "--gpus", "8"))
    until(lambda: job(live, big)["state"] == "running")
    (held,) = submitted(live("submit", "--run", "fake seconds=600", "--gpus", "8"))
    answer = live("hold", str(held))
    assert answer.code == 0 and f"job {held} held back (pending)" in answer.err
    assert "argosy release" in live("explain", str(held)).out
    refused = live("hold", str(big))
    assert refused.code == 1 and "only a waiting job" in refused.err
    assert live("cancel", "--now", str(big)).code == 0
    assert live("wait", str(big), "--timeout", "2m").code == 103
    (free,) = submitted(live("submit", "--run", "fake seconds=600", "--gpus", "8"))
    until(lambda: job(live, free)["state"] == "running")  # it has overtaken the one that is held
    assert job(live, held)["state"] == "pending"
    assert json.loads(live("release", "--name", "job", "-o", "json").out)["jobs"][0]["id"] == held
    assert live("requeue", "--hold", str(free)).code == 0
    until(lambda: job(live, held)["state"] == "running")
    assert "held back" in job(live, free)["why"]


def test_a_waiting_job_is_changed(live: Argosy) -> None:
    (big,) = submitted(live("submit", "--run", "fake seconds=600", "--gpus", "8"))
    until(lambda: job(live, big)["state"] == "running")
    (number,) = submitted(live("submit", "--run", "fake seconds=0.1", "--gpus", "8"))
    options = ["--priority", "80", "--time-limit", "6h", "--expected", "2h", "--deadline", "2030-01-01T08:00"]
    answer = live("update", str(number), *options, "--gpus", "1..4", "--rename", "other", "--retries", "2")
    assert answer.code == 0, answer.err
    told = job(live, number)
    spec = told["spec"]
    assert (told["priority"], told["name"], told["gpus_low"], told["gpus_high"]) == (80.0, "other", 1.0, 4.0)
    assert (spec["max_duration"], spec["expected_duration"], spec["retries"]) == (21600.0, 7200.0, 2)
    assert spec["deadline"] == "2030-01-01T08:00:00"
    assert live("update", str(number), "--time-limit", "none", "--gpus", "2").code == 0
    assert job(live, number)["spec"]["max_duration"] is None
    told = live("update", str(big), "--gpus", "2")
    assert told.code == 1 and "can be changed only while it waits" in told.err and "requeue --hold" in told.err
    assert live("update", str(big), "--time-limit", "1h", "--priority", "10").code == 0
    assert "max_duration 3600" in live("audit", "--job", str(big)).out
    live("cancel", "--now", str(big))
    assert live("wait", str(number), "--timeout", "2m").code == 0  # the policy knows that it needs two GPUs now


def test_the_policy_learns_at_once_that_a_job_has_become_smaller(live: Argosy) -> None:
    (big,) = submitted(live("submit", "--run", "fake seconds=600", "--gpus", "6"))
    (number,) = submitted(live("submit", "--run", "fake seconds=0.1", "--gpus", "8"))
    until(lambda: job(live, big)["state"] == "running")
    assert live("update", str(number), "--gpus", "2").code == 0
    assert live("wait", str(number), "--timeout", "2m").code == 0
    assert job(live, big)["state"] == "running"


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["update", "1"], ["nothing to change", "--priority 80"]),
        (["update", "{n}", "--priority", "101"], ["less than or equal to 100"]),
        (["update", "{n}", "--gpus", "many"], ["'many' is not a number of GPUs"]),
        (["update", "{n}", "--gpus", "900"], ["needs 900 GPUs", "has 8"]),
        (["update", "{n}", "--to-queue", "nowhere"], ["unknown queue 'nowhere'"]),
        (["update", "{n}", "--time-limit", "soon"], ["not a duration: 'soon'"]),
        (["update", "{n}", "--rename", "a/b"], ["'a/b' is not a valid name"]),
        (["hold"], ["no job is named", "--user"]),
        (["cancel"], ["no job is named"]),
        (["cancel", "12[3"], ["'12[3' is not a job", "12[3-7]"]),
        (["cancel", "12[7-3]"], ["'7-3' is not a range"]),
        (["cancel", "0"], ["'0' is not a job"]),
        (["cancel", "--state", "runing"], ["unknown state 'runing'", "running"]),
        (["status", "{n}[0]"], ["is not the number of an array", "write {n}"]),
        (["resubmit", "999999"], ["there is no job 999999"]),
    ],
)
def test_wrong_input(live: Argosy, arguments: list[str], texts: list[str]) -> None:
    (number,) = submitted(live("submit", "--run", "fake seconds=600", "--gpus", "8", "--hold"))
    answer = live(*(argument.replace("{n}", str(number)) for argument in arguments))
    assert answer.code in (2, 102) and answer.out == ""
    for text in texts:
        assert text.replace("{n}", str(number)) in answer.err
    assert job(live, number)["name"] == "job"


def test_parts_of_an_array(live: Argosy, tmp_path: Any) -> None:
    (tmp_path / "sweep.yaml").write_text("name: sweep\nrun: fake seconds=600\narray: 8\nresources: {gpus: 8}\n")
    numbers = submitted(live("submit", "sweep.yaml"))
    first = numbers[0]
    until(lambda: job(live, first)["state"] == "running")
    assert live("cancel", f"{first}[3-5,7]").code == 0
    states = [job(live, number)["state"] for number in numbers]
    assert [state == "cancelled" for state in states] == [False, False, False, True, True, True, False, True]
    table = live("queue", "--name", "sweep").out
    assert f"{first}[0]" in table
    assert f"{first}[1-2,6]" in table or f"{first}[2,6]" in table  # the first that waits may have a reason of its own
    assert f"{first}[2]" in live("status", f"{first}[2]").out
    too_far = live("cancel", f"{first}[6-8]")
    assert too_far.code == 2 and "has the indices 0 to 7" in too_far.err
    assert live("cancel", "--now", f"{first}[*]").code == 0
    assert live("wait", f"{first}[0-7]", "--timeout", "2m").code == 103


def test_cancel_by_filters(live: Argosy) -> None:
    running, waiting, other = (
        submitted(live("submit", "--run", "fake seconds=600", "--gpus", "8", "--name", name))[0]
        for name in ("mine", "mine", "theirs")
    )
    until(lambda: job(live, running)["state"] == "running")
    answer = json.loads(live("cancel", "--name", "mine", "--state", "pending", "-o", "json").out)
    assert answer == {"jobs": [{"id": waiting, "state": "cancelled"}]}
    both = json.loads(live("cancel", str(running), str(other), "--name", "theirs", "-o", "json").out)
    assert [row["id"] for row in both["jobs"]] == [other]
    nothing = live("cancel", "--user", "nobody-here")
    assert nothing.code == 0 and "no job fits" in nothing.err
    assert job(live, running)["state"] == "running"


def test_failed_jobs_are_submitted_again(live: Argosy, tmp_path: Any) -> None:
    (tmp_path / "flaky.yaml").write_text("name: flaky\nrun: fake seconds=0.1 exit=3\narray: 2\npriority: 60\n")
    first, second = submitted(live("submit", "flaky.yaml"))
    assert live("wait", str(first), str(second), "--timeout", "2m").code == 100
    again = submitted(live("resubmit", "--name", "flaky", "--state", "failed"))
    assert len(again) == 2
    for old, new in zip((first, second), again):
        before, after = job(live, old), job(live, new)
        assert after["spec"]["run"] == before["spec"]["run"] and after["priority"] == 60.0
        assert after["array_id"] is None
        assert after["spec"]["env"]["ARGOSY_ARRAY_INDEX"] == str(before["array_index"])


def test_only_what_waits_for_the_same_reason_is_one_row() -> None:
    def row(index: int, **more: Any) -> dict[str, Any]:
        told = {"id": 5 + index, "array_id": 5, "array_index": index, "state": "pending", "priority": 50.0, "name": "a"}
        return told | {"why": f"needs 2 GPUs; {index} jobs wait before it"} | more

    jobs = [row(0, state="running"), row(1), row(2), row(3, why="held back"), row(4), row(6, priority=70.0)]
    single = row(7, array_id=None, array_index=None)
    shown = [one.get("shown", one["id"]) for one in grouped([*jobs, single])]
    assert shown == [5, "5[1-2,4]", 8, 11, 12]
