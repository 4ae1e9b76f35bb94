"""Old checkpoints are removed; the committed ones, those that a run may restore and those being written stay."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from live_cluster import live, spec

from argosy.live.backends.base import Part
from argosy.live.daemon.pruning import Leftovers, candidates, leftovers, remove
from argosy.live.states import State
from argosy.live.store import Job, RunRow, Store


def saved(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).mkdir(parents=True)
        (folder / path / "state.pt").write_text("work")


def left(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("gen-*/*"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "argosy.db")


def a_job(store: Store, state: State, generation: int, *paths: str) -> int:
    with store.transaction() as changes:
        job = changes.add(Job(0, "a", "ann", "q", 50.0, '{"run":"x"}', "/", None, None, (), 1.0, 1.0, 0.0, 0.0))
        for path in paths:
            of = int(path.partition("/")[0][4:])
            changes.checkpoint(job.id, of, {"path": path, "step": int(path.rpartition("-")[2])})
    with store.transaction() as changes:
        changes.save(replace(job, state=State.STARTING, generation=generation))
        if state is State.RUNNING:
            changes.save_run(RunRow(job.id, generation, 1, (Part("n0", (0,)),), 1.0, 2.0, 1.0))
    with store.transaction() as changes:
        ended_s = store.clock.now() if state.ended else None
        changes.save(replace(job, state=state, generation=generation, ended_s=ended_s))
    return job.id


ALL = (
    "gen-1/step-5",
    "gen-1/step-9",
    "gen-2/.writing-step-12-0a1b2c3d",
    "gen-2/step-12",
    "gen-2/step-15",
    "gen-3/step-20",
)


def test_while_it_runs_its_own_folder_is_left_alone(store: Store, tmp_path: Path) -> None:
    number = a_job(store, State.RUNNING, 3, "gen-1/step-9", "gen-2/step-12")
    saved(tmp_path / "c", *ALL)
    remove(tmp_path / "c", leftovers(store, number))
    assert left(tmp_path / "c") == ["gen-1/step-9", "gen-2/step-12", "gen-3/step-20"]
    assert candidates(store) == {number}
    store.close()


def test_while_it_waits_only_what_counts_stays(store: Store, tmp_path: Path) -> None:
    number = a_job(store, State.PENDING, 3, "gen-1/step-9", "gen-2/step-12")
    saved(tmp_path / "c", *ALL)
    remove(tmp_path / "c", leftovers(store, number))
    assert left(tmp_path / "c") == ["gen-1/step-9", "gen-2/step-12"]
    store.close()


def test_of_a_job_that_has_ended_the_last_one_stays(store: Store, tmp_path: Path) -> None:
    number = a_job(store, State.FAILED, 3, "gen-1/step-9", "gen-2/step-12")
    saved(tmp_path / "c", *ALL)
    assert candidates(store) == {number}
    remove(tmp_path / "c", leftovers(store, number))
    assert left(tmp_path / "c") == ["gen-2/step-12"]
    assert [one.path for one in store.checkpoints(number)] == ["gen-2/step-12"]
    store.close()


def test_links_lead_nowhere_and_other_folders_stay(tmp_path: Path) -> None:
    """A job may put anything into its own folders, and pruning must not follow it."""
    saved(tmp_path / "outside", "gen-1/step-1")
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "gen-1").symlink_to(tmp_path / "outside" / "gen-1")
    (folder / "gen-2").mkdir()
    (folder / "gen-2" / "step-1").symlink_to(tmp_path / "outside")
    saved(folder, "gen-3/my-own-folder", "gen-3/step-4")
    remove(folder, Leftovers(9, ()))
    assert left(folder) == ["gen-1/step-1", "gen-3/my-own-folder"], "a link goes, what it leads to stays"
    assert left(tmp_path / "outside") == ["gen-1/step-1"]
    (tmp_path / "d").symlink_to(tmp_path / "outside")
    remove(tmp_path / "d", Leftovers(9, ()))
    remove(tmp_path / "missing", Leftovers(9, ()))
    assert left(tmp_path / "outside") == ["gen-1/step-1"]


def test_the_daemon_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.live.daemon.housekeeping.FLUSH_EVERY_S", 0.05)

    async def scene() -> None:
        async with live(tmp_path) as here:
            (number,) = here.submit(spec("fake seconds=0.6 every=0.1"))
            folder = here.daemon.home.checkpoints(number)
            saved(folder, "gen-1/step-3", "gen-1/step-99")
            assert await here.ended(number) == ["succeeded"]
            await here.until(lambda: left(folder) == [], "those that never counted to go")
            await here.until(lambda: len(here.service.store.checkpoints(number)) == 1, "one that counts")

    asyncio.run(scene())
