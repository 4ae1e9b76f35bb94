"""Growth that does harm is rolled back, and nothing that goes wrong in growth ends a training."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from training_help import Chooses, same_weights, small_net
from training_help import plain_trainer as trainer

from argosy.grow.agents.base import Answer
from argosy.grow.errors import Diverged
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.guard import Guard
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.schedulers import TimedScheduler

A, B = Surgery("deepen", "0"), Surgery("deepen", "4")
FINE = Surgery("deepen", "1")
EXPLODES = Surgery("deepen", "1", noise=1e38)
SPIKES = Surgery("deepen", "1", noise=30.0)
SPOILS = Surgery("deepen", "0", init="random")  # in a network with norms: nothing explodes, but the answers are wrong


class Learns(Chooses):
    """Remembers what it was taught."""

    def __init__(self, *answers):
        super().__init__(*answers)
        self.lessons = []

    def learned(self, situation, surgeries, outcome):
        self.lessons.append((situation, surgeries, outcome))


@pytest.mark.parametrize("surgery", [EXPLODES, SPIKES], ids=["not finite", "a spike"])
def test_growth_that_destroys_the_network_is_rolled_back(surgery):
    told = []
    training = trainer(Learns([surgery]), on_event=lambda e: told.append(e.kind), recipe=Recipe(lr=0.02, batch=8))
    history = training.fit()
    up, back = history.decisions
    assert (up.allocation, up.outcome, up.surgeries) == ("up", "rolled back", (surgery,))
    assert (back.allocation, back.outcome, back.surgeries) == ("back", "rolled back", (surgery,))
    assert history.rolled_back == (back,)
    assert "loss" in back.why
    assert str(back) == "roll back deepen 1"
    assert told.count("roll back") == 1
    assert history.surgeries == training.run.surgeries == ()
    assert history.lines[-1].parameters == history.lines[0].parameters
    assert history.lines[-1].time == 9.0, "the rest of the time is used"
    before = max(line.validation for line in history.lines if line.time <= 3)
    assert history.validation > before, "it goes on learning"
    [(situation, surgeries, outcome)] = training.agent.lessons
    assert surgeries == (surgery,)
    assert situation == training.agent.asked[0]
    assert outcome.rolled_back


def test_going_back_restores_everything_but_the_time():
    twin = trainer(None).fork()
    twin.fit(until=3)
    training = trainer(Chooses([EXPLODES]))
    seen = []
    training.on_event = lambda e: e.kind == "roll back" and seen.append(training.run.fork())
    training.fit()
    [back] = seen
    assert same_weights(back.model, twin.model)
    assert back.clock.now() > 3.0
    for one, two in zip(back.optimizer.state.values(), twin.run.optimizer.state.values(), strict=True):
        assert torch.equal(one["momentum_buffer"], two["momentum_buffer"])
    assert back.course == twin.run.course
    assert torch.equal(back.generator.get_state(), twin.run.generator.get_state())
    assert torch.equal(back.noise, twin.run.noise)


def test_a_network_that_answers_badly_after_growth_is_rolled_back():
    history = trainer(Chooses([SPOILS]), net=small_net(), recipe=Recipe(lr=0.1), budget=14, up_at=[10]).fit()
    first = [line.validation for line in history.lines if line.time <= 10]
    if not history.rolled_back:  # it may recover; then it must be as good as before
        assert history.validation >= first[-1] - 0.05
    else:
        assert "validation" in history.rolled_back[0].why or "loss" in history.rolled_back[0].why
        assert history.validation >= first[-1] - 0.05
        assert [line.discarded for line in history.lines if line.time <= 10] == [False] * 10
        assert any(line.discarded for line in history.lines)
    frame = history.to_frame()
    assert frame["discarded"].to_list() == [line.discarded for line in history.lines]


def test_a_network_that_is_worse_in_the_end_is_exchanged_for_the_one_before():
    spoiled = Surgery("deepen", "1", noise=1.0)
    training = trainer(Chooses([spoiled]), budget=8.5, up_at=[8], guard=Guard(probation=4))
    history = training.fit()
    assert history.rolled_back
    assert history.rolled_back[0].time == 8.5
    assert history.validation == history.lines[7].validation == training.run.evaluate("validation")
    assert history.test == training.run.evaluate("test")


def test_harmless_growth_is_kept():
    training = trainer(Learns([FINE]))
    history = training.fit()
    [up] = history.decisions
    assert (up.outcome, up.refused) == ("kept", "")
    assert history.surgeries == (FINE,)
    assert training.growing.trial is None, "nothing is kept after the end"
    [(_, surgeries, outcome)] = training.agent.lessons
    assert (surgeries, outcome.rolled_back, outcome.share_left) == ((FINE,), False, 0.0)
    assert outcome.score == history.validation


def test_after_a_roll_back_the_job_grows_again_only_if_told():
    agent = Chooses([EXPLODES], [FINE])
    history = trainer(agent, up_at=[2, 5]).fit()
    assert [d.allocation for d in history.decisions] == ["up", "back", "up"]
    assert "Guard(again=True)" in history.decisions[2].refused
    assert len(agent.asked) == 1
    history = trainer(Chooses([EXPLODES], [FINE]), up_at=[2, 5], guard=Guard(again=True)).fit()
    assert history.surgeries == (FINE,)


def test_growth_in_close_succession_is_rolled_back_together():
    training = trainer(Chooses([FINE], [EXPLODES]), scheduler=TimedScheduler(9, up_at=[3], repeat=2))
    history = training.fit()
    assert [d.outcome for d in history.decisions] == ["rolled back"] * 3
    assert history.rolled_back[0].surgeries == (FINE, EXPLODES)
    assert training.run.surgeries == ()


def test_growth_that_has_passed_is_not_undone_by_later_growth():
    training = trainer(Chooses([FINE], [EXPLODES]), up_at=[2, 6])
    history = training.fit()
    assert [d.outcome for d in history.decisions] == ["kept", "rolled back", "rolled back"]
    assert history.surgeries == training.run.surgeries == (FINE,)


def test_a_divergence_long_after_growth_is_rolled_back_too():
    training = trainer(Chooses([FINE]), budget=12)

    def break_later(event):
        if event.kind == "epoch" and event.time == 8.0:
            with torch.no_grad():
                next(training.model.parameters()).fill_(math.nan)

    training.on_event = break_later
    history = training.fit()
    assert "not finite" in history.rolled_back[0].why
    assert all(bool(torch.isfinite(p).all()) for p in training.model.parameters())


def test_a_step_that_fails_after_growth_is_rolled_back():
    training = trainer(Chooses([FINE]))
    inner = training.run.loss

    def loss(outputs, targets):
        if training.run.surgeries and training.run.course.steps == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inner(outputs, targets)

    training.run.loss = loss
    history = training.fit()
    assert history.rolled_back[0].why == "CUDA out of memory"
    assert history.lines[-1].time == 9.0


def test_without_a_guard_growth_is_trusted():
    with pytest.raises(Diverged):
        trainer(Chooses([EXPLODES]), guard=None).fit()


def test_a_recipe_that_diverges_by_itself_still_says_so():
    with pytest.raises(Diverged, match="not finite"):
        trainer(Chooses([FINE]), recipe=Recipe(lr=1e30)).fit()


def refused(agent, **more):
    """The reason why growth was refused, in a training that goes on to its end."""
    history = trainer(agent, **more).fit()
    assert history.lines[-1].time == 9.0
    assert history.surgeries == ()
    return history.decisions[0].refused


def test_an_agent_that_fails_or_answers_nonsense_is_refused():
    class Fails:
        def decide(self, situation):
            raise ZeroDivisionError("division by zero")

    class Says:
        def __init__(self, answer):
            self.answer = answer

        def decide(self, situation):
            return self.answer

    assert refused(Fails()) == "the agent Fails failed: division by zero"
    assert "'deepen 1'" in refused(Says(["deepen 1"]))
    assert "failed" in refused(Says(None))
    assert "no layer 'nowhere'" in refused(Says([Surgery("deepen", "nowhere")]))
    assert "unknown operation" in refused(Says([Surgery("grow", "1")]))
    assert "factor" in refused(Says([Surgery("widen", "1", math.nan)]))
    assert "reset = 7" in refused(Says(Answer((), reset=7)))


def test_a_surgery_that_fails_is_refused_and_nothing_is_changed(monkeypatch):
    from argosy.grow.training import run

    def fail(*_):
        raise MemoryError("no memory")

    plain = trainer(None).fit()
    monkeypatch.setattr(run, "apply_and_carry", fail)
    training = trainer(Chooses([FINE]))
    history = training.fit()
    assert history.decisions[0].refused == "no memory"
    assert [line.validation for line in history.lines] == [line.validation for line in plain.lines]


class Branches(nn.Module):
    """A forward pass that depends on values, so that it cannot be traced."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, 8), nn.Linear(8, 10)

    def forward(self, x):
        x = torch.relu(self.one(x.flatten(1)))
        return self.two(x if bool((x.sum() > 0).item()) else 2 * x)


def test_a_network_that_cannot_be_traced_is_trained_without_growth():
    agent = Chooses([A])
    history = trainer(agent, net=Branches(), up_at=[2, 4]).fit()
    assert "cannot be traced" in history.refusal
    assert "cannot grow" in str(history)
    assert [d.refused for d in history.decisions] == [history.refusal] * 2
    assert not agent.asked
    assert len(history.lines) == 9
    assert trainer(None, net=Branches()).fit().refusal == "", "without an agent nobody wants to grow it"


def test_a_state_too_large_to_keep_is_a_reason_not_to_grow(tmp_path):
    assert "memory" in refused(Chooses([FINE]), guard=Guard(memory_gib=1e-9))
    assert "1e-09 in" in refused(Chooses([FINE]), guard=Guard(memory_gib=0, folder=tmp_path, folder_gib=1e-9))
    nowhere = Surgery("deepen", "nowhere")
    assert "nowhere" in refused(Chooses([nowhere]), guard=Guard(memory_gib=0, folder=tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_state_may_be_kept_in_a_folder(tmp_path):
    seen = []
    options = {"guard": Guard(memory_gib=0.0, folder=tmp_path), "recipe": Recipe(lr=0.1, optimizer="adam")}
    training = trainer(Chooses([EXPLODES]), **options)
    training.on_event = lambda e: e.kind == "grow" and seen.extend(p.name for p in tmp_path.iterdir())
    history = training.fit()
    assert seen == ["before-growth-0-0.safetensors"]
    assert not list(tmp_path.iterdir()), "the file is deleted when it is not needed any more"
    inside = trainer(Chooses([EXPLODES]), recipe=options["recipe"])
    assert inside.fit() == history
    assert same_weights(inside.model, training.model)


def test_a_kept_state_that_cannot_be_read_does_not_end_the_training(tmp_path):
    training = trainer(Chooses([EXPLODES]), guard=Guard(memory_gib=0, folder=tmp_path))
    training.on_event = lambda e: e.kind == "grow" and [p.write_bytes(b"damaged") for p in tmp_path.iterdir()]
    history = training.fit()
    assert "cannot be read" in history.rolled_back[0].why
    assert history.lines[-1].time == 9.0
    assert training.run.surgeries == ()
    assert history.validation > history.lines[2].validation


class Stop(Exception):
    """Raised to interrupt a training, as a power cut would."""


@pytest.mark.parametrize("folder", [False, True], ids=["memory", "folder"])
@pytest.mark.parametrize("stop_at", [4, 5, 6, 7])
def test_a_training_killed_during_the_probation_loses_nothing(tmp_path, stop_at, folder):
    worse = Surgery("deepen", "1", noise=10.0)  # it takes some epochs to be seen

    def make(name, on_event=None):
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        guard = Guard(probation=3, memory_gib=0 if folder else 1, folder=place)
        more = {"checkpoint": place / "c", "on_event": on_event, "guard": guard}
        return trainer(Learns([worse], [FINE]), up_at=[3, 7], **more)

    def cut(event):
        if event.kind == "epoch" and event.time >= stop_at:
            raise Stop

    whole = make("whole")
    expected = whole.fit()
    first, second = make("cut", cut), make("cut")
    with pytest.raises(Stop):
        first.fit()
    assert second.fit().to_dict() == expected.to_dict()
    assert same_weights(second.model, whole.model)
    assert first.agent.lessons + second.agent.lessons == whole.agent.lessons
    assert {p.name for p in (tmp_path / "cut").iterdir()} == {"c", "c.previous"}


def test_a_kept_file_that_is_missing_is_reported_and_training_goes_on(tmp_path):
    def make():
        guard = Guard(memory_gib=0, folder=tmp_path)
        return trainer(Chooses([FINE]), checkpoint=tmp_path / "c", guard=guard)

    make().fit(until=4)
    next(tmp_path.glob("before-growth*")).unlink()
    with pytest.warns(UserWarning, match="cannot be rolled back any more"):
        history = make().fit()
    assert history.surgeries == (FINE,)
    assert history.lines[-1].time == 9.0


def test_a_distillation_that_fails_leaves_the_network_from_before_growth(monkeypatch):
    from argosy.grow.training import shrinking

    def fail(*_, **__):
        raise RuntimeError("no memory for two networks")

    monkeypatch.setattr(shrinking, "taught", fail)
    training = trainer(Chooses([FINE]), down_at=[7])
    history = training.fit()
    assert "no memory for two networks" in history.decisions[-1].why
    assert training.run.surgeries == ()
    assert history.lines[-1].time == 9.0
    assert history.test > 0.5
