"""`argosy restore` and what `argosy serve` says of databases it cannot use, with real daemons."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command_line import Argosy
from live_daemon import LIMIT_S, LiveDaemon, live_daemon

from argosy.cli.restore import ranges
from argosy.live.store import Store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("ARGOSY_HOME", str(folder))
    for name in ("ARGOSY_API", "ARGOSY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return folder


def numbers(argosy: Argosy) -> list[int]:
    return sorted(job["id"] for job in json.loads(argosy("queue", "-a", "-o", "json").out)["jobs"])


def refused(home: Path, *options: str) -> tuple[int, str]:
    """Return how a daemon that refuses to start ends."""
    daemon = LiveDaemon(home, "--cluster", "fake", "--policy", "fifo", *options)
    try:
        return daemon.process.wait(LIMIT_S), daemon.told()
    finally:
        daemon.clean_up()


def test_back_to_a_copy(argosy: Argosy, home: Path, tmp_path: Path) -> None:
    """After kill -9 the write-ahead log is still there; it must not be replayed into the copy."""
    copy = tmp_path / "copy.db"
    with live_daemon(home) as daemon:
        (tmp_path / "few.yaml").write_text("run: fake seconds=100000\narray: 3\n")
        (tmp_path / "many.yaml").write_text("run: fake seconds=100000\narray: 200\n")
        assert argosy("submit", str(tmp_path / "few.yaml")).code == 0
        assert argosy("backup", str(copy)).code == 0
        assert argosy("submit", str(tmp_path / "many.yaml")).code == 0
        assert argosy("cancel", "2").code == 0
        assert argosy("wait", "2", "--timeout", "5m").code == 103
        busy = argosy("restore", str(copy), "--yes")
        assert busy.code == 2 and "a daemon already works on" in busy.err
        daemon.end(signal.SIGKILL)
    assert (home / "argosy.db-wal").stat().st_size > 0
    unasked = argosy("restore", str(copy))
    assert unasked.code == 2 and "--yes" in unasked.err
    told = argosy("restore", str(copy), "--yes")
    assert told.code == 0, told.err
    for text in ("intact, 3 jobs", "200 newer jobs (4–203)", "will run again: 1 job ", "events since", "replaced-"):
        assert text in told.err
    (aside,) = home.glob("replaced-*")
    assert {"argosy.db", "argosy.db-wal"} <= set(os.listdir(aside))
    with live_daemon(home) as daemon:
        assert numbers(argosy) == [1, 2, 3]
        assert argosy("submit", "--run", "fake seconds=0.1").out.split() == ["204"], "never used before"
        assert daemon.end() == 0
    back = argosy("restore", str(aside / "argosy.db"), "--yes")  # with the log beside it
    assert back.code == 0 and "intact, 203 jobs" in back.err, back.err


def test_copies_that_are_none(argosy: Argosy, home: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "argosy.db")
    store.backup(tmp_path / "good.db")
    store.close()
    (tmp_path / "text.db").write_text("no database at all\n" * 1000)
    (tmp_path / "empty.db").touch()
    for name in ("damaged", "future", "trigger"):
        shutil.copy(tmp_path / "good.db", tmp_path / f"{name}.db")
    with (tmp_path / "damaged.db").open("rb+") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096 * 3)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT)")
        other.execute("PRAGMA user_version = 1")
    with closing(sqlite3.connect(tmp_path / "future.db")) as future:
        future.execute("PRAGMA user_version = 99")
    with closing(sqlite3.connect(tmp_path / "trigger.db")) as hostile:
        hostile.execute("CREATE TRIGGER own AFTER INSERT ON tokens BEGIN UPDATE tokens SET role = 'operator'; END")
    told = {
        "text": "cannot be read as a database",
        "empty": "not a database of Argosy",
        "damaged": "damaged",
        "other": "not a database of Argosy",
        "future": "version 99",
        "trigger": "not a database of Argosy",
        "missing": "there is no such file",
    }
    for name, text in told.items():
        answer = argosy("restore", str(tmp_path / f"{name}.db"), "--yes")
        assert answer.code == 2 and text in answer.err, (name, answer)
        assert not (home / "argosy.db").exists() and not list(home.glob(".restore-*"))
    good = argosy("restore", str(tmp_path / "good.db"), "--yes")
    assert good.code == 0 and "there is no database now" in good.err
    itself = argosy("restore", str(home / "argosy.db"), "--yes")
    assert itself.code == 2 and "the database itself" in itself.err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of others")
def test_what_others_have_put_beside_a_copy_is_not_believed(argosy: Argosy, home: Path, tmp_path: Path) -> None:
    Store(tmp_path / "copy.db").close()
    (tmp_path / "copy.db-wal").touch()
    os.chown(tmp_path / "copy.db-wal", 65534, 65534)
    answer = argosy("restore", str(tmp_path / "copy.db"), "--yes")
    assert answer.code == 2 and "belongs to another user" in answer.err and not (home / "argosy.db").exists()


@pytest.mark.parametrize("content", [b"not a database, but long enough to be taken for one\n" * 200, None, b""])
def test_a_database_that_cannot_be_used_is_told(home: Path, content: bytes | None) -> None:
    """The message has no traceback, but says what is wrong and names the next step."""
    (home / "jobs" / "1").mkdir(parents=True)
    if content is not None:
        (home / "argosy.db").write_bytes(content)
    code, told = refused(home)
    assert code == 1 and "Traceback" not in told
    assert "argosy restore FILE" in told and str(home / "argosy.db") in told


def test_a_damaged_page_is_told_when_it_starts(home: Path) -> None:
    (home / "jobs").mkdir(parents=True)
    Store(home / "argosy.db").close()
    size = (home / "argosy.db").stat().st_size
    with (home / "argosy.db").open("rb+") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    code, told = refused(home)
    assert code == 1 and "Traceback" not in told and "argosy restore FILE" in told


def test_ranges_of_numbers() -> None:
    assert ranges([2, 4, 5, 6, 9]) == "2, 4–6, 9"
    assert ranges(range(1, 40, 2)) == "1, 3, 5, 7, 9, 11, 13, 15, …"
