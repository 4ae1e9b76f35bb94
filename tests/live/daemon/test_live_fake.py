"""The fake backend: it does what its scripts say, refuses what must never be asked, and outlives its process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from live_cluster import CLUSTER, spec

from argosy.errors import InputError
from argosy.live.backends.base import Assignment, LaunchError, Part, Phase, Run, RunKey, Status
from argosy.live.backends.fake import FakeBackend, PlacementBroken, Script


def a_run(
    home: Path,
    job: int,
    *devices: int,
    generation: int = 1,
    version: int = 1,
    command: str = "fake seconds=10",
    paused: bool = False,
    milli: int = 1000,
    restore: tuple[str, ...] = (),
    node: str = "n0",
) -> Run:
    assignment = Assignment(version, (Part(node, devices, milli),), paused)
    return Run(RunKey(job, generation), assignment, spec(command).model_dump(mode="json"), home, restore)


class Bench:
    """A backend with a clock that stands still until it is moved."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.now, self.folder = 0.0, folder
        self.backend = FakeBackend(CLUSTER.nodes, clock=lambda: self.now, **options)

    def launch(self, *args: Any, **more: Any) -> None:
        asyncio.run(self.backend.launch(a_run(self.folder, *args, **more)))

    def stop(self, job: int, grace_s: float = 10.0) -> None:
        asyncio.run(self.backend.stop(RunKey(job, 1), grace_s))

    def after(self, seconds: float) -> dict[int, Status]:
        self.now += seconds
        return {status.key.job: status for status in asyncio.run(self.backend.poll())}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_run_from_start_to_end(bench: Bench) -> None:
    bench.launch(1, 0)
    assert bench.after(0.01)[1].phase is Phase.STARTING
    half = bench.after(5.0)[1]
    assert half.phase is Phase.RUNNING and half.report["progress"] == pytest.approx(0.5, abs=0.01)
    ended = bench.after(100.0)[1]
    assert (ended.phase, ended.exit_code, ended.report["done"]) == (Phase.EXITED, 0, True)
    asyncio.run(bench.backend.forget(RunKey(1, 1)))
    assert bench.after(0) == {}


def test_two_devices_are_twice_as_fast_once_they_are_there(bench: Bench) -> None:
    bench.launch(1, 0, command="fake seconds=10 start_s=0 change_s=1")
    bench.after(2.0)
    bench.launch(1, 0, 1, version=2)
    assert bench.after(0.5)[1].version == 1
    assert bench.after(0.5)[1].version == 2
    assert bench.after(3.5)[1].exit_code == 0


def test_a_stop_saves_and_the_next_generation_goes_on_from_there(bench: Bench) -> None:
    bench.launch(1, 0, command="fake seconds=10 start_s=0")
    bench.after(4.0)
    bench.stop(1)
    ended = bench.after(1.0)[1]
    assert ended.phase is Phase.EXITED and "done" not in ended.report
    path = ended.checkpoints[-1]["path"]
    bench.launch(1, 0, generation=2, restore=(path,), command="fake seconds=10 start_s=0")
    statuses = asyncio.run(bench.backend.poll())
    assert [s.report["step"] for s in statuses] == [40, 40]


def test_what_must_never_be_asked_is_refused(bench: Bench) -> None:
    bench.launch(1, 0)
    for wrong in ({"job": 2}, {"job": 1, "generation": 2, "node": "n1"}, {"job": 3, "milli": 500}):
        job = wrong.pop("job")
        with pytest.raises(PlacementBroken):
            bench.launch(job, 0, **wrong)
    assert len(bench.backend.violations) == 3 and set(bench.after(1.0)) == {1}
    bench.launch(1, 0)  # the same again is fine


def test_halves_and_turns_share_a_device(bench: Bench) -> None:
    bench.launch(1, 0, milli=500)
    bench.launch(2, 0, milli=500)
    bench.launch(3, 1)
    bench.after(1.0)
    bench.launch(3, 1, version=2, paused=True)
    with pytest.raises(PlacementBroken):
        bench.launch(4, 1)
    bench.after(1.0)
    bench.launch(4, 1)
    assert bench.after(1.0)[3].phase is Phase.PAUSED


def test_scripts(bench: Bench) -> None:
    with pytest.raises(LaunchError, match="nope"):
        bench.launch(1, 0, command="fake fail_launch=nope")
    with pytest.raises(LaunchError):
        bench.launch(1, 7)
    bench.launch(2, 0, command="fake seconds=5 crash_at=1")
    bench.launch(3, 1, command="fake hang")
    later = bench.after(60.0)
    assert later[2].exit_code == 1 and later[3].report["progress"] == 0
    bench.stop(3, 5.0)
    assert bench.after(4.9)[3].phase is Phase.STOPPING
    assert bench.after(0.2)[3].exit_code == -9
    with pytest.raises(InputError, match="has no parameter"):
        bench.launch(4, 1, command="fake second=3")
    with pytest.raises(InputError, match="not a number"):
        bench.launch(4, 1, command="fake exit=nan")
    assert Script.of(a_run(bench.folder, 1, command="sleep 3")).seconds == 3


def test_it_outlives_its_process(tmp_path: Path) -> None:
    first = Bench(tmp_path, state=tmp_path / "state")
    first.launch(1, 0)
    first.launch(2, 1)
    asyncio.run(first.backend.close())
    second = Bench(tmp_path, state=tmp_path / "state")
    second.now = 4.0
    left = asyncio.run(second.backend.adopt([a_run(tmp_path, 1, 0)]))
    assert [(s.key.job, s.phase) for s in left] == [(1, Phase.RUNNING)]
    with pytest.raises(PlacementBroken):
        second.launch(3, 0)
    asyncio.run(second.backend.close())
    third = FakeBackend(CLUSTER.nodes, state=tmp_path / "state")
    assert third.violations == second.backend.violations
    asyncio.run(third.close())
