"""Live growth as the agent wants it: a reset of the learning rate, scores that are judged, what the agent is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy
from argosy.grow import Surgery
from argosy.grow.agents.base import Answer, Outcome, Situation
from argosy.grow.agents.forecasting_agent import pretrained
from argosy.sdk.growth.grower import Grower, Times
from argosy.sdk.growth.rate import CLIMB

TIMES = Times(50.0, 100.0, 1.0)
PICTURES = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
LOADER = DataLoader(TensorDataset(PICTURES, (PICTURES.sum(1) > 0).long()), batch_size=8)
DEEPEN = Surgery("deepen", "0")


class Says:
    """An agent that always gives the same answer, and keeps the situations in which it was asked."""

    why = "a test"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[Situation] = []

    def decide(self, situation: Situation) -> Answer:
        self.asked.append(situation)
        return self.answer


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def _grower(answer: Answer, lr: float = 0.1) -> tuple[Grower, torch.optim.Optimizer, Says]:
    model = _network()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    grower, agent = Grower(model, optimizer), Says(answer)
    grower._agent = agent
    model(PICTURES).square().sum().backward()
    return grower, optimizer, agent


def _lr(optimizer: torch.optim.Optimizer) -> float:
    return float(optimizer.param_groups[0]["lr"])


def test_the_agent_resets_the_rate_and_nothing_else() -> None:
    grower, optimizer, _ = _grower(Answer((), True))
    optimizer.param_groups[0]["lr"] = 0.004
    size = sum(one.numel() for one in grower._network.model.parameters())
    changed, told = grower.grow(TIMES, 1.0)
    assert changed and told == "the agent only resets the learning rate 0.004 → 0.1: a test"
    assert not grower.is_grown and size == sum(one.numel() for one in grower._network.model.parameters())
    rates = []
    for _ in range(CLIMB + 5):
        grower.rate.step()
        rates.append(_lr(optimizer))
    assert rates == sorted(rates) and 0.004 < rates[0] < 0.006 and rates[CLIMB - 2] < 0.1
    assert rates[CLIMB:] == pytest.approx([0.1] * 5)


def test_schedules_that_multiply_go_on_from_the_higher_rate() -> None:
    grower, optimizer, _ = _grower(Answer((DEEPEN,), True))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    for _ in range(5):
        optimizer.step()
        schedule.step()
    assert "learning rate 0.00313 → 0.1" in grower.grow(TIMES, 1.0)[1]
    for _ in range(CLIMB):
        grower.rate.step()
    schedule.step()
    assert _lr(optimizer) == pytest.approx(0.05)
    optimizer.param_groups[0]["lr"] = 0.3  # a warm-up that is still going on
    grower.rate.step()
    assert _lr(optimizer) == pytest.approx(0.1)


def test_a_roll_back_takes_the_rate_back_and_a_newcomer_climbs_along() -> None:
    grower, optimizer, _ = _grower(Answer((DEEPEN,), True))
    optimizer.param_groups[0]["lr"] = 0.001
    assert grower.grow(TIMES, 1.0)[0]
    grower.rate.step()
    newcomer, other, _ = _grower(Answer())
    newcomer.load(grower.state())
    other.param_groups[0]["lr"] = _lr(optimizer)
    for one in (grower, newcomer):
        one.rate.step()
    assert 0.001 < _lr(other) == _lr(optimizer)
    for one in (grower, newcomer):
        assert one.roll_back("a test", TIMES)[0]
        one.rate.step()
    assert _lr(other) == _lr(optimizer) == pytest.approx(0.001)


@pytest.mark.parametrize(("answer", "lr"), [(Answer((DEEPEN,), True), 0.001), (Answer((DEEPEN,)), 0.001)])
def test_a_roll_back_keeps_what_a_schedule_has_done(answer: Answer, lr: float) -> None:
    grower, optimizer, _ = _grower(answer)
    optimizer.param_groups[0]["lr"] = lr
    assert grower.grow(TIMES, 1.0)[0]
    for _ in range(10):
        grower.rate.step()
    optimizer.param_groups[0]["lr"] *= 0.5  # a schedule that multiplies
    assert grower.roll_back("a test", TIMES)[0]
    assert _lr(optimizer) == pytest.approx(lr / 2)


def test_a_roll_back_leaves_a_rate_that_the_script_has_set() -> None:
    grower, optimizer, _ = _grower(Answer((DEEPEN,), True))
    optimizer.param_groups[0]["lr"] = 0.0
    assert grower.grow(TIMES, 1.0)[0] and _lr(optimizer) == pytest.approx(0.001)
    grower.rate.step()
    assert grower.roll_back("a test", TIMES)[0] and _lr(optimizer) == 0.0
    optimizer.param_groups[0]["lr"] = 0.004
    assert grower.grow(TIMES, 1.0)[0]
    grower.rate.step()
    optimizer.param_groups[0]["lr"] = 0.0038  # computed anew
    assert grower.roll_back("a test", TIMES)[0] and _lr(optimizer) == 0.0038


@pytest.mark.parametrize(
    ("answer", "times", "lr", "told"),
    [
        (Answer((), True), Times(1.0, 100.0, 1.0), 0.01, "as it is (too little time is left to reset"),
        (Answer((), True), TIMES, 0.1, "as it is (the learning rate is still the first one"),
        (Answer((), None), TIMES, 0.01, "as it is: a test"),
        (Answer((), False), TIMES, 0.01, "as it is: a test"),
    ],
)
def test_a_reset_in_vain_is_said_to_be_one(answer: Answer, times: Times, lr: float, told: str) -> None:
    grower, optimizer, _ = _grower(answer)
    optimizer.param_groups[0]["lr"] = lr
    changed, story = grower.grow(times, 1.0)
    assert not changed and told in story
    grower.rate.step()
    assert _lr(optimizer) == lr and grower.probation is None


def test_an_agent_that_does_not_say_leaves_the_rate_to_the_script() -> None:
    grower, optimizer, _ = _grower(Answer((DEEPEN,)))
    optimizer.param_groups[0]["lr"] = 0.004
    assert grower.grow(TIMES, 1.0)[0]
    grower.rate.step()
    assert _lr(optimizer) == 0.004


def test_what_the_agent_has_learned_is_part_of_the_state() -> None:
    grower, _, says = _grower(Answer((DEEPEN,)))
    grower.grow(TIMES, 1.0)
    agent = pretrained()
    agent.learned(says.asked[0], (DEEPEN,), Outcome(None, 0.5, rolled_back=True))
    assert agent.state()["seen"]
    grower._agent = agent
    other, _, _ = _grower(Answer())
    other._agent = None
    other.load(grower.state())
    assert other.state()["agent"] == agent.state()  # a worker that does not ask hands it on
    found: Any = other._asked_agent()
    assert found.state() == agent.state()


def test_reported_accuracies_are_told_to_the_agent_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Train with a validation after each epoch; after growth its score is bad, though the loss is good."""
    agent = Says(Answer((DEEPEN,)))
    with argosy.job(grow=True, checkpoints=tmp_path) as job:
        model = _network()
        model, optimizer = job.setup(model, torch.optim.SGD(model.parameters(), lr=0.05))
        small = sum(one.numel() for one in model.parameters())
        growth: Any = job._growth  # type: ignore[attr-defined]
        growth._grower._agent = agent
        optimizer.param_groups[0]["lr"] = 0.01
        for epoch in job.epochs(12):
            for x, y in job.batches(LOADER):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                job.report(loss=0.5)
                if job.step == 45:
                    growth._judged = growth._done().epochs
                    assert growth._together(lambda: growth._grower.grow(TIMES, 1.0, growth._done()))
            grown = sum(one.numel() for one in model.parameters()) > small
            job.report(val_accuracy=0.1 if grown else 0.6 + 0.01 * epoch)
    told = capsys.readouterr().err
    assert "argosy: growth is rolled back: the validation score is 0.1 after " in told
    assert sum(one.numel() for one in model.parameters()) == small
    [asked] = agent.asked
    assert asked.curve is not None and asked.data is not None and asked.recipe is not None
    scores = [score for score in asked.curve.score if score == score]
    assert scores == pytest.approx([0.6 + 0.01 * epoch for epoch in range(5)])
    assert (asked.data.examples, asked.data.inputs, asked.recipe.batch) == (64, 4, 8)
    assert (asked.recipe.lr, asked.recipe.lr_now) == (0.05, 0.01)
