"""The database: atomic transactions, memory equal to the disk, migrations, copies, a full disk."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.live.backends.base import Part
from argosy.live.clock import Clock
from argosy.live.errors import NoSpace, StoreError
from argosy.live.states import IllegalTransition, State, Stop
from argosy.live.store import Job, RunRow, Store, database, schema

JOB = Job(0, "a", "ann", "default", 50.0, '{"run":"true"}', "/tmp", None, None, (), 1.0, 2.0, 0.0, 0.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "argosy.db")
    yield opened
    opened.close()


def add(store: Store, **more: object) -> Job:
    with store.transaction() as changes:
        return changes.add(replace(JOB, **more))  # type: ignore[arg-type]


def run_of(job: Job, **more: object) -> RunRow:
    parts = (Part("n0", (0, 1)), Part("n1", (2,), 500, 1))
    return replace(RunRow(job.id, 1, 1, parts, 1.0, 2.0, 1.0), **more)  # type: ignore[arg-type]


def test_a_failed_block_changes_nothing(store: Store) -> None:
    job = add(store)
    with pytest.raises(ZeroDivisionError), store.transaction() as changes:
        changes.add(JOB)
        changes.save(replace(job, state=State.CANCELLED))
        1 / 0  # noqa: B018
    assert list(store.jobs) == [job.id] and store.jobs[job.id].state is State.PENDING
    assert store.query("SELECT count(*) FROM jobs") == [(1,)]


def test_what_comes_back_is_what_was_written(store: Store, tmp_path: Path) -> None:
    job = add(store, after=(3, 4))
    changed = replace(
        job,
        state=State.STARTING,
        generation=1,
        failures=2,
        not_before_s=9.5,
        hot=True,
        report={"step": 3},
        message="é",
        started_s=1.0,
        gpu_s=2.5,
    )
    run = run_of(job, former=(Part("n0", (1,)),), stop=Stop.MOVED, paused=True)
    with store.transaction() as changes:
        changes.save(changed)
        changes.save_run(run)
    other = Store(tmp_path / "argosy.db")
    assert other.jobs == {job.id: changed} and other.runs == {job.id: run}
    assert other.run(job.id, 1) == run and other.job(job.id) == changed
    other.close()


def test_ended_jobs_leave_memory_and_stay_on_disk(store: Store) -> None:
    job = add(store)
    with store.transaction() as changes:
        changes.save(replace(job, state=State.CANCELLED, message="x"))
    assert store.jobs == {}
    found = store.job(job.id)
    assert found is not None and found.message == "x" and store.job_state(job.id) is State.CANCELLED
    assert add(store).id == job.id + 1, "numbers are never given out twice"


def test_illegal_steps_are_stopped_before_they_are_written(store: Store) -> None:
    job = add(store)
    with pytest.raises(IllegalTransition), store.transaction() as changes:
        changes.save(replace(job, state=State.RUNNING))
    assert store.query("SELECT state FROM jobs") == [("pending",)]


def test_only_the_newest_two_checkpoints_count(store: Store) -> None:
    job = add(store)
    with store.transaction() as changes:
        for generation, step in ((1, 10), (1, 30), (2, 20)):
            assert changes.checkpoint(job.id, generation, {"path": f"gen-{generation}/step-{step}", "step": step})
        assert not changes.checkpoint(job.id, 2, {"path": "gen-2/step-20", "step": 20})
    assert [c.path for c in store.checkpoints(job.id)] == ["gen-2/step-20", "gen-1/step-30"]


def test_reports_reach_the_disk_with_the_next_flush(store: Store) -> None:
    job = add(store)
    store.reports[job.id] = {"step": 7}
    store.flush_reports()
    assert store.query("SELECT report FROM jobs") == [('{"step": 7}',)] and store.jobs[job.id].report == {"step": 7}


def test_a_database_from_the_future_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "argosy.db"
    Store(path).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    database.close()
    with pytest.raises(StoreError, match="newer"):
        Store(path)


def test_steps_are_taken_from_any_version_and_whole(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    steps = ("CREATE TABLE a (x)", "INSERT INTO a VALUES (1)", "INSERT INTO a VALUES (2)")
    schema.migrate(database, steps[:1])
    schema.migrate(database, steps)
    schema.migrate(database, steps)
    assert database.execute("SELECT x FROM a").fetchall() == [(1,), (2,)]
    with pytest.raises(sqlite3.Error):
        schema.migrate(database, (*steps, "INSERT INTO a VALUES (3); INSERT INTO missing VALUES (1)"))
    assert database.execute("SELECT count(*) FROM a").fetchall() == [(2,)]
    assert database.execute("PRAGMA user_version").fetchone() == (3,)
    database.close()


def test_what_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "argosy.db").write_text("nothing of the kind" * 100)
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path / "argosy.db")


def test_a_copy_while_it_is_in_use(store: Store, tmp_path: Path) -> None:
    job = add(store)
    store.backup(tmp_path / "copy.db")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    add(store)
    copy = Store(tmp_path / "copy.db")
    assert list(copy.jobs) == [job.id]
    copy.close()
    assert stat.S_IMODE((tmp_path / "argosy.db").stat().st_mode) == 0o600


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB; needs the right to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True)
    if done.returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_loses_nothing_and_goes_on(small_disk: Path) -> None:
    store = Store(small_disk / "argosy.db")
    job = add(store)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    with pytest.raises(NoSpace, match="full"):
        for _ in range(2000):
            add(store, spec_json='{"run": "' + "x" * 10_000 + '"}')
    before = dict(store.jobs)
    assert job.id in before and store.query("SELECT count(*) FROM jobs") == [(len(before),)]
    filler.unlink()
    after = add(store)
    assert store.jobs == {**before, after.id: after}
    store.close()
    again = Store(small_disk / "argosy.db")
    assert again.jobs == {**before, after.id: after}
    again.close()


def test_not_every_fault_of_a_disk_is_a_full_one(small_disk: Path, tmp_path: Path) -> None:
    fault = sqlite3.OperationalError("disk I/O error")
    fault.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    assert not database.is_full(fault, tmp_path)
    with (small_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    assert database.is_full(fault, small_disk)


def test_a_database_of_the_first_version_is_brought_to_the_newest(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "argosy.db", isolation_level=None)
    schema.migrate(old, schema.STEPS[:1])
    old.execute(
        "INSERT INTO jobs (name, owner, queue, priority, spec, workdir, after, gpus_low, gpus_high, submitted_s,"
        " submitted_at, state, losses) VALUES ('a', 'ann', 'q', 50, '{\"run\":\"x\"}', '/', '[]', 1, 1, 0, 0,"
        " 'pending', 3)"
    )
    old.close()
    store = Store(tmp_path / "argosy.db")
    assert [(job.losses, job.unlaunched) for job in store.jobs.values()] == [(3, 0)]
    with store.transaction() as changes:
        changes.save(replace(store.jobs[1], unlaunched=2))
    store.close()
    again = Store(tmp_path / "argosy.db")
    assert again.jobs[1].unlaunched == 2
    again.close()


def test_the_clock_goes_on_and_never_back() -> None:
    time, wall = [100.0], [5e8]
    clock = Clock(lambda: time[0], lambda: wall[0], "boot 1")
    time[0] += 10
    wall[0] -= 1e6  # somebody sets the clock back
    assert clock.now() == 10.0
    mark = clock.mark()
    time[0] += 5
    wall[0] += 9e6
    same_boot = Clock(lambda: time[0], lambda: wall[0], "boot 1")
    same_boot.resume(mark)
    assert same_boot.now() == 15.0
    wall[0] = mark["wall"] + 60
    after_reboot = Clock(lambda: 1.0, lambda: wall[0], "boot 2")
    after_reboot.resume(mark)
    assert after_reboot.now() == 70.0
    wall[0] = mark["wall"] - 60
    backwards = Clock(lambda: 1.0, lambda: wall[0], "boot 2")
    backwards.resume(mark)
    assert backwards.now() == 10.0
