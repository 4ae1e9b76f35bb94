"""Exact mode in whole jobs: the script's weights do not depend on resizes, suspensions, moves and kills."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "sdk"))
from sdk_crew import Crew, Warm  # noqa: E402

pytestmark = pytest.mark.slow(7)
STEPS = 24
EPOCHS = {"constant": STEPS // 4, "scaled": STEPS}  # an epoch has four batches, and there are four virtual ranks


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    process = Warm()
    yield process
    process.close()


@pytest.fixture
def crew_of(warm: Warm, tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    torch.set_num_threads(1)
    made: list[Crew] = []

    def make(pace: float, batch: str = "constant") -> Crew:
        folder = tmp_path / f"run-{len(made)}"
        folder.mkdir()
        env = {"PACE": str(pace), "BATCH": batch, "EPOCHS": str(EPOCHS[batch])}
        made.append(Crew(warm, folder, HERE / "exact_train.py", **env))
        return made[-1]

    yield make
    for crew in made:
        crew.close()


def end(crew: Crew, worker: int) -> dict[str, Any]:
    assert crew.code(worker) == 0, crew.log.read_text()[-3000:]
    found: dict[str, Any] = torch.load(crew.folder / f"end-{worker}.pt")
    return found


def stand_by(crew: Crew, *workers: int) -> None:
    """Start new workers before the training begins, so that it does not end before they are ready."""
    for worker in workers:
        crew.start(worker)
    for worker in workers:
        crew.wait(worker, "ready")


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    assert (one["step"], one["lr"]) == (other["step"], other["lr"])
    return all(torch.equal(one[part][name], other[part][name]) for part in ("model", "average") for name in one[part])


@pytest.mark.parametrize("batch", ["constant", "scaled"])
def test_resizes_a_kill_and_a_suspension_leave_no_trace(crew_of: Callable[..., Crew], batch: str) -> None:
    quiet = crew_of(0, batch)
    quiet.begin(0)
    undisturbed = end(quiet, 0)
    assert undisturbed["step"] == STEPS

    crew = crew_of(0.05, batch)
    stand_by(crew, 1, 2)
    crew.begin(0)
    crew.wait(0, "switched", version=crew.publish(0, 1, 2))
    crew.kill(0)  # the one that everything began with
    for worker in (1, 2):
        crew.wait(worker, "broken")
    version = crew.publish(1, 2, recover=True)
    crew.wait(1, "switched", version=version)
    crew.send(1, op="suspend", deadline_s=30)
    crew.send(2, op="suspend", deadline_s=30)
    saved = crew.wait(1, "checkpoint")[1]
    assert saved["step"] < undisturbed["step"]
    assert crew.code(1) == crew.code(2) == 0

    crew.next_generation()
    restore = [crew.folder / "checkpoints" / saved["path"]]
    crew.begin(0, 1, 2, restore=restore, PACE="0")
    assert same(end(crew, 0), undisturbed)
    assert same(end(crew, 2), undisturbed)


def test_a_job_that_is_never_left_in_peace(crew_of: Callable[..., Crew]) -> None:
    quiet = crew_of(0)
    quiet.begin(0)
    undisturbed = end(quiet, 0)
    dice = random.Random(4)
    crew = crew_of(0.1)
    stand_by(crew, *range(2, 7))
    crew.begin(0, 1)
    members = [0, 1]
    for newcomer in range(2, 7):
        members = [*dice.sample(members, dice.randint(1, min(3, len(members)))), newcomer]
        version = crew.publish(*members)
        for worker in members:
            crew.wait(worker, "switched", version=version)
        if newcomer % 2:
            victim = dice.choice(members)
            crew.kill(victim)
            members.remove(victim)
            for worker in members:
                crew.wait(worker, "broken")
            crew.publish(*members, recover=True)
    assert same(end(crew, members[0]), undisturbed)
