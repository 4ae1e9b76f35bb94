"""A database that is removed, replaced or overwritten under a daemon is noticed before anything else is written."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.live.errors import DatabaseLost
from argosy.live.store import Job, Store

JOB = Job(0, "a", "ann", "default", 50.0, '{"run":"true"}', "/tmp", None, None, (), 1.0, 2.0, 0.0, 0.0)


def add(store: Store) -> int:
    with store.transaction() as changes:
        return changes.add(replace(JOB)).id


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "argosy.db")
    add(opened)
    opened.backup(tmp_path / "copy.db")
    add(opened)
    yield opened
    opened.close()


def remove(path: Path) -> None:
    path.unlink()


def replace_by_copy(path: Path) -> None:
    path.with_name("copy.db").replace(path)


def overwrite(path: Path) -> None:
    shutil.copyfile(path.with_name("copy.db"), path)


def remove_log(path: Path) -> None:
    path.with_name("argosy.db-wal").unlink()


@pytest.mark.parametrize("harm", [remove, replace_by_copy, overwrite, remove_log])
def test_harm_is_noticed(store: Store, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    store.check()
    harm(store.path)
    with pytest.raises(DatabaseLost, match="while the daemon was using it"):
        add(store)
    with pytest.raises(DatabaseLost) as lost:
        store.check()
    (tmp_path / "aside").mkdir()
    saved = store.leave(lost.value, tmp_path / "aside")
    assert (saved is None) == (harm is overwrite)
    if saved is not None:  # all that was committed
        with closing(sqlite3.connect(saved)) as reading:
            assert reading.execute("SELECT count(*) FROM jobs").fetchone() == (2,)
    assert not (tmp_path / "argosy.db-wal").exists(), "it would be replayed into whatever comes there"
    assert (tmp_path / "argosy.db").exists() == (harm is replace_by_copy), "nobody goes on with a part of it"


def test_work_is_not_mistaken_for_harm(store: Store) -> None:
    for _ in range(20):
        add(store)
        store.query("PRAGMA wal_checkpoint(TRUNCATE)")
        store.check()
    with closing(sqlite3.connect(store.path)) as other:  # somebody looks, or tidies up
        other.execute("VACUUM")
    store.check()
    add(store)
