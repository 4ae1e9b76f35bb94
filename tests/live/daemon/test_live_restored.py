"""Daemons whose database was lost, replaced or restored notice it, and never mistake one job for another."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from fuzz_daemon import SteppedDaemon
from live_cluster import CLUSTER, LIMIT_S, live, spec
from random_planner import RandomPlanner

from argosy.cluster.cluster import Cluster
from argosy.errors import InputError
from argosy.live.api import create_app
from argosy.live.backends.base import Part, Placement
from argosy.live.backends.local.backend import LocalBackend
from argosy.live.daemon.daemon import Daemon
from argosy.live.errors import AlreadyServed, DatabaseLost, StoreError
from argosy.live.home import Home
from argosy.live.store import Store
from argosy.live.store.job_numbers import JobNumbers
from argosy.live.store.restore import prepared


def restore(home: Path, file: Path) -> None:
    with prepared(Home(home), file) as found:
        found.carry_out()


@asynccontextmanager
async def local_daemon(home: Path) -> AsyncIterator[Daemon]:
    """A daemon that really runs commands."""
    planner = RandomPlanner(CLUSTER, 0, True)
    backend = LocalBackend(home, CLUSTER.nodes, cuda=False)
    daemon = Daemon(Home(home), CLUSTER, "random", backend, planner=planner.attach, poll_s=0.02, switch_users=False)
    task = asyncio.create_task(daemon.run())
    ready = asyncio.create_task(daemon.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_S)
    ready.cancel()
    if task.done():
        task.result()
    try:
        yield daemon
    finally:
        daemon.stop()
        await asyncio.wait_for(task, LIMIT_S)


async def output_of(daemon: Daemon, number: int) -> tuple[str, str]:
    """Return how a job ended, and what it printed."""
    async with asyncio.timeout(LIMIT_S):
        while not daemon.service.job(number).state.ended:
            await asyncio.sleep(0.02)
    return daemon.service.job(number).state.value, daemon.service.log_path(number).read_text()


def test_a_new_job_is_not_taken_for_one_that_was_forgotten(tmp_path: Path) -> None:
    """Real processes: the job after a restore runs, and its log is its own."""
    home, copy = tmp_path / "home", tmp_path / "copy.db"

    async def scene() -> None:
        async with local_daemon(home) as daemon:
            (first,) = daemon.service.submit([spec("echo first")], "ann", "/")
            await output_of(daemon, first)
            daemon.service.backup(copy)
            (second,) = daemon.service.submit([spec("echo a secret of bob")], "bob", "/")
            assert await output_of(daemon, second) == ("succeeded", "a secret of bob\n")
        restore(home, copy)
        async with local_daemon(home) as daemon:
            assert [job.id for job in daemon.service.jobs()] == [first]
            (third,) = daemon.service.submit([spec("echo mine")], "ann", "/")
            assert third == second + 1
            assert await output_of(daemon, third) == ("succeeded", "mine\n")

    asyncio.run(scene())


def test_a_job_that_ran_since_the_copy_runs_again(tmp_path: Path) -> None:
    """Folders made after the copy are not mistaken for those of the new run."""
    home, copy = tmp_path / "home", tmp_path / "copy.db"
    told = tmp_path / "told"

    async def scene() -> None:
        async with local_daemon(home) as daemon:
            daemon.service.drain("n0", emptied=True)
            daemon.service.drain("n1", emptied=True)
            (number,) = daemon.service.submit([spec(f"echo ran >> {told}")], "ann", "/")
            daemon.service.backup(copy)
            daemon.service.undrain("n0")
            assert (await output_of(daemon, number))[0] == "succeeded"
        restore(home, copy)
        async with local_daemon(home) as daemon:
            daemon.service.undrain("n0")
            assert (await output_of(daemon, number))[0] == "succeeded"
            assert daemon.service.job(number).generation == 2
        assert told.read_text() == "ran\nran\n"

    asyncio.run(scene())


def test_a_start_that_the_copy_knows_ends_as_it_did(tmp_path: Path) -> None:
    """The copy has the run as starting, but it has ended and been forgotten: its exit record still tells how."""
    home = tmp_path / "home"

    async def scene() -> None:
        async with local_daemon(home) as daemon:
            (number,) = daemon.service.submit([spec("echo once")], "ann", "/")
            await output_of(daemon, number)
            with daemon.service.store.transaction() as changes:
                changes.execute("UPDATE jobs SET state = 'starting', ended_s = NULL WHERE id = ?", (number,))
                changes.execute("UPDATE runs SET ended_s = NULL, running_s = NULL WHERE job = ?", (number,))
            await asyncio.sleep(0.2)  # what it knows in memory is still that it has ended
        async with local_daemon(home) as daemon:
            assert await output_of(daemon, number) == ("succeeded", "once\n")
            assert daemon.service.job(number).generation == 1

    asyncio.run(scene())


def vanish(home: Path) -> None:
    (home / "argosy.db").unlink()


def overwrite(home: Path) -> None:
    shutil.copyfile(home.parent / "copy.db", home / "argosy.db")


@pytest.mark.parametrize("harm", [vanish, overwrite])
def test_a_database_that_is_lost_ends_the_daemon(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    home = tmp_path / "home"

    async def scene() -> None:
        async with live(home) as here:
            here.submit(spec("fake seconds=100"))
            here.service.backup(tmp_path / "copy.db")
            here.submit(spec("fake seconds=100"))
            harm(home)
            with pytest.raises(DatabaseLost):  # told at once, not after the fact
                here.submit(spec())
            await asyncio.sleep(0.5)

    with pytest.raises(DatabaseLost, match="the daemon has ended, jobs continue") as told:
        asyncio.run(scene())
    assert "argosy restore" in str(told.value)

    async def again(**options: bool) -> None:
        async with live(home, **options) as here:
            numbers.extend(here.submit(spec()))

    numbers: list[int] = []
    with pytest.raises(StoreError, match="a daemon has worked here"):  # not silently begun anew
        asyncio.run(again())
    if harm is vanish:
        (saved,) = home.glob("replaced-*/saved.db")
        restore(home, saved)
        asyncio.run(again())
        assert numbers[0] > 2
        with pytest.raises(InputError, match="exists already, and is not replaced"):
            asyncio.run(again(new_database=True))
    else:
        asyncio.run(again(new_database=True))
        assert numbers[0] > 2


def test_a_second_daemon_is_refused_though_the_lock_was_removed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path, app=create_app) as here:
            written = {name: (tmp_path / name).read_bytes() for name in ("address", "token")}
            (tmp_path / "lock").unlink()
            with pytest.raises(AlreadyServed):
                async with live(tmp_path, app=create_app):
                    pass
            assert {name: (tmp_path / name).read_bytes() for name in written} == written
            assert (tmp_path / "socket").exists() and here.service.health_summary()["ok"]

    asyncio.run(scene())


def test_it_removes_only_what_is_its_own(tmp_path: Path) -> None:
    async def scene() -> None:
        async with live(tmp_path, app=create_app):
            for name in ("address", "socket"):
                (tmp_path / name).unlink()
                (tmp_path / name).write_text("of another daemon")
        assert {(tmp_path / name).read_text() for name in ("address", "socket")} == {"of another daemon"}

    asyncio.run(scene())


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    """This also holds for a holder that was killed, and if the lock file was removed."""
    script = "import sys; from argosy.live.home import Home; home = Home(sys.argv[1]); home.create(); home.lock()\n"
    script += "print('locked', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdout.readline() == "locked\n"
        (tmp_path / "lock").unlink()
        with pytest.raises(AlreadyServed):
            Home(tmp_path).lock()
        other.send_signal(signal.SIGKILL)
        other.wait()
    mine = Home(tmp_path)
    mine.lock()
    mine.unlock()


def test_what_runs_when_the_database_is_restored_holds_no_device_unknown(tmp_path: Path) -> None:
    """The run has moved since the copy was made; the copy would give its new devices to another job."""
    cluster = Cluster.uniform(1, 2)
    daemon = SteppedDaemon(tmp_path, cluster, "random")
    daemon.start()
    daemon.random.calm = True
    token = daemon.home.token.read_text().strip()
    job = {"run": "fake seconds=100 every=1 change_s=2"}
    for order_is_in_force in (False, True):
        asked = daemon.ask("POST", "/v1/jobs", token, {"jobs": [job], "workdir": "/tmp"})
        assert asked is not None
        (number,) = asked.body["ids"]
        for _ in range(8):
            daemon.advance(0.5)
        copy = daemon.ask("POST", "/v1/backup", token)
        assert copy is not None
        (tmp_path / "copy.db").write_bytes(copy.content)
        (here,) = daemon.random.placements[number].parts[0].devices
        daemon.random.placements[number] = Placement((Part("n0", (1 - here,)),))  # it moves
        for _ in range(10 if order_is_in_force else 2):
            daemon.advance(0.4)
        daemon.kill()
        daemon.restore(tmp_path / "copy.db")
        daemon.start()
        daemon.random.calm = True
        more = daemon.ask("POST", "/v1/jobs", token, {"jobs": [job], "workdir": "/tmp"})
        assert more is not None
        for _ in range(20):
            daemon.advance(0.5)
        assert not daemon.backend.violations
        states = dict(daemon.rows("SELECT id, state FROM jobs WHERE ended_s IS NULL"))
        assert states == {number: "running", more.body["ids"][0]: "running"}
        for ended in (number, more.body["ids"][0]):
            daemon.ask("DELETE", f"/v1/jobs/{ended}", token, now=True)
        for _ in range(4):
            daemon.advance(0.5)
    daemon.close()


def test_a_daemon_that_is_killed_while_it_stamps_its_database_still_knows_it(tmp_path: Path) -> None:
    """Whatever it had written by then, the next one finds its runs again."""
    Home(tmp_path).create()
    Store(tmp_path / "argosy.db").close()
    with closing(sqlite3.connect(tmp_path / "argosy.db")) as database:
        (stamp,) = database.execute("PRAGMA application_id").fetchone()
    JobNumbers(tmp_path).begin(77, 0, stamp)  # it was killed right after this
    store = Store(tmp_path / "argosy.db")
    assert not store.is_replaced
    store.close()
    assert JobNumbers(tmp_path).is_replaced(stamp), "an older copy of the file would be another database"


def test_a_copy_is_distrusted_until_all_that_ran_has_been_ended(tmp_path: Path) -> None:
    """If the daemon is killed before that, the next one does it."""
    Home(tmp_path).create()
    first = Store(tmp_path / "argosy.db")
    first.backup(tmp_path / "copy.db")
    first.close()
    restore(tmp_path, tmp_path / "copy.db")
    for _ in range(2):
        store = Store(tmp_path / "argosy.db")
        assert store.is_replaced
        store.close()
    store = Store(tmp_path / "argosy.db")
    store.trust()
    store.close()
    again = Store(tmp_path / "argosy.db")
    assert not again.is_replaced
    again.close()
