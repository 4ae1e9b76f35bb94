"""submit, queue, status, logs, explain, cancel, wait, nodes, history, token and backup, against a real daemon."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from command_line import Answer, Argosy
from live_daemon import LiveDaemon, live_daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDaemon]:
    """A daemon with two nodes of four fake GPUs, shared by all tests of this file."""
    with live_daemon(tmp_path_factory.mktemp("live") / "home") as running:
        yield running


@pytest.fixture
def live(daemon: LiveDaemon, argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> Argosy:
    monkeypatch.setenv("ARGOSY_HOME", str(daemon.home))
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return argosy


def submitted(answer: Answer) -> list[int]:
    assert answer.code == 0, answer.err
    return [int(line) for line in answer.out.split()]


def test_from_a_file_to_the_end(live: Argosy, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: first\nrun: fake seconds=0.5\nresources: {gpus: 1..2}\n")
    (number,) = submitted(live("submit", "job.yaml"))
    ended = live("wait", str(number), "--timeout", "5m")
    assert (ended.code, ended.out) == (0, "")
    assert f"job {number} succeeded" in ended.err
    shown = live("status", str(number))
    assert shown.code == 0
    for text in ("first", "succeeded", "fake seconds=0.5", str(tmp_path), "submitted"):
        assert text in shown.out
    told = json.loads(live("status", str(number), "-o", "json").out)
    assert (told["state"], told["exit_code"], len(told["runs"])) == ("succeeded", 0, 1)
    assert live("logs", str(number)).code == 0
    assert "first" in live("history").out
    assert number in [job["id"] for job in json.loads(live("history", "-o", "json").out)]
    trace = tmp_path / "trace.csv"
    trace.write_text(live("history", "-o", "csv").out)
    assert trace.read_text().startswith("job_id,submit_s,duration_s,gpus")


def test_many_at_once(live: Argosy, tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.yaml").write_text(f"name: many-{i}\nrun: fake seconds=0.1\narray: 2\n")
    numbers = submitted(live("submit", "0.yaml", "1.yaml", "2.yaml", "--queue", "default", "--priority", "70"))
    assert len(numbers) == 6
    assert live("wait", *map(str, numbers), "--timeout", "5m").code == 0
    jobs = json.loads(live("queue", "-a", "--queue", "default", "-o", "json").out)["jobs"]
    jobs = [job for job in jobs if job["id"] in numbers]
    assert {job["id"] for job in jobs} == set(numbers)
    assert {(job["name"], job["priority"], job["array_index"]) for job in jobs} == {
        (f"many-{i}", 70.0, index) for i in range(3) for index in range(2)
    }


def test_a_command_without_a_file(live: Argosy) -> None:
    answer = live("submit", "--run", "fake seconds=0.1", "--gpus", "2", "--name", "quick", "--wait", "--timeout", "5m")
    assert answer.code == 0
    (number,) = submitted(answer)
    told = yaml.safe_load(live("status", str(number), "-o", "yaml").out)
    assert (told["name"], told["gpus_low"], told["spec"]["run"]) == ("quick", 2.0, "fake seconds=0.1")


def test_from_standard_input(live: Argosy, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("run: fake seconds=0.1\n"))
    assert submitted(live("submit", "-"))
    monkeypatch.setattr("sys.stdin", io.StringIO("run: x\ngpu: 2\n"))
    answer = live("submit", "-")
    assert answer.code == 2
    assert "standard input:2: unknown key 'gpu'" in answer.err


def test_what_waits_says_why(live: Argosy) -> None:
    (first,) = submitted(live("submit", "--run", "fake seconds=600", "--gpus", "8", "--name", "big"))
    (second,) = submitted(live("submit", "--run", "fake seconds=0.1", "--gpus", "8", "--name", "behind"))
    (third,) = submitted(live("submit", "--run", "fake seconds=0.1", "--after", str(second)))
    assert live("wait", str(first), "--timeout", "0.1s").code == 101
    assert f"waits for job {second}" in live("explain", str(third)).out
    seen, until = "", time.monotonic() + 60
    while not seen and time.monotonic() < until:  # until the policy was asked
        seen = json.loads(live("explain", str(second), "-o", "json").out)["evidence"].get("seen", "")
    told = live("explain", str(second)).out
    assert seen and " ".join(told.split()).count(seen) == 1  # the reason says it, and nothing says it again
    table = live("queue").out
    assert "big" in table
    assert f"waits for job {second}" in table
    assert live("logs", str(second)).code == 102
    cancelled = live("cancel", str(first), str(second))
    assert (cancelled.code, cancelled.out) == (0, "")
    assert live("wait", str(first), str(second), "--timeout", "5m").code == 103
    assert live("wait", str(third), "--timeout", "5m").code == 100
    assert live("wait", str(first), str(third), "999999").code == 102


def test_a_job_that_fails(live: Argosy, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("run: fake seconds=0.1 exit=7\nretries: 0\n")
    answer = live("submit", "job.yaml", "--wait", "--timeout", "5m")
    assert answer.code == 100
    (number,) = [int(line) for line in answer.out.split()]
    assert json.loads(live("status", str(number), "-o", "json").out)["exit_code"] == 7


@pytest.mark.parametrize("command", ["status", "logs", "explain", "cancel"])
def test_a_job_that_is_not_there(live: Argosy, command: str) -> None:
    answer = live(command, "999999")
    assert (answer.code, answer.out) == (102, "")
    assert "there is no job 999999" in answer.err


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["submit"], ["nothing to submit", "argosy submit job.yaml"]),
        (["submit", "a.yaml", "--run", "x"], ["both files and --run"]),
        (["submit", "missing.yaml"], ["missing.yaml", "there is no such file"]),
        (["submit", "--run", " "], ["--run is empty"]),
        (["submit", "--run", "x", "--gpus", "many"], ["'many' is not a number of GPUs"]),
        (["submit", "--run", "x", "--gpus", "900"], ["900 GPUs", "the cluster has 8"]),
        (["submit", "--run", "x", "--name", "a/b"], ["'a/b' is not a valid name"]),
        (["queue", "--state", "runing"], ["unknown state 'runing'", "did you mean running"]),
        (["queue", "-n", "0"], ["--limit 0 is too small"]),
        (["queue", "-w"], ["--watch needs a terminal"]),
        (["nodes", "drain", "n99"], ["there is no node 'n99'"]),
        (["token", "add", "a/b"], ["'a/b' is not a valid user name"]),
        (["token", "revoke", "999"], ["there is no token 999"]),
        (["wait", "1", "--timeout", "soon"], ["not a duration: 'soon'"]),
    ],
)
def test_what_people_get_wrong(live: Argosy, arguments: list[str], texts: list[str]) -> None:
    answer = live(*arguments)
    assert (answer.code, answer.out) == (2, ""), answer.err
    assert "Traceback" not in answer.err
    for text in texts:
        assert text in answer.err


def test_nodes(live: Argosy) -> None:
    names = [node["name"] for node in json.loads(live("nodes", "-o", "json").out)]
    assert len(names) == 2
    assert live("nodes", "drain", names[1]).err == f"{names[1]} is draining\n"
    table = live("nodes").out
    assert "draining" in table
    assert "GPUs held; policy fifo, backend fake" in table
    assert live("nodes", "undrain", names[1]).err == f"{names[1]} is up\n"


def test_users_and_their_tokens(live: Argosy, daemon: LiveDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine,) = submitted(live("submit", "--run", "fake seconds=0.1"))
    made = live("token", "add", "ann")
    assert made.code == 0
    secret = made.out.strip()
    number = next(t["id"] for t in json.loads(live("token", "list", "-o", "json").out) if t["owner"] == "ann")
    assert secret not in live("token", "list").out
    with monkeypatch.context() as ann:
        ann.setenv("ARGOSY_TOKEN", secret)
        (hers,) = submitted(live("submit", "--run", "fake seconds=0.1", "--name", "hers"))
        assert [job["id"] for job in json.loads(live("queue", "-a", "-o", "json").out)["jobs"]] == [hers]
        assert live("status", str(mine)).code == 102
        for arguments in (["token", "list"], ["nodes", "drain", "n1"], ["backup", "copy.db"]):
            refused = live(*arguments)
            assert refused.code == 1
            assert "only operators may do this" in refused.err
    assert live("status", str(hers)).code == 0
    assert live("token", "revoke", str(number)).code == 0
    monkeypatch.setenv("ARGOSY_TOKEN", secret)
    refused = live("queue")
    assert refused.code == 1
    assert "refuses the token" in refused.err


def test_a_backup_is_a_whole_database(live: Argosy, tmp_path: Path) -> None:
    submitted(live("submit", "--run", "fake seconds=0.1"))
    answer = live("backup", "copy.db")
    assert (answer.code, answer.out) == (0, "")
    copy = tmp_path / "copy.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    connection = sqlite3.connect(copy)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("SELECT count(*) FROM jobs").fetchone()[0] > 0
    connection.close()


def test_values_of_jobs_can_not_command_a_terminal(live: Argosy, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text('run: ["fake", "fail_launch=\\e]0;owned\\a\\u202e"]\nretries: 0\n')
    (number,) = submitted(live("submit", "job.yaml"))
    assert "\\x1b]0;owned\\x07" in live("wait", str(number), "--timeout", "5m").err
    for command in (["status", str(number)], ["queue", "-a"], ["explain", str(number)], ["history"]):
        shown = live(*command).out
        assert not any(character in shown for character in "\x1b\x07\u202e")
    assert "\\x1b]0;owned\\x07" in live("status", str(number)).out


def test_who_did_what(live: Argosy) -> None:
    number = str(submitted(live("submit", "--run", "fake seconds=60", "--name", "audited"))[0])
    assert live("cancel", number).code == 0
    found = json.loads(live("audit", "--job", number, "-o", "json").out)
    assert [entry["action"] for entry in found] == ["cancel", "submit"] and found[1]["detail"] == "audited"
    assert "audited" in live("audit", "--since", "1h", "--action", "submit", "-n", "5").out
    header, first, *_ = live("audit", "--job", number, "-o", "csv").out.splitlines()
    assert header.startswith("id,at,who") and f",cancel,job {number},done," in first
    assert live("audit", "--since", "2999-01-01").out.count("\n") <= 1
    wrong = live("audit", "--since", "yesterday")
    assert wrong.code == 2 and "yesterday" in wrong.err


def test_tokens_that_end_and_are_rotated(live: Argosy) -> None:
    made = json.loads(live("token", "add", "zoe", "--expires", "2d", "-o", "json").out)
    assert made["expires_at"] - made["created_at"] == 2 * 86_400
    assert "never expires" in live("token", "add", "script", "--expires", "never").err
    new = live("token", "rotate", str(made["id"]), "--keep-old", "0")
    assert new.code == 0 and new.out.startswith("argosy-") and "ends now" in new.err
    listed = live("token", "list").out
    assert "(expired)" in listed and "last used" in listed and new.out.strip() not in listed
    assert live("token", "add", "zoe", "--expires", "soon").code == 2


def test_limits_are_set_shown_enforced_and_cleared(live: Argosy) -> None:
    me = json.loads(live("audit", "-n", "1", "-o", "json").out)[0]["who"]
    assert live("limits", "set", me, "--gpus", "1", "--priority", "60", "--queues", "default").code == 0
    (row,) = (one for one in json.loads(live("limits", "-o", "json").out) if one["owner"] == me)
    assert (row["gpus"], row["priority"], row["queues"], row["queued"]) == (1.0, 60.0, ["default"], None)
    assert "0 of 1" in live("limits").out
    refused = live("submit", "--run", "fake seconds=1", "--gpus", "2")
    assert refused.code == 1 and f"{me} may hold only 1 at once" in refused.err and "ask an operator" in refused.err
    first, second = (submitted(live("submit", "--run", "fake seconds=600"))[0] for _ in range(2))
    end = time.monotonic() + 120
    while f"{me} holds 1 of 1 GPUs allowed" not in (told := live("explain", str(second)).out):
        assert time.monotonic() < end, told
        time.sleep(0.2)
    assert live("limits", "set", me, "--gpus", "none").code == 0
    while json.loads(live("status", str(second), "-o", "json").out)["state"] != "running":
        assert time.monotonic() < end
        time.sleep(0.2)
    assert live("cancel", str(first), str(second)).code == 0
    assert live("limits", "clear", me).code == 0 and live("limits", "clear", me).code == 2
    assert live("limits", "set", me).code == 2 and live("limits", "set", me, "--gpus", "many").code == 2
    unknown = live("limits", "set", me, "--queues", "defualt")
    assert unknown.code == 2 and "did you mean default" in unknown.err


def test_a_backup_makes_no_folders(live: Argosy, tmp_path: Path) -> None:
    answer = live("backup", "not/there/copy.db")
    assert answer.code == 2
    assert "not/there/copy.db: there is no folder 'not/there'" in answer.err and "mkdir -p not/there" in answer.err
    assert not list(tmp_path.iterdir())


def test_history_is_in_the_order_of_ends(live: Argosy) -> None:
    (slow,) = submitted(live("submit", "--run", "fake seconds=3", "--name", "ends-last"))
    (fast,) = submitted(live("submit", "--run", "fake seconds=0.1", "--name", "ends-first"))
    assert live("wait", str(slow), str(fast), "--timeout", "5m").code == 0
    entries = json.loads(live("history", "-o", "json").out)
    ends = [entry["ended_at"] for entry in entries]
    assert ends == sorted(ends, reverse=True)
    order = [entry["id"] for entry in entries]
    assert order.index(slow) < order.index(fast)
    assert [entry["id"] for entry in json.loads(live("history", "-o", "json", "-n", "1").out)] == order[:1]


@pytest.mark.parametrize(
    ("name", "text", "words", "command"),
    [
        ("job.sh", "#!/bin/sh\necho hello\n", ["job.sh"], "bash job.sh"),
        ("train.py", "import torch\n", ["train.py"], "python train.py"),
        ("start", "#!/bin/sh\n", ["start"], "./start"),
        ("x.py", "", ["--", "python", "x.py", "--epochs", "3"], "python x.py --epochs 3"),
    ],
)
def test_a_program_is_no_job_file(
    live: Argosy, tmp_path: Path, name: str, text: str, words: list[str], command: str
) -> None:
    (tmp_path / name).write_text(text)
    answer = live("submit", *words)
    assert answer.code == 2
    assert "not a job file" in answer.err
    assert f"argosy submit --run '{command}'" in answer.err or f"argosy submit --run {command}\n" in answer.err
