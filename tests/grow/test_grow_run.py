"""A training run: the right course of the learning rate, exact time, copies with the same future."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training_help import digits, same_weights, small_net

from argosy.grow.errors import GrowError
from argosy.grow.surgery.history import surgeries_of
from argosy.grow.surgery.record import Surgery
from argosy.grow.training.clock import RealClock, VirtualClock
from argosy.grow.training.feed import Loaders
from argosy.grow.training.recipe import MOMENTA, STUDIED, Course, Recipe
from argosy.grow.training.run import Run

DEEPEN = Surgery("deepen", "0")


def new(recipe=None, clock=None, *, seed=0, budget=10.0, net=None, data=None, **more):
    return Run(net or small_net(seed), data or digits(), recipe, clock or VirtualClock(), seed, budget=budget, **more)


def test_it_computes_what_a_plain_loop_computes():
    run = new(Recipe(schedule="constant"))
    net, data = small_net(), digits()
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    order = torch.Generator().manual_seed(0)
    for _ in range(3):
        run.train_epoch()
        for i in torch.split(torch.randperm(200, generator=order), 64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(data.train_x[i]), data.train_y[i]).backward()
            optimizer.step()
    assert same_weights(net, run.model)


def test_the_network_given_is_not_changed():
    net = small_net()
    before = copy.deepcopy(net)
    run = new(net=net)
    run.train_epoch()
    run.grow([DEEPEN])
    run.train_epoch()
    assert same_weights(net, before)
    assert surgeries_of(net) == ()
    assert run.surgeries == surgeries_of(run.model) == (DEEPEN,)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_copy_has_the_same_future_bit_by_bit(optimizer):
    run = new(Recipe(optimizer=optimizer), net=small_net(dropout=0.3))
    run.train_epoch()
    twin = run.fork()
    torch.rand(7)  # others draw random numbers too
    for r in (run, twin):
        r.grow([DEEPEN])
    assert [run.train_epoch() for _ in range(2)] == [twin.train_epoch() for _ in range(2)]
    assert same_weights(run.model, twin.model)
    assert run.evaluate() == twin.evaluate()


def test_arms_that_branch_do_not_touch_each_other():
    run = new()
    run.train_epoch()
    frozen = copy.deepcopy(run.model)
    arm = run.fork()
    arm.train_epoch()
    arm.grow([DEEPEN])
    assert same_weights(run.model, frozen)
    assert run.clock.now() == 1.0
    assert run.surgeries == ()
    assert not any(p is q for p in run.model.parameters() for q in arm.model.parameters())
    held = {id(p) for group in arm.optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in arm.model.parameters()}


def test_the_seed_is_the_order_of_the_data():
    losses = [new(seed=s, net=small_net()).train_epoch().loss for s in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_training_draws_nothing_from_the_global_generator():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    new(net=small_net(dropout=0.5))
    torch.manual_seed(5)
    run = new(net=small_net(dropout=0.5))
    torch.manual_seed(5)
    run.train_epoch()
    assert torch.equal(torch.rand(3), expected)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.3, 4.0), st.floats(0.05, 3.0))
def test_the_last_epoch_ends_with_the_budget(budget, epoch_s):
    run = new(clock=VirtualClock(epoch_s), budget=budget)
    epochs = []
    while run.time_left > 0:
        epochs.append(run.train_epoch())
        if len(epochs) > 90:
            break
    assert run.clock.now() == pytest.approx(budget, rel=1e-9)
    assert all(e.whole and e.steps == 4 for e in epochs[:-1])
    steps = sum(e.steps for e in epochs)
    assert abs(steps - 4 * budget / epoch_s) < 1 + 1e-5
    with pytest.raises(GrowError, match="no time is left"):
        run.train_epoch()


def test_whole_epochs_fit_exactly():
    run = new(clock=VirtualClock(0.1), budget=0.7)
    epochs = [run.train_epoch() for _ in range(7)]
    assert all(e.whole for e in epochs)
    assert run.time_left == 0
    assert run.clock.now() == 0.7


def test_less_than_a_step_is_waited_out():
    run = new(clock=VirtualClock(1.0), budget=1.2)
    run.train_epoch()
    before = copy.deepcopy(run.model)
    last = run.train_epoch()
    assert (last.steps, last.loss, last.whole) == (0, None, False)
    assert run.clock.now() == 1.2
    assert same_weights(run.model, before)


@pytest.mark.parametrize(("growth", "surgery"), [("parameters", DEEPEN), ("flops", DEEPEN)])
def test_growth_costs_time(growth, surgery):
    run = new(clock=VirtualClock(growth=growth))
    size, work = run.parameters, run.flops()
    run.grow([surgery])
    expected = run.parameters / size if growth == "parameters" else run.flops() / work
    assert expected > 1.2
    assert run.train_epoch().seconds == pytest.approx(expected)


def test_replicas_cost_no_weights_and_save_time():
    run = new(clock=VirtualClock())
    size = run.parameters
    run.grow([Surgery("replicate", factor=2.0)])
    assert run.parameters == size
    assert run.train_epoch().seconds == pytest.approx(1 / 1.9)


def test_cosine_by_time_goes_to_zero_at_the_end():
    recipe = Recipe(lr=0.04)
    course = Course(0.04, since=2.0)
    assert recipe.lr_at(course, 2.0, 10.0) == 0.04
    assert recipe.lr_at(course, 6.0, 10.0) == pytest.approx(0.02)
    assert recipe.lr_at(course, 10.0, 10.0) == pytest.approx(0.0)
    assert recipe.lr_at(course, 99.0, math.inf) == 0.04
    decay = Recipe(schedule="decay", decay=0.9)
    assert decay.lr_at(Course(0.01, 0.0, 3), 5.0, 10.0) == pytest.approx(0.01 * 0.9**3)
    assert Recipe(schedule="constant").lr_at(course, 9.0, 10.0) == 0.04


def steps_of(run, epochs=1):
    """The learning rate of every step of some epochs."""
    rates = []
    inner = run.set_rate
    run.set_rate = lambda now: rates.append(inner(now)) or rates[-1]
    for _ in range(epochs):
        run.train_epoch()
    del run.set_rate
    return rates


def test_growth_sets_the_rate_back_to_the_recipes_own_and_the_cosine_starts_there():
    run = new(Recipe(lr=0.05, warm_up=0), budget=10.0)
    for _ in range(6):
        run.train_epoch()
    low = run.lr
    assert low == pytest.approx(0.05 * 0.5 * (1 + math.cos(0.6 * math.pi)))
    run.grow([])
    assert run.lr == low, "nothing was decided, nothing changes"
    run.grow([DEEPEN])
    assert run.lr == 0.05
    run.train_epoch()
    run.train_epoch()
    assert run.lr == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("recipe", "rate"),
    [
        (Recipe(optimizer="adam", lr=0.001), 0.001),
        (Recipe(lr=0.05, reset=0.5), 0.025),
        (Recipe(lr=0.05, reset_lr=0.01), 0.01),
        (Recipe(lr=0.05, schedule="constant"), 0.05),
        (Recipe(lr=0.05, schedule="decay", decay=0.5), 0.05),
    ],
)
def test_the_rate_after_growth_is_relative_to_the_recipe(recipe, rate):
    run = new(dataclasses.replace(recipe, warm_up=0))
    for _ in range(5):
        run.train_epoch()
    run.grow([DEEPEN])
    assert run.lr == pytest.approx(rate)


def test_the_rate_climbs_in_some_steps_after_growth():
    run = new(Recipe(lr=0.05, batch=20, warm_up=5, schedule="constant"))  # 10 steps in an epoch
    run.train_epoch()
    run.grow([DEEPEN])
    assert steps_of(run) == pytest.approx([0.005, 0.014, 0.023, 0.032, 0.041, *[0.05] * 5])
    late = new(Recipe(lr=0.05, batch=20, warm_up=100, schedule="decay", decay=0.5), budget=10.0)
    for _ in range(5):
        late.train_epoch()
    low = late.lr
    late.grow([DEEPEN])
    rates = steps_of(late, 2)
    assert rates[0] == low == 0.05 / 32, "it begins where it was"
    assert rates[:10] == sorted(set(rates[:10])), "it climbs for an epoch at most"
    assert rates[9] == pytest.approx(low + 0.9 * (0.05 - low))
    assert rates[10:] == [0.025] * 10


def test_no_reset_with_little_time_left():
    run = new(Recipe(warm_up=0), budget=3.5)
    run.train_epoch()
    run.train_epoch()
    low = run.lr
    run.grow([DEEPEN])
    assert run.lr == low < 0.005
    exactly_two = new(Recipe(warm_up=0), budget=3.0)
    exactly_two.train_epoch()
    exactly_two.grow([DEEPEN])
    assert exactly_two.lr == 0.01


def test_in_real_time_the_last_epoch_tells_how_long_one_takes():
    run = new(clock=RealClock(), budget=1000.0)
    run.train_epoch()
    assert 0 < run.last_epoch_s < 100
    run.budget = run.clock.now() + run.last_epoch_s * 1.9
    before = run.course
    run.grow([DEEPEN])
    assert (run.course.lr, run.course.since) == (before.lr, before.since)
    run.budget = 1000.0
    run.grow([DEEPEN])
    assert run.course.since > 0


def test_resets_can_be_forced_and_forbidden():
    run = new(Recipe(warm_up=0))
    for _ in range(5):
        run.train_epoch()
    other, nothing = run.fork(), run.fork()
    other.grow([DEEPEN], reset=False)
    assert other.lr == run.lr
    run.grow([], reset=True)
    assert run.lr == 0.01
    nothing.recipe = dataclasses.replace(nothing.recipe, reset_for_nothing=True)
    nothing.grow([])
    assert nothing.lr == 0.01
    never = new(Recipe(reset=None, warm_up=0))
    never.train_epoch()
    before = never.lr
    never.grow([DEEPEN])
    assert never.lr == before


def test_the_published_quirk_everything_anew_each_epoch():
    run = new(Recipe(schedule="decay", reset_each_epoch=True, momentum=0.9))
    rates = [run.train_epoch().lr for _ in range(3)]
    assert rates == pytest.approx([0.01, 0.009, 0.0081])
    run.grow([])
    before = run.optimizer
    rates = [run.train_epoch().lr for _ in range(3)]
    assert rates == pytest.approx([0.01] * 3)
    assert run.optimizer is not before


def momentum(run):
    """How much momentum an optimizer has."""
    return sum(float(s[name].abs().sum()) for s in run.optimizer.state.values() for name in MOMENTA if name in s)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_momentum_is_damped_at_growth_and_the_size_of_gradients_stays_known(optimizer):
    left = {}
    for keep in (1.0, 0.1, 0.0):
        run = new(Recipe(optimizer=optimizer, keep_momentum=keep))
        run.train_epoch()
        run.grow([DEEPEN])
        left[keep] = momentum(run)
        squares = [s["exp_avg_sq"].sum() for s in run.optimizer.state.values() if "exp_avg_sq" in s]
        assert all(float(s) > 0 for s in squares)
    assert left[0.1] == pytest.approx(0.1 * left[1.0])
    assert left[1.0] > 0 == left[0.0]
    anew = new(Recipe(optimizer=optimizer, carry_optimizer=False))
    anew.train_epoch()
    anew.grow([DEEPEN])
    assert not anew.optimizer.state


def test_a_grown_network_survives_a_gradient_that_is_much_too_large():
    runs = {}
    for clip in (None, 3.0):
        run = new(Recipe(lr=0.02, schedule="constant", batch=20, clip=clip), budget=20.0)
        run.train_epoch()
        run.grow([DEEPEN])
        run.train_epoch()
        inner = run.loss
        run.loss = lambda x, y, inner=inner, run=run: inner(x, y) * (3000.0 if run.course.steps == 13 else 1.0)
        run.train_epoch()
        run.loss = inner
        runs[clip] = run.evaluate("train")
    assert runs[3.0] > runs[None] + 0.1


def test_a_network_that_has_not_grown_is_never_clipped():
    one, two = new(Recipe(clip=1e-6)), new(Recipe(clip=None))
    assert [one.train_epoch() for _ in range(3)] == [two.train_epoch() for _ in range(3)]


def test_all_surgeries_or_none():
    run = new()
    run.train_epoch()
    before, optimizer, course = run.model, run.optimizer, run.course
    with pytest.raises(GrowError):
        run.grow([DEEPEN, Surgery("deepen", "nowhere")])
    assert (run.model, run.optimizer, run.course) == (before, optimizer, course)
    assert run.surgeries == ()
    run.train_epoch()


def test_growth_does_not_change_what_is_computed():
    run = new()
    run.train_epoch()
    x = digits().val_x
    with torch.no_grad():
        before = run.model.eval()(x)
        run.grow([DEEPEN, Surgery("deepen", "4")])
        assert torch.allclose(run.model.eval()(x), before, atol=1e-5)


def test_a_loss_that_is_no_number_keeps_the_last_good_weights():
    run = new(Recipe(lr=0.01))
    run.train_epoch()
    good = copy.deepcopy(run.model)
    run.recipe = dataclasses.replace(run.recipe, schedule="constant")
    run.course = Course(1e30)
    with pytest.raises(GrowError, match=r"not finite in epoch 2.*\n.*smaller learning rate"):
        for _ in range(3):
            run.train_epoch()
    assert same_weights(run.model, good)
    assert run.epochs == 1
    run.course = Course(0.01)
    assert math.isfinite(run.train_epoch().loss)


def test_evaluation_restores_modes_and_changes_nothing():
    run = new()
    run.model.train()
    run.model[1].eval()
    before = copy.deepcopy(run.model)
    accuracy = run.evaluate("test")
    assert run.model.training
    assert not run.model[1].training
    assert same_weights(run.model, before)
    with torch.no_grad():
        right = before.eval()(digits().test_x).argmax(1) == digits().test_y
    assert accuracy == pytest.approx(float(right.float().mean()))


def test_it_learns():
    run = new(Recipe(lr=0.05), data=digits(600), budget=12.0)
    while run.time_left > 0:
        run.train_epoch()
    assert run.evaluate("test") > 0.6


def loader(n=200, **options):
    data = digits()
    return DataLoader(TensorDataset(data.train_x[:n], data.train_y[:n]), batch_size=32, **options)


def test_own_pipelines_and_their_copies():
    val = [(digits().val_x, digits().val_y)]
    run = new(data=Loaders(loader(shuffle=True), val))
    assert run.train_epoch().steps == 7
    twin = run.fork()
    assert run.train_epoch() == twin.train_epoch(), "a shuffling DataLoader draws from the run's own numbers"
    assert 0 <= run.evaluate() <= 1
    with pytest.raises(GrowError, match="no test data"):
        run.evaluate("test")
    assert new(data=loader()).train_epoch().steps == 7


def test_a_pipeline_of_unknown_length():
    class Stream:
        def __iter__(self):
            return iter(loader())

    run = new(data=Stream())
    assert run.train_epoch().steps == 7
    assert run.clock.now() == 1.0


def test_an_exhausted_pipeline_is_reported():
    with pytest.raises(GrowError, match="no batches"):
        new(data=iter(()))
    batches = iter(loader())
    run = new(data=batches)
    run.train_epoch()
    with pytest.raises(GrowError, match="no batches"):
        run.train_epoch()


def test_own_loss_and_score():
    def loss(outputs, targets):
        return ((outputs - nn.functional.one_hot(targets, 10)) ** 2).mean()

    run = new(loss=loss, score=lambda outputs, targets: -((outputs - nn.functional.one_hot(targets, 10)) ** 2))
    before = run.evaluate()
    with torch.no_grad():
        expected = loss(small_net().train()(digits().train_x), digits().train_y).item()
    assert run.train_epoch().loss == pytest.approx(expected, rel=0.3)
    assert 0 > run.evaluate() > before


def test_networks_of_several_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, x, shift):
            return self.layer(x.flatten(1)) + shift

    data = digits()
    batches = [([data.train_x[i : i + 50], torch.ones(50, 1)], data.train_y[i : i + 50]) for i in range(0, 200, 50)]
    run = new(net=Two(), data=Loaders(batches, batches), clock=VirtualClock(growth="flops"))
    before = run.train_epoch().loss
    assert run.train_epoch().loss < before
    assert run.flops() == 2 * 64 * 10
    assert run.evaluate() > 0.1


def test_real_time_ends_an_epoch_in_the_middle():
    class Steps(RealClock):
        """A clock that advances by a tenth of a second whenever it is read."""

        ticks = 0

        def now(self):
            self.ticks += 1
            return self.ticks / 10

    run = new(clock=Steps(), budget=1.0)
    epoch = run.train_epoch()
    assert not epoch.whole
    assert 1 <= epoch.steps < 4


def test_a_last_batch_of_one_is_left_out():
    data = digits()
    odd = dataclasses.replace(data, train_x=data.train_x[:129], train_y=data.train_y[:129])
    assert new(data=odd).train_epoch().steps == 2
    more = dataclasses.replace(data, train_x=data.train_x[:130], train_y=data.train_y[:130])
    assert new(data=more).train_epoch().steps == 3


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: Recipe(batch=0), "batch = 0"),
        (lambda: Recipe(lr=0), "lr = 0"),
        (lambda: Recipe(lr=math.nan), "lr = nan"),
        (lambda: Recipe(reset=-1.0), "reset = -1"),
        (lambda: Recipe(keep_momentum=2.0), "keep_momentum = 2"),
        (lambda: Recipe(warm_up=-1), "warm_up = -1"),
        (lambda: Recipe(clip=0.0), "clip = 0"),
        (lambda: Recipe(schedule="steps"), "'steps'"),
        (lambda: Recipe(optimizer="lamb"), "'lamb'"),
        (lambda: Recipe.from_dict({"speed": 1}), "speed"),
        (lambda: new(budget=0.0), "budget of 0"),
        (lambda: new(data="digits"), "str is not training data"),
        (lambda: new(net=small_net().requires_grad_(False)), "nothing to train"),
        (lambda: new(net=nn.Sequential(nn.Flatten(), nn.Linear(64, 7))), "outputs for 7 classes, but digits has 10"),
        (lambda: new(net=nn.Linear(3, 10)), "does not accept an example input of shape 64x1x8x8"),
    ],
)
def test_nonsense_is_refused(make, part):
    with pytest.raises(GrowError) as error:
        make()
    assert part in str(error.value)


def test_the_published_small_setting_can_be_said():
    """The schedule has three successive epochs from 20 % of the budget, a reset at each, and ends at 0."""
    run = new(STUDIED, budget=15.0)
    rates = []
    while run.time_left > 0:
        if 3.0 <= run.clock.now() < 6.0:
            run.grow([DEEPEN])
        rates.append(run.lr)
        run.train_epoch()
    assert rates[3:6] == [0.01] * 3
    assert rates[-1] < 0.001
    assert run.lr == pytest.approx(0, abs=1e-12)
    assert Recipe.from_dict(run.recipe.to_dict()) == run.recipe
