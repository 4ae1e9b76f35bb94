"""Resizing while the training runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sdk_crew

SCRIPT = Path(__file__).with_name("sdk_train.py")


def test_a_run_grows_and_shrinks_without_a_restart(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0)
    crew.start(1)
    crew.wait(1, "ready")
    version = crew.publish(0, 1)
    for worker in (0, 1):
        crew.wait(worker, "switched", version=version)
    for worker in (2, 3):
        crew.start(worker)
    for worker in (2, 3):
        crew.wait(worker, "ready")
    version = crew.publish(0, 1, 2, 3)
    steps = {crew.wait(worker, "switched", version=version)[1]["step"] for worker in range(4)}
    assert len(steps) == 1  # all did their first step of the new plan together
    version = crew.publish(0, 2, 3)
    crew.wait(1, "left", version=version)
    assert crew.code(1) == 0
    for worker in (0, 2, 3):
        crew.wait(worker, "switched", version=version)
    version = crew.publish(3)  # also the first worker may go
    crew.wait(3, "switched", version=version)
    assert crew.code(0) == crew.code(2) == 0


@pytest.mark.slow
def test_many_resizes_leave_nothing_behind(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0)
    sizes, newest, members = (2, 4, 3, 1), 0, [0]
    after: list[tuple[int, int, int]] = []
    for turn in range(52):
        size = sizes[turn % 4]
        while len(members) < size:
            newest += 1
            members.append(newest)
            crew.start(newest)
        for worker in members:
            crew.wait(worker, "ready")
        members = members[:size]
        asked = time.monotonic()
        version = crew.publish(*members)
        answers = [crew.wait(worker, "switched", version=version) for worker in members]
        gaps = [message["gap_s"] for _, message in answers]
        print(f"→{size}: next step after {max(when for when, _ in answers) - asked:.3f} s, gap {max(gaps):.3f} s")
        if size == 1:
            after.append(belongings(crew.pids[0]))
    print(after)
    early, late = after[2], after[-1]
    assert late[0] <= early[0] + 1  # descriptors
    assert late[1] <= early[1] + 1  # threads
    assert late[2] <= early[2] + 20_000  # kB of memory


def belongings(pid: int) -> tuple[int, int, int]:
    """Return a process's descriptors, threads and memory."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]), int(status["VmRSS"].split()[0])
