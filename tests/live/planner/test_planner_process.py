"""The planner's process: decisions, failures, slow policies, kills; and no process is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from argosy.cluster.cluster import Cluster
from argosy.live.planner import process
from argosy.live.planner.messages import Active, JobFacts, Setup, Snapshot, Update
from argosy.live.planner.process import PlannerFailed, PlannerProcess

CLUSTER = Cluster.uniform(1, 2)
POLICIES = Path(__file__).with_name("planner_policies.py")
PATIENCE_S = 300.0


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE_S))


def jobs(*ids: int) -> tuple[Active, ...]:
    return tuple(Active(JobFacts(id, 1.0, float(id))) for id in ids)


@asynccontextmanager
async def planner(
    policy: str, snapshot: Callable[[], Snapshot] = Snapshot, **limits: float
) -> AsyncIterator[PlannerProcess]:
    made = PlannerProcess(Setup(CLUSTER, policy), snapshot, **limits)
    try:
        yield made
    finally:
        await made.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_decisions_reasons_and_memory_cross_the_pipe() -> None:
    async def test() -> None:
        async with planner("fifo", lambda: Snapshot(0.0, jobs(1, 2, 3))) as made:
            first = await made.plan(Update(5.0, jobs(9)))  # of which a process that has just started needs nothing
            assert set(first.running) == {1, 2} and first.asked
            assert (await made.why([1, 3, 77])).keys() == {3}
            second = await made.plan(Update(6.0, ended={1: "completed"}, remember=True))
            assert set(second.running) == {2, 3} and second.running[2] == first.running[2]
            assert second.memory == await made.memory() and made.starts == 1
            assert second.policy_ns > 0 and second.other_ns > 0
            pid = made.pid
            assert pid is not None
        assert not is_alive(pid)

    run(test())


@pytest.mark.parametrize(
    ("trouble", "what", "details"),
    [
        ("raise", "ValueError: no more ideas", "in rank"),
        ("die", "process has died", "these are my last words"),
        ("sleep", "took longer than 1 s", ""),
    ],
)
def test_what_fails_is_told_and_started_again_from_a_snapshot(
    trouble: str, what: str, details: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "FIRST_WAIT_S", 0.2)
    switch = tmp_path / "switch"
    known = [Snapshot(0.0, jobs(1))]

    async def test() -> None:
        policy = f"{POLICIES}:Fragile:switch={switch}"
        limit = 1.0 if trouble == "sleep" else 60.0
        async with planner(policy, lambda: known[0], time_limit_s=limit) as made:
            assert set((await made.plan(Update(1.0))).running) == {1}
            switch.write_text(trouble)
            with pytest.raises(PlannerFailed, match=what) as caught:
                await made.plan(Update(2.0, jobs(2)))
            assert details in caught.value.details and made.problem is caught.value and made.pid is None
            with pytest.raises(PlannerFailed, match=r"tried again in"):
                await made.plan(Update(2.1))
            switch.unlink()
            known[0] = Snapshot(3.0, jobs(1, 2))  # the daemon has job 2 in its database by now
            await asyncio.sleep(0.3)
            decision = await made.plan(Update(3.0))
            assert set(decision.running) == {1, 2} and made.problem is None and made.starts == 2

    run(test())


def test_waits_grow_while_it_fails_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(process, "LONGEST_WAIT_S", 0.03)
    switch = tmp_path / "switch"
    switch.write_text("raise")

    async def test() -> None:
        async with planner(f"{POLICIES}:Fragile:switch={switch}", lambda: Snapshot(0.0, jobs(1))) as made:
            waits = []
            for _ in range(3):
                with pytest.raises(PlannerFailed, match="no more ideas"):
                    await made.plan(Update(1.0))
                waits.append(made._wait_s)
                await asyncio.sleep(made._wait_s)
            assert waits == [0.01, 0.02, 0.03]

    run(test())


def test_a_plan_nobody_waits_for_any_more_does_not_answer_the_next_question(tmp_path: Path) -> None:
    switch = tmp_path / "switch"

    async def test() -> None:
        async with planner(f"{POLICIES}:Fragile:switch={switch}", lambda: Snapshot(0.0, jobs(1))) as made:
            await made.plan(Update(1.0))
            switch.write_text("sleep")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(made.plan(Update(2.0, jobs(2))), 0.5)
            switch.unlink()
            assert set((await made.plan(Update(3.0))).running) == {1}
            assert made.starts == 2

    run(test())


def test_an_unknown_policy_is_an_error_that_says_so() -> None:
    async def test() -> None:
        async with planner("fifi") as made:
            with pytest.raises(PlannerFailed, match="unknown policy 'fifi'"):
                await made.plan(Update(1.0))

    run(test())


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    """The daemon is killed in the middle of a long plan."""
    switch, pid_file = tmp_path / "switch", tmp_path / "pid"
    script = f"""
import asyncio, pathlib
from argosy.cluster.cluster import Cluster
from argosy.live.planner.messages import *
from argosy.live.planner.process import PlannerProcess
async def main():
    jobs = tuple(Active(JobFacts(i, 1.0, 0.0)) for i in (1, 2))
    setup = Setup(Cluster.uniform(1, 2), {f"{POLICIES}:Fragile:switch={switch}"!r})
    made = PlannerProcess(setup, lambda: Snapshot(0.0, jobs))
    await made.plan(Update(1.0))
    pathlib.Path({str(switch)!r}).write_text("sleep")
    pathlib.Path({str(pid_file)!r}).write_text(str(made.pid))
    await made.plan(Update(2.0, ask=True))
asyncio.run(main())
"""
    daemon = subprocess.Popen([sys.executable, "-c", script])
    pid = 0
    try:
        wait_until(lambda: pid_file.is_file() and pid_file.read_text() != "")
        pid = int(pid_file.read_text())
        assert is_alive(pid)
        daemon.kill()
        daemon.wait()
        wait_until(lambda: not is_alive(pid))
    finally:
        daemon.kill()
        daemon.wait()
        if pid and is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
