"""The scheduler of a live job answers the three questions of a trainer, from workers and progress."""

from __future__ import annotations

import time
from typing import Any

import pytest
from torch import nn

from argosy import grow
from argosy.sdk.growth.scheduler import Done, JobScheduler


def answers(scheduler: JobScheduler, *worlds: int) -> list[str]:
    found = []
    for world in worlds:
        scheduler.resized(world)
        found.append(scheduler.allocation())
    return found


def test_ups_and_downs_are_answered_once() -> None:
    scheduler = JobScheduler(100.0, Done)
    assert answers(scheduler, 2, 2, 4, 4, 3, 4, 5, 2, 2, 1, 3) == [
        *("none", "none", "up", "none", "none", "none", "up", "down", "none", "none", "up"),
    ]
    assert scheduler.gpus_gained() == 1.0


def test_a_down_is_due_until_it_is_answered() -> None:
    scheduler = JobScheduler(100.0, Done)
    answers(scheduler, 1, 3)
    scheduler.resized(1)
    assert scheduler.wants_back() and scheduler.wants_back()
    assert scheduler.allocation() == "down" and not scheduler.wants_back()


def test_without_a_budget_the_time_follows_from_the_progress() -> None:
    scheduler = JobScheduler(None, lambda: Done(2.0, 10))
    scheduler.restore({"began": time.time() - 20.0, "base": 1, "told": 1})
    assert scheduler.epoch_s == pytest.approx(10.0, rel=0.1)
    assert scheduler.time_budget() == pytest.approx(100.0, rel=0.1)
    assert scheduler.time_left() == pytest.approx(80.0, rel=0.1)
    unknown = JobScheduler(None, Done)
    unknown.restore({"began": time.time() - 20.0, "base": 1, "told": 1})
    assert unknown.time_left() == pytest.approx(20.0, rel=0.1)  # as if half were done


def test_a_trainer_can_be_scheduled_by_it() -> None:
    data = grow.load("digits", train=64, val=32, test=32)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    scheduler = JobScheduler(600.0, Done)
    scheduler.resized(1)
    scheduler.resized(2)

    def taken_away(event: Any) -> None:
        if event.kind == "epoch":
            scheduler.resized(1)
        if event.kind == "shrink":  # then the time is over
            scheduler.restore({**scheduler.state(), "began": time.time() - 600.0})

    first = grow.sites(net, data.example())[0]
    agent = grow.FixedSequence([grow.Surgery("deepen", first.name)])
    trainer = grow.Trainer(net, data, scheduler, agent=agent, distil=0.001, on_event=taken_away, progress=False)
    assert [decision.allocation for decision in trainer.fit().decisions] == ["up", "down"]
