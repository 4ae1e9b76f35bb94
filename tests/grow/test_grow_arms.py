"""What can be said to a trainer, and read from it: arms that branch, other schedulers, explanations, settings."""

from __future__ import annotations

import dataclasses
import math

import pytest
from training_help import Chooses, same_weights
from training_help import plain_trainer as trainer

from argosy.grow.agents.base import Answer
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.distill import Distillation
from argosy.grow.training.guard import Guard
from argosy.grow.training.journal import History
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.schedulers import LiveScheduler, TimedScheduler

FINE = Surgery("deepen", "1")
EXPLODES = Surgery("deepen", "1", noise=1e38)
SPIKES = Surgery("deepen", "1", noise=30.0)


def test_another_scheduler_is_refused_at_resumption(tmp_path):
    make = lambda **more: trainer(Chooses([FINE]), checkpoint=tmp_path / "c", **more)  # noqa: E731
    make().fit(until=4)
    for other in ({"up_at": [5]}, {"down_at": [7]}, {"scheduler": TimedScheduler(9, up_at=[3], repeat=2)}):
        with pytest.raises(GrowError, match="saved with another scheduler"):
            make(**other).fit()
    with pytest.raises(GrowError, match=r"up_at was \[3.0\], now \[5.0\]"):
        make(up_at=[5]).fit()
    assert make(budget=11).fit().lines[-1].time == 11.0, "training may be prolonged"


def test_arms_branch_from_one_point():
    trunk = trainer(Chooses([FINE]), budget=6, up_at=[3])
    trunk.fit(until=2)
    assert trunk.run.clock.now() == 2.0
    arms = {"same": trunk.fork(), "none": trunk.fork(None), "other": trunk.fork(Chooses([EXPLODES]))}
    arms["later"] = trunk.fork(scheduler=TimedScheduler(6, up_at=[4]))
    found = {name: arm.fit() for name, arm in arms.items()}
    assert trunk.run.clock.now() == 2.0
    whole = trainer(Chooses([FINE]), budget=6, up_at=[3]).fit()
    assert found["same"] == whole == trunk.fit()
    assert found["none"].surgeries == ()
    assert found["none"].lines[:3] == whole.lines[:3]
    assert found["other"].rolled_back
    assert [d.time for d in found["later"].decisions] == [4.0]
    live = trainer(None, scheduler=LiveScheduler(6))
    with pytest.raises(GrowError, match="cannot be copied"):
        live.fork()
    assert live.fork(scheduler=LiveScheduler(3)).fit().lines[-1].time == 3.0


def test_a_fork_taken_during_a_probation_can_go_back_by_itself():
    trunk = trainer(Chooses([SPIKES]), recipe=Recipe(lr=0.1), guard=Guard(probation=4))
    trunk.fit(until=3)
    trunk.scheduler._budget_s = 9
    arm = trunk.fork()
    assert arm.fit() == trunk.fit()
    assert same_weights(arm.model, trunk.model)


@dataclasses.dataclass(frozen=True)
class Hope:
    """What an agent expects."""

    step: tuple
    gain: float


def test_explanations_are_data():
    class Explains(Chooses):
        why = "it should gain most"
        forecasts = (Hope((FINE,), 0.02), Hope((), math.nan))

    history = trainer(Explains([FINE])).fit()
    [decision] = history.decisions
    assert decision.why == "it should gain most"
    assert decision.forecasts == ({"step": [FINE.to_dict()], "gain": 0.02}, {"step": [], "gain": None})
    assert History.from_dict(history.to_dict()) == history


def test_an_agent_may_want_only_the_learning_rate_reset():
    training = trainer(Chooses(Answer((), reset=True)))
    rates = {}
    training.on_event = lambda e: rates.update({e.time: training.run.lr}) if e.kind == "epoch" else None
    training.agent.decide = lambda situation: Answer((), reset=True)
    history = training.fit()
    assert str(history.decisions[0]) == "reset"
    assert history.decisions[0].reset is True
    assert rates[4.0] > rates[3.0]
    never = trainer(Chooses([FINE]))
    never.agent.decide = lambda situation: Answer([FINE], reset=False)
    never.fit()
    assert never.run.course.since == 0.0


def test_how_to_widen_and_to_distil_can_be_said(monkeypatch):
    from argosy.grow.training import shrinking

    training = trainer(
        None,
        operations=["widen"],
        widen_by=(1.5, 2),
        widen_init="fresh",
        widen_noise=0.1,
    )
    assert training.options() == tuple(Surgery("widen", "1", f, "fresh", 0.1) for f in (1.5, 2))
    seen = []
    real = shrinking.taught
    monkeypatch.setattr(shrinking, "taught", lambda *a, **k: seen.append((a[3], k["own"])) or real(*a, **k))
    how = Distillation(temperature=3.0, lr=0.02)
    history = trainer(Chooses([FINE]), down_at=[7], distillation=how).fit()
    assert seen == [(how, None)]
    assert [d.allocation for d in history.decisions] == ["up", "down"]
