"""What the daemon relies on, for every backend: fake, local, and a cluster of plain hosts, of Slurm and of Ray."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_field import EngineField
from field import Field
from yard import PYTHON, SDK_WORKER, Yard, wait_until

from argosy.cluster.cluster import Cluster
from argosy.live.backends.base import LaunchError, Phase
from argosy.live.backends.fake import FakeBackend

pytestmark = pytest.mark.slow(60)
FOREVER = f"{PYTHON} {SDK_WORKER} 1000000"


class FakeYard(Yard):
    """The fake backend behind the same calls. What would be seen on this machine is not there."""

    def another_backend(self) -> FakeBackend:  # type: ignore[override]
        self.backend = FakeBackend(Cluster.uniform(3, 2).nodes, state=self.home / "fake.db")  # type: ignore[assignment]
        return self.backend  # type: ignore[return-value]

    def launch(self, command: Any, *place: Any, **more: Any) -> Any:
        return super().launch("fake seconds=1000000" if command == FOREVER else command, *place, **more)

    def complaints(self, key: Any) -> str:
        return ""


@pytest.fixture(params=["fake", "local", "hosts", "slurm", "ray"], scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A backend with at least two nodes that have two devices each; `cluster.names` are its nodes."""
    folder, made = tmp_path_factory.mktemp(request.param), None
    if request.param == "fake":
        made = FakeYard(folder / "home", folder)
        made.names = ["n0", "n1"]
    elif request.param == "local":
        made = Yard(folder / "home", folder / "zygotes")
        made.names = ["n1", "n2"]
    elif request.param == "hosts":
        made = Field(request.getfixturevalue("network"), "conformance")
        made.names = ["h1", "h2"]
        made.start_agents()
    else:
        made = EngineField(folder / "home", request.getfixturevalue(f"{request.param}_engine"))
        made.names = made.nodes
        made.wait_up()
    yield made
    if hasattr(made, "end_field"):
        made.end_field()
    elif request.param == "local":
        made.clear()


JOBS = itertools.count(1)


@pytest.fixture
def run(cluster: Any) -> Iterator[Callable[..., Any]]:
    """Launch a new job; it is ended and forgotten after the test."""
    keys = []

    def launch(command: str = FOREVER, place: dict[str, list[int]] | None = None, **more: Any) -> Any:
        where = place or {cluster.names[0]: [0]}
        keys.append(cluster.launch(command, where, **{"job": next(JOBS), **more}))
        return keys[-1]

    yield launch
    for key in dict.fromkeys(keys):
        cluster.stop(key, 0.0)
        wait_until(lambda key=key: cluster.poll()[key].phase is Phase.EXITED if key in cluster.poll() else True)
        asyncio.run(cluster.backend.forget(key))
    cluster.runs = []


def test_its_nodes_are_up_and_keep_their_order(cluster: Any) -> None:
    first, second = (asyncio.run(cluster.backend.nodes()) for _ in range(2))
    assert [status.node for status in first] == [status.node for status in second]
    assert all(status.up for status in first), [status.message for status in first]


def test_a_command_ends_with_its_code_and_is_reported_until_it_is_forgotten(cluster: Any, run: Any) -> None:
    key = run("sleep 0.2")
    assert cluster.end(key).exit_code == 0
    assert cluster.poll()[key].phase is Phase.EXITED
    asyncio.run(cluster.backend.forget(key))
    assert key not in cluster.poll()


def test_launch_may_be_repeated(cluster: Any, run: Any) -> None:
    key = run()
    running = cluster.wait(key, lambda status: status.phase is Phase.RUNNING and status.hot)
    asyncio.run(cluster.backend.launch(cluster.runs[-1]))
    assert cluster.poll()[key].restarts == running.restarts == 0
    assert list(cluster.poll()).count(key) == 1


def test_stop_lets_a_run_leave_or_kills_it(cluster: Any, run: Any) -> None:
    key = run()
    cluster.wait(key, lambda status: status.phase is Phase.RUNNING and status.hot)
    cluster.stop(key, 20.0)
    assert cluster.end(key).exit_code is not None  # zero or not: that is up to the command
    other = run("sleep 1000")
    cluster.wait(other, lambda status: status.phase is Phase.RUNNING)
    cluster.stop(other, 0.0)
    cluster.stop(other, 0.0)
    assert cluster.end(other).exit_code not in (0, None)


def test_a_run_gets_exactly_the_devices_it_is_given_and_moves_to_others_while_it_runs(cluster: Any, run: Any) -> None:
    first, second = cluster.names[:2]
    key = run(place={first: [0]})
    cluster.wait(key, lambda status: status.hot and status.report.get("step", 0) > 0)
    for version, place in ((2, {first: [0], second: [0, 1]}), (3, {second: [1]})):
        cluster.launch(FOREVER, place, job=key.job, version=version)
        changed = cluster.wait(key, lambda status, v=version: status.version == v)
        assert changed.phase is Phase.RUNNING and changed.restarts == 0
    done = cluster.poll()[key].report["step"]
    cluster.wait(key, lambda status: status.report["step"] > done)


def test_a_lower_version_is_ignored(cluster: Any, run: Any) -> None:
    key = run()
    cluster.wait(key, lambda status: status.hot)
    order = cluster.runs[-1]
    cluster.launch(FOREVER, {cluster.names[0]: [1]}, job=key.job, version=2)
    cluster.wait(key, lambda status: status.version == 2)
    asyncio.run(cluster.backend.launch(order))
    time.sleep(0.5)
    assert cluster.poll()[key].version == 2


def test_a_paused_run_makes_no_steps(cluster: Any, run: Any) -> None:
    key = run()
    cluster.wait(key, lambda status: status.hot and status.report.get("step", 0) > 0)
    cluster.launch(FOREVER, {cluster.names[0]: [0]}, job=key.job, version=2, paused=True)
    cluster.wait(key, lambda status: status.phase is Phase.PAUSED)
    cluster.launch(FOREVER, {cluster.names[0]: [0]}, job=key.job, version=3)
    cluster.wait(key, lambda status: status.version == 3 and status.phase is Phase.RUNNING)


@pytest.mark.parametrize("place", [{"nowhere": [0]}, {}])
def test_an_order_that_can_never_be_carried_out_is_refused(cluster: Any, place: dict[str, list[int]]) -> None:
    if isinstance(cluster, FakeYard):
        pytest.skip("the fake backend reports wrong places as the daemon's violations")
    run = cluster.launch
    with pytest.raises(LaunchError):
        run(FOREVER, place or {cluster.names[0]: [99]}, job=next(JOBS))
    cluster.runs.pop()


def test_the_next_daemon_finds_what_runs_and_ends_what_it_does_not_know(cluster: Any, run: Any) -> None:
    kept, stray = run(), run(place={cluster.names[1]: [0]})
    for key in (kept, stray):
        cluster.wait(key, lambda status: status.hot)
    orders = [order for order in cluster.runs if order.key == kept]
    asyncio.run(cluster.backend.close())
    cluster.another_backend()
    statuses = asyncio.run(cluster.backend.adopt(orders))
    assert [status.key for status in statuses] == [kept]
    assert statuses[0].exit_code is None
    assert stray not in cluster.poll() or cluster.poll()[stray].phase is Phase.EXITED
    if hasattr(cluster, "wait_up"):
        cluster.wait_up(*cluster.names[:2])


def test_preparation_is_optional_and_harmless(cluster: Any, run: Any) -> None:
    asyncio.run(cluster.backend.prepare(None, None))
    key = run("sleep 0.1")
    asyncio.run(cluster.backend.prepare(cluster.runs[-1].spec, None))
    assert cluster.end(key).exit_code == 0


def test_what_a_run_prints_is_in_its_log(cluster: Any, run: Any, tmp_path: Path) -> None:
    if isinstance(cluster, FakeYard):
        pytest.skip("fake runs print nothing")
    key = run("echo here; echo there >&2; exit 4")
    assert cluster.end(key).exit_code == 4
    assert sorted(cluster.log(key).split()) == ["here", "there"]
