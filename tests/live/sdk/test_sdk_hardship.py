"""Other faults: a supervisor dies, children outlive a worker, orders come at a bad moment or all at once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sdk_crew
import torch

SCRIPT = Path(__file__).with_name("sdk_train.py")


def test_training_goes_on_when_the_supervisor_is_gone(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT, EPOCHS="20")
    crew.begin(0, 1)
    crew.hang_up()
    assert crew.code(0) == crew.code(1) == 0  # to the end
    ends = [torch.load(crew.folder / f"end-{worker}.pt") for worker in (0, 1)]
    assert ends[0]["step"] == ends[1]["step"] == 80
    assert crew.log.read_text().count("the supervisor is gone") == 2  # each says so once


def test_without_a_supervisor_a_signal_still_saves(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0, 1)
    crew.hang_up()
    crew.kill(1, signal.SIGTERM)
    assert crew.code(0) == crew.code(1) == 0
    assert len(list((crew.folder / "checkpoints" / "gen-1").glob("step-*"))) == 1


def test_a_worker_that_waits_for_its_first_plan_leaves_when_told(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0)
    for worker in (1, 2):
        crew.start(worker)
        crew.wait(worker, "ready")
    crew.send(1, op="suspend", deadline_s=5)
    crew.kill(2, signal.SIGTERM)
    assert crew.code(1) == crew.code(2) == 0
    assert not crew.all("checkpoint")
    crew.wait_step(0, crew.wait_step(0, 0))  # it trains on


def test_a_killed_workers_children_do_not_keep_its_connections(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT, LOADERS="2")
    crew.begin(0, 1, 2)
    crew.wait_step(0, 3)
    children = Path(f"/proc/{crew.pids[1]}/task/{crew.pids[1]}/children").read_text().split()
    assert len(children) == 2
    for child in children:
        os.kill(int(child), signal.SIGSTOP)  # they would end soon after the worker: now they cannot
    crew.kill(1)
    for worker in (0, 2):
        crew.wait(worker, "broken")
    version = crew.publish(0, 2, recover=True)
    for worker in (0, 2):
        crew.wait(worker, "switched", version=version)


@pytest.mark.slow(6)
def test_suspended_while_newcomers_wait_for_the_others(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT, PACE="3")
    crew.begin(0)
    crew.start(1)
    crew.wait(1, "ready")
    crew.publish(0, 1)
    for worker in (0, 1):
        crew.send(worker, op="suspend", deadline_s=20)
    crew.wait(1, "left")  # it holds nothing, and waits for nobody
    assert not crew.all("checkpoint")
    assert crew.wait(0, "left")[1]["saved"] is True and len(crew.all("checkpoint")) == 1
    assert crew.code(0) == crew.code(1) == 0


def test_suspended_in_the_middle_of_a_loss(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0, 1)
    crew.kill(1)
    crew.wait(0, "broken")
    crew.send(0, op="suspend", deadline_s=20)  # and no plan comes any more
    assert crew.wait(0, "left")[1]["saved"] is True
    assert crew.code(0) == 0


def test_batches_scaled_with_the_workers_scale_the_rate(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(Path(__file__).with_name("sdk_scaled.py"))
    crew.begin(0, 1)
    for worker in (0, 1):
        crew.wait(worker, "done")
    values = [torch.load(crew.folder / f"end-{worker}.pt") for worker in (0, 1)]
    # The gradient is always 1: 4 steps of 2 batches, at twice the rate, which a script does not see outside of a step.
    for end in values:
        assert end == {"weight": pytest.approx(-0.8), "steps": 4, "rates": [0.1] * 4}


@pytest.mark.slow
def test_a_lot_at_once(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    """Whatever happens, workers that end together have the same weights."""
    dice = random.Random(7)
    crew = crew_of(SCRIPT, PACE="0.005", EPOCHS="1000000")
    crew.begin(0, 1)
    members, newest = [0, 1], 1
    for _ in range(30):
        what = dice.choice(["grow", "shrink", "kill", "kill in a switch", "stop", "save"])
        time.sleep(dice.random() * 0.2)
        if what == "shrink" and len(members) > 1:
            members.remove(dice.choice(members))
            settle(crew, members)
        elif what == "save":
            crew.send(dice.choice(members), op="checkpoint")
        elif what in ("kill", "stop") and len(members) > 1:
            victim = members.pop(dice.randrange(len(members)))
            crew.kill(victim, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
            if what == "stop":
                time.sleep(0.3)
                for worker in members:
                    crew.send(worker, op="shut")
                crew.kill(victim)
            settle(crew, members, recover=True)
        else:
            newest += 1
            crew.start(newest)
            crew.wait(newest, "ready")
            if what == "kill in a switch" and len(members) > 1:
                crew.publish(*members, newest)
                time.sleep(dice.random() * 0.1)
                victim = members.pop(dice.randrange(len(members)))
                crew.kill(victim)
                settle(crew, [*members, newest], recover=True)
            else:
                settle(crew, [*members, newest])
            members.append(newest)
    crew.send(members[0], op="suspend", deadline_s=20)
    for worker in members:
        assert crew.code(worker) == 0
    assert "differ" not in crew.log.read_text()


def settle(crew: sdk_crew.Crew, members: list[int], recover: bool = False) -> None:
    """Publish until all have made a step together, as a supervisor would."""
    version = crew.publish(*members, recover=recover)
    for worker in members:
        crew.wait(worker, "switched", version=version)
