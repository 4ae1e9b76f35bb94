"""Training that follows a scheduler."""

from __future__ import annotations

import copy

import polars as pl
import pytest
import torch
from torch import nn
from training_help import Chooses, digits, same_weights, small_net

from argosy.errors import UnknownName
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.training import checkpoint
from argosy.grow.training.clock import RealClock, VirtualClock
from argosy.grow.training.feed import Loaders
from argosy.grow.training.journal import History
from argosy.grow.training.schedulers import LiveScheduler, SimulatedScheduler, TimedScheduler
from argosy.grow.training.trainer import Trainer

A, B = Surgery("deepen", "0"), Surgery("deepen", "4")


def trainer(scheduler, agent=None, **more):
    options = {"clock": VirtualClock(), "progress": False, "net": small_net(), "data": digits()} | more
    return Trainer(options.pop("net"), options.pop("data"), scheduler, agent, **options)


def test_it_trains_until_the_time_is_over():
    net = small_net()
    before = copy.deepcopy(net)
    training = trainer(TimedScheduler(3.5), net=net)
    history = training.fit()
    assert [line.time for line in history.lines] == [1.0, 2.0, 3.0, 3.5]
    assert [line.steps for line in history.lines] == [4, 4, 4, 2]
    assert history.lines[-1].validation == history.validation == training.run.evaluate("validation")
    assert history.test == training.run.evaluate("test")
    assert history.decisions == []
    assert same_weights(net, before), "the network given is not changed"
    assert not same_weights(training.model, before)


def test_an_agent_decides_at_three_successive_epochs():
    agent = Chooses([A], [], [A, B])
    training = trainer(TimedScheduler(8, up_at=[2], repeat=3), agent)
    history = training.fit()
    assert [(d.time, d.surgeries) for d in history.decisions] == [(2.0, (A,)), (3.0, ()), (4.0, (A, B))]
    assert history.surgeries == training.run.surgeries == (A, A, B)
    asked = agent.asked
    assert [s.time_left for s in asked] == [6.0, 5.0, 4.0]
    assert [s.decisions_left for s in asked] == [3, 2, 1]
    assert [s.time_budget for s in asked] == [8.0] * 3
    assert asked[2].done == ((6.0, A),)
    assert asked[0].epoch_s == 1.0
    assert asked[0].graph.names == asked[2].graph.names, "the graph is that of the network as it was written"
    assert {A, B} <= set(asked[0].options)
    assert set(asked[0].options) == set(asked[2].options), "the choice stays the same"
    assert "Chooses" in history.decisions[0].why


def test_what_may_be_chosen_from():
    training = trainer(TimedScheduler(4), operations=("widen", "replicate"), widen_by=2.0)
    ops = {(s.op, s.factor) for s in training.options()}
    assert ops == {("widen", 2.0), ("replicate", 2.0)}


def test_more_is_told_when_the_scheduler_knows_more():
    agent = Chooses([])
    trainer(SimulatedScheduler(3, [(1, 4)], use=lambda t: 0.5), agent).fit()
    assert (agent.asked[0].gpus_gained, agent.asked[0].utilisation) == (4, 0.5)
    assert len(agent.asked) == 1


def test_a_choice_that_is_not_possible_is_refused_and_training_goes_on():
    history = trainer(TimedScheduler(3, up_at=[1]), Chooses([A, Surgery("deepen", "nowhere")])).fit()
    assert "nowhere" in history.decisions[0].refused
    assert history.surgeries == ()
    assert len(history.lines) == 3


def test_slots_are_given_back_before_anything_is_distilled(monkeypatch):
    from argosy.grow.training import shrinking

    order = []
    real = shrinking.taught

    def taught(*arguments, **options):
        order.append("shrink")
        return real(*arguments, **options)

    monkeypatch.setattr(shrinking, "taught", taught)
    net = small_net()
    training = trainer(
        TimedScheduler(8, up_at=[2], down_at=[5]),
        Chooses([A, B]),
        net=net,
        distil=0.5,
        on_release=lambda: order.append("release"),
        on_event=lambda event: order.append(event.kind) if event.kind in ("release", "shrink") else None,
    )
    history = training.fit()
    assert order == ["release", "release", "shrink", "shrink"]
    assert [d.allocation for d in history.decisions] == ["up", "down"]
    assert training.run.surgeries == ()
    assert list(training.model.state_dict()) == list(net.state_dict())
    assert training.run.clock.now() == pytest.approx(8.0)
    sizes = [line.parameters for line in history.lines]
    assert sizes[0] == sizes[-1] < sizes[3]
    assert training.model is not net


@pytest.mark.parametrize("kind", ["timed", "simulated"])
def test_an_epoch_ends_at_once_when_gpus_have_to_go(kind):
    if kind == "timed":
        scheduler = TimedScheduler(6, up_at=[1], down_at=[2.5])
    else:
        scheduler = SimulatedScheduler(6, [(1, 2), (2.5, 0)])
    history = trainer(scheduler, Chooses([A]), distil=0.5).fit()
    assert [(d.time, d.allocation) for d in history.decisions] == [(1.0, "up"), (2.5, "down")]
    assert [(line.time, line.steps) for line in history.lines[:3]] == [(1.0, 4), (2.0, 4), (2.5, 2)]
    assert history.lines[-1].time == 6.0


def test_giving_back_what_was_never_used():
    released = []
    history = trainer(TimedScheduler(3, down_at=[1]), on_release=lambda: released.append(1)).fit()
    assert released == [1]
    assert "nothing had been grown" in history.decisions[0].why
    assert len(history.lines) == 3


def test_replicas_go_without_distillation():
    training = trainer(TimedScheduler(5, up_at=[1], down_at=[3]), Chooses([Surgery("replicate", factor=2.0)]))
    seen = []
    training.on_event = lambda event: seen.append((event.kind, copy.deepcopy(training.model)))
    history = training.fit()
    released, shrunk = (next(net for kind, net in seen if kind == k) for k in ("release", "shrink"))
    assert same_weights(released, shrunk)
    assert training.run.surgeries == ()
    assert history.lines[1].seconds == pytest.approx(1 / 1.9)
    assert history.lines[-2].seconds == 1.0, "epochs are as slow as before"


def test_growing_again_after_shrinking():
    training = trainer(TimedScheduler(8, up_at=[1, 5], down_at=[3]), Chooses([A], [B]), distil=0.3)
    history = training.fit()
    assert [d.allocation for d in history.decisions] == ["up", "down", "up"]
    assert training.run.surgeries == (B,)


class Stop(Exception):
    """Raised to interrupt a training, as a power cut would."""


@pytest.mark.parametrize("stop_at", [1, 2, 4, 6])
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, stop_at):
    def make(path, on_event=None):
        scheduler = TimedScheduler(7, up_at=[2], down_at=[5], repeat=2)
        clock = VirtualClock(growth="parameters")
        return trainer(
            scheduler,
            Chooses([A], [B]),
            clock=clock,
            net=small_net(dropout=0.2),
            checkpoint=path,
            on_event=on_event,
            distil=0.4,
        )

    whole = make(None)
    expected = whole.fit()
    seen = []

    def cut(event):
        seen.append(event)
        if len([e for e in seen if e.kind in ("epoch", "shrink")]) == stop_at:
            raise Stop

    with pytest.raises(Stop):
        make(tmp_path / "c", cut).fit()
    second = make(tmp_path / "c")
    assert second.fit().to_dict() == expected.to_dict()
    assert same_weights(second.model, whole.model)
    assert make(tmp_path / "c").fit().to_dict() == expected.to_dict(), "nothing is left to do"
    rebuilt = checkpoint.load(tmp_path / "c", small_net(dropout=0.2), digits().val_x)
    assert same_weights(rebuilt, whole.model)


def test_the_live_system_drives_it(tmp_path):
    scheduler = LiveScheduler(50)

    def outside(event):
        if event.kind == "epoch" and event.time == 1.0:
            scheduler.offer(2)
        if event.kind == "epoch" and event.time == 3.0:
            scheduler.set_budget(4)

    agent = Chooses([A])
    history = trainer(scheduler, agent, on_event=outside).fit()
    assert history.surgeries == (A,)
    assert agent.asked[0].gpus_gained == 2
    assert history.lines[-1].time == 4.0


def test_real_time():
    training = trainer(TimedScheduler(0.5, up_at=[0]), Chooses([A]), clock=None)
    history = training.fit()
    assert isinstance(training.run.clock, RealClock)
    assert history.surgeries == (A,)
    assert history.lines[-1].time >= 0.5
    assert history.test is not None


def test_own_pipelines_without_test_data():
    data = digits()
    batches = [(data.train_x[i : i + 50], data.train_y[i : i + 50]) for i in range(0, 200, 50)]
    history = trainer(TimedScheduler(2), data=Loaders(batches)).fit()
    assert (history.validation, history.test) == (None, None)
    assert len(history.lines) == 2


def test_a_scheduler_of_ones_own():
    class Mine:
        asked = 0

        def time_left(self):
            return 3.0 - self.asked

        def time_budget(self):
            return 3.0

        def allocation(self):
            self.asked += 1
            return "up" if self.asked == 2 else "none"

    assert trainer(Mine(), Chooses([A])).fit().surgeries == (A,)


def test_the_story_as_a_table_and_a_picture(tmp_path):
    history = trainer(TimedScheduler(4, up_at=[1], repeat=2), Chooses([A], [])).fit()
    frame = history.to_frame()
    assert frame.height == 4
    assert frame["grown"].to_list() == ["", "deepen 0", "nothing", ""]
    assert frame["time_s"].to_list() == [1.0, 2.0, 3.0, 4.0]
    assert frame.schema["validation"] == pl.Float64
    assert "deepen 0" in str(history)
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<svg"), ("a.json", b"{")):
        history.plot(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    assert b"deepen 0" in (tmp_path / "a.json").read_bytes()
    with pytest.raises(GrowError, match=r"\.bmp"):
        history.plot(tmp_path / "a.bmp")
    assert History.from_dict(history.to_dict()) == history


def test_an_empty_story_can_be_told(tmp_path):
    history = History(5.0)
    assert history.to_frame().is_empty()
    assert history.validation is None
    history.plot(tmp_path / "a.svg")


def test_nonsense_is_refused():
    with pytest.raises(UnknownName, match="pretraned"):
        trainer(TimedScheduler(1), "pretraned")
    with pytest.raises(GrowError, match="int is not an agent"):
        trainer(TimedScheduler(1), 3)
    with pytest.raises(GrowError, match="different clocks"):
        trainer(TimedScheduler(1, clock=VirtualClock()))
    with pytest.raises(GrowError, match="distil = 0"):
        trainer(TimedScheduler(1), distil=0.0)
    with pytest.raises(GrowError, match="does not accept"):
        trainer(TimedScheduler(2, up_at=[0]), Chooses(), example=torch.zeros(2, 3)).fit()
    with pytest.raises(UnknownName, match="shorten"):
        trainer(TimedScheduler(1), operations=["shorten"]).options()
    with pytest.raises(GrowError, match="folder does not exist"):
        trainer(TimedScheduler(2), checkpoint="nowhere/at/all")
    odd = TimedScheduler(2)
    odd.allocation = lambda: "more"
    with pytest.raises(GrowError, match="'more'"):
        trainer(odd).fit()


def test_a_diverging_training_says_so():
    class Bad(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x):
            return self.layer(x.flatten(1)) / 0

    with pytest.raises(GrowError, match="the loss is not finite"):
        trainer(TimedScheduler(2), net=Bad()).fit()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"guard": 3}, "guard = 3 is not a Guard"),
        ({"widen_by": 0.5}, "widen_by = 0.5 makes no layer wider"),
        ({"widen_by": (1.5, 1.0)}, "widen_by = 1.0"),
        ({"widen_by": float("nan")}, "widen_by = nan"),
        ({"widen_by": "2"}, "widen_by = '2'"),
        ({"widen_init": "x"}, "widen_init 'x'"),
        ({"widen_noise": -1.0}, "widen_noise = -1"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_training(more, told):
    with pytest.raises((GrowError, UnknownName), match=told):
        trainer(TimedScheduler(4), **more)
