"""Job numbers are used only once, even if the database is lost or replaced."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.live.durable_files import database_files, identity
from argosy.live.errors import StoreError
from argosy.live.store import Job, Store

JOB = Job(0, "a", "ann", "default", 50.0, '{"run":"true"}', "/tmp", None, None, (), 1.0, 2.0, 0.0, 0.0)


def add(store: Store, count: int = 1) -> list[int]:
    with store.transaction() as changes:
        return [changes.add(replace(JOB)).id for _ in range(count)]


def put(copy: Path, home: Path) -> None:
    """Replace the database by a copy, as a person would by hand."""
    for file in database_files(home / "argosy.db"):
        file.unlink(missing_ok=True)
    shutil.copy(copy, home / "argosy.db")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "jobs").mkdir(parents=True)
    return tmp_path / "home"


def test_a_copy_in_its_place_goes_on_above_all_numbers(home: Path, tmp_path: Path) -> None:
    store = Store(home / "argosy.db")
    add(store)
    store.backup(tmp_path / "copy.db")
    given_out = add(store, 5)
    store.close()
    put(tmp_path / "copy.db", home)
    store = Store(home / "argosy.db")
    assert list(store.jobs) == [1]
    assert add(store)[0] > max(given_out)
    store.close()


def test_a_copy_of_the_file_itself_is_recognised_too(home: Path, tmp_path: Path) -> None:
    store = Store(home / "argosy.db")
    add(store)
    store.close()
    shutil.copy(home / "argosy.db", tmp_path / "copy.db")
    store = Store(home / "argosy.db")
    given_out = add(store, 5)
    store.close()
    put(tmp_path / "copy.db", home)
    store = Store(home / "argosy.db")
    assert add(store)[0] > max(given_out)
    store.close()


def test_restarts_leave_no_gaps(home: Path) -> None:
    seen = []
    for _ in range(3):
        store = Store(home / "argosy.db")
        seen += add(store, 2)
        store.close()
    killed = Store(home / "argosy.db")
    seen += add(killed, 2)
    after = Store(home / "argosy.db")  # as after a kill: the other one was never closed
    seen += add(after)
    assert seen == list(range(1, 10))
    after.close()
    killed.close()


@pytest.mark.parametrize("numbers_too", [False, True])
def test_a_new_database_goes_on_above_the_old_folders(home: Path, numbers_too: bool) -> None:
    store = Store(home / "argosy.db")
    given_out = add(store, 7)
    (home / "jobs" / "7").mkdir()
    for stray in ("lost+found", "0099", "9" * 40):  # not ours: they count for nothing
        (home / "jobs" / stray).mkdir()
    store.close()
    for file in database_files(home / "argosy.db"):
        file.unlink(missing_ok=True)
    if numbers_too:
        (home / "numbers").unlink()
    store = Store(home / "argosy.db")
    (number,) = add(store)
    assert max(given_out) < number < 5000
    store.close()


def test_the_mark_is_written_ahead(home: Path) -> None:
    """The mark is not written for every job, but for the first of a thousand."""
    store = Store(home / "argosy.db")
    add(store)
    before = identity(home / "numbers")
    for _ in range(50):
        add(store)
    add(store, 900)
    assert identity(home / "numbers") == before
    add(store, 900)
    assert identity(home / "numbers") != before
    store.close()


def test_a_lost_database_is_not_begun_anew(home: Path) -> None:
    for content in (None, b""):
        if content is not None:
            (home / "argosy.db").write_bytes(content)
        with pytest.raises(StoreError, match="a daemon has worked here") as told:
            Store(home / "argosy.db", create=False)
        assert "argosy restore FILE" in str(told.value)
        assert not (home / "numbers").exists() and (home / "argosy.db").exists() == (content is not None)


def test_a_damaged_page_is_told(home: Path) -> None:
    store = Store(home / "argosy.db")
    add(store, 2000)
    store.close()
    size = (home / "argosy.db").stat().st_size
    with (home / "argosy.db").open("rb+") as file:  # everything but the first pages, so that it opens
        file.seek(size // 2)
        file.write(os.urandom(size - size // 2))
    with pytest.raises(StoreError, match=r"malformed|not a database|corrupt") as told:
        Store(home / "argosy.db")
    assert "argosy restore FILE" in str(told.value)
