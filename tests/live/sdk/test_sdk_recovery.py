"""Workers are killed and stopped; the remaining ones go on from memory."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sdk_crew
import torch

from argosy.sdk.group.process_group import CONNECT

SCRIPT = Path(__file__).with_name("sdk_train.py")


def test_survivors_of_a_kill_go_on_and_lose_no_completed_step(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0, 1, 2)
    crew.wait_step(0, 5)
    crew.kill(0)  # the one that saves and reports
    killed = time.monotonic()
    for worker in (1, 2):
        crew.wait(worker, "broken", since=killed)
    done = max(message["step"] for when, _, message in crew.said if message["op"] in ("beat", "report", "broken"))
    version = crew.publish(1, 2, recover=True)
    steps = {crew.wait(worker, "switched", version=version)[1]["step"] for worker in (1, 2)}
    assert steps.pop() >= done  # and both agree
    assert not steps


def test_a_stopped_worker_is_taken_out(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0, 1, 2)
    crew.kill(2, signal.SIGSTOP)
    time.sleep(1.0)  # the others wait for it in the middle of a step
    before = crew.wait_step(0, 0)
    for worker in (0, 1):
        crew.send(worker, op="shut")
        crew.wait(worker, "broken")
    version = crew.publish(0, 1, recover=True)
    for worker in (0, 1):
        crew.wait(worker, "switched", version=version)
    assert crew.wait_step(0, before + 3)
    crew.kill(2)


def test_a_death_while_a_plan_is_taken_up(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT, PACE="0.05")
    crew.begin(0, 1)
    crew.start(2)
    crew.wait(2, "ready")
    crew.kill(2)
    crew.code(2)
    crew.publish(0, 1, 2)  # the supervisor has not noticed yet
    time.sleep(1.0)
    version = crew.publish(0, 1, recover=True)
    for worker in (0, 1):
        crew.wait(worker, "switched", version=version)
    crew.start(3)  # and somebody in its place
    crew.wait(3, "ready")
    version = crew.publish(0, 1, 3)
    for worker in (0, 1, 3):
        crew.wait(worker, "switched", version=version)


def test_every_sample_comes_once_although_workers_come_go_and_die(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(Path(__file__).with_name("sdk_once.py"), EPOCHS="2")
    crew.begin(0, 1)
    for worker in (2, 3):
        crew.start(worker)
        crew.wait(worker, "ready")
    crew.wait_step(0, 4)
    crew.publish(0, 1, 2, 3)  # where worker 1 kills itself
    for worker in (0, 2, 3):
        crew.wait(worker, "broken")
    version = crew.publish(0, 2, 3, recover=True)
    crew.wait(0, "switched", version=version)
    version = crew.publish(2, 3)
    for worker in (2, 3):
        crew.wait(worker, "done")
        assert crew.code(worker) == 0
    counted: dict[int, set[tuple[int, ...]]] = {}
    for path in crew.folder.glob("seen-*"):
        for line in path.read_text().splitlines():
            step, *numbers = map(int, line.split())
            counted.setdefault(step, set()).add(tuple(numbers))
    assert sorted(counted) == list(range(1, len(counted) + 1))  # no step is left out
    samples = [number for step in sorted(counted) for part in counted[step] for number in part]
    assert (crew.folder / "seen-1").read_text()  # the dead one had done its part before
    assert sorted(samples) == sorted([*range(256)] * 2)


def test_both_ends_have_the_same_weights(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT, EPOCHS="10", PACE="0.02")
    crew.begin(0, 1, 2)
    crew.kill(1)
    for worker in (0, 2):
        crew.wait(worker, "broken")
    crew.publish(0, 2, recover=True)
    for worker in (0, 2):
        crew.wait(worker, "done")
        assert crew.code(worker) == 0
    ends = [torch.load(crew.folder / f"end-{worker}.pt") for worker in (0, 2)]
    assert ends[0]["step"] == ends[1]["step"] == 40
    assert ends[0]["lr"] == ends[1]["lr"]
    for name, value in ends[0]["weights"].items():
        if "running" not in name:  # each worker's batch-norm sees its own samples
            assert torch.equal(value, ends[1]["weights"][name]), name


@pytest.mark.slow(25)
def test_a_long_pause_breaks_nothing(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    """The pause is longer than the connection time-out: one worker alone, then all together."""
    crew = crew_of(SCRIPT)
    crew.begin(0, 1, 2)
    for stopped in ((1,), (0, 1, 2)):
        for worker in stopped:
            crew.kill(worker, signal.SIGSTOP)
        time.sleep(CONNECT.total_seconds() + 1.0)
        for worker in stopped:
            crew.kill(worker, signal.SIGCONT)
        crew.wait_step(2, crew.wait_step(2, 0) + 2)
    assert not crew.all("broken")
