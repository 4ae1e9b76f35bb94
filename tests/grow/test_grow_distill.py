"""Distillation on the digits: never worse than the start, nothing but the result changes, bad input is explained."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from argosy.grow.data import Data, load
from argosy.grow.errors import GrowError
from argosy.grow.models import cnn1
from argosy.grow.surgery.deepen import deepen
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.widen import widen
from argosy.grow.training import clock as clock_module
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.distill import shrink
from argosy.grow.training.feed import Loaders
from argosy.grow.training.inherit import inherited, recalibrate
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.run import Run
from argosy.grow.training.shrinking import shrunk


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def digits() -> Data:
    return load("digits")


@pytest.fixture(scope="module")
def trained(digits: Data) -> tuple[nn.Module, nn.Module]:
    """A small network after two epochs, and a grown one that was trained for six more."""
    torch.manual_seed(0)
    run = Run(cnn1(8, channels=1), digits, Recipe(lr=0.05), VirtualClock(), budget=8.0)
    for _ in range(2):
        run.train_epoch()
    small = copy.deepcopy(run.model)
    bigger = deepen(small, "0", example=digits.example())
    run.model, run.optimizer = bigger, run.recipe.build(bigger.parameters())
    for _ in range(6):
        run.train_epoch()
    return small, run.model


def accuracy(model: nn.Module, data: Data) -> float:
    with torch.no_grad():
        return float((model.eval()(data.test_x).argmax(1) == data.test_y).float().mean())


def fingerprint(model: nn.Module) -> list[tuple[str, bytes]]:
    modes = bytes(part.training for part in model.modules())
    return [("modes", modes)] + [(name, t.numpy().tobytes()) for name, t in model.state_dict().items()]


def shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("weights", [0.0, 0.3], ids=["logits", "logits and weights"])
def test_the_small_network_learns_and_the_arguments_stay(
    digits: Data, trained: tuple[nn.Module, nn.Module], weights: float
) -> None:
    small, bigger = trained
    before = fingerprint(small), fingerprint(bigger)
    state = torch.get_rng_state()
    result = shrink(bigger, small, digits, epochs=4, weight_weight=weights)
    assert (fingerprint(small), fingerprint(bigger)) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert type(result) is type(small) and shapes(result) == shapes(small)
    assert accuracy(result, digits) >= accuracy(copy.deepcopy(small), digits) + 0.05
    again = shrink(bigger, small, digits, epochs=4, weight_weight=weights)
    assert fingerprint(again)[1:] == fingerprint(result)[1:]


def test_answers_alone_teach(digits: Data, trained: tuple[nn.Module, nn.Module]) -> None:
    """Without true classes the student learns from the grown network's answers alone."""
    small, bigger = trained

    def nothing(out: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return out.sum() * 0.0

    result = shrink(bigger, small, digits, epochs=4, weight_weight=0, logit_weight=1.0, loss=nothing)
    assert accuracy(result, digits) >= accuracy(copy.deepcopy(small), digits) + 0.05


def test_stale_statistics_of_the_grown_network_do_not_mislead(
    digits: Data, trained: tuple[nn.Module, nn.Module]
) -> None:
    small, bigger = trained
    stale = copy.deepcopy(bigger)
    for part in stale.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean += 3.0  # type: ignore[operator]
    assert accuracy(copy.deepcopy(stale), digits) < 0.5
    result = shrink(stale, small, digits, epochs=4, logit_weight=20.0, weight_weight=0, lr=0.005)
    assert accuracy(result, digits) >= accuracy(copy.deepcopy(small), digits) + 0.05


def test_without_time_the_best_start_comes_back(digits: Data, trained: tuple[nn.Module, nn.Module]) -> None:
    small, bigger = trained
    for options in ({"epochs": 0}, {"seconds": 0.0}, {"seconds": 1e-9}):
        result = shrink(bigger, small, digits, weight_weight=0, **options)  # type: ignore[arg-type]
        assert fingerprint(result)[1:] == fingerprint(small)[1:]
    data = copy.deepcopy(digits)
    one = Run(result, data).evaluate("validation")
    both = Run(shrink(bigger, small, digits, epochs=0), data).evaluate("validation")
    assert both >= one - 0.05


def test_too_large_steps_do_no_harm(digits: Data, trained: tuple[nn.Module, nn.Module]) -> None:
    small, bigger = trained
    result = shrink(bigger, small, digits, epochs=1, lr=1e6)
    assert all(bool(torch.isfinite(t).all()) for t in result.state_dict().values())
    assert accuracy(result, digits) >= accuracy(copy.deepcopy(small), digits) - 0.05


def test_a_virtual_clock_is_charged_exactly(digits: Data, trained: tuple[nn.Module, nn.Module]) -> None:
    small, bigger = trained
    clock = VirtualClock(epoch_s=2.0)
    clock.advance(10.0)
    shrink(bigger, small, digits, seconds=3.0, clock=clock)  # one and a half epochs
    assert clock.now() == 13.0
    shrink(bigger, small, digits, epochs=1, clock=clock)
    assert clock.now() == 15.0


def test_real_seconds_are_kept(
    digits: Data, trained: tuple[nn.Module, nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances only when it is read, so the test does not depend on the machine's speed."""
    reads = 0

    def monotonic() -> float:
        nonlocal reads
        reads += 1
        return reads / 100

    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=monotonic))
    small, bigger = trained
    shrink(bigger, small, digits, seconds=0.3)
    assert 30 <= reads <= 35  # it looks at the clock before every step, and stops at once when the time is over


def test_other_loaders(digits: Data, trained: tuple[nn.Module, nn.Module]) -> None:
    small, bigger = trained
    batches = list(zip(digits.train_x.split(64), digits.train_y.split(64), strict=True))[:-1]

    class Unsized:
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter(batches)

    held = [(digits.val_x, digits.val_y)]
    for loader in (batches, Unsized(), Loaders(batches, held), Loaders(Unsized(), held)):
        result = shrink(bigger, small, loader, epochs=2)
        assert accuracy(result, digits) > accuracy(copy.deepcopy(small), digits)


def test_a_widened_network_gives_back_exactly_what_it_was(digits: Data) -> None:
    torch.manual_seed(1)
    small = cnn1(6, channels=1).eval()
    recalibrate(small, [digits.train_x[:500]])
    for init in ("copy", "fresh"):
        bigger = widen(small, "0", 1.5, example=digits.example(), init=init, seed=3)
        bigger = widen(bigger, "4", 2.0, example=digits.example(), init=init, seed=4)
        bigger = deepen(bigger, "4", example=digits.example())
        blank = cnn1(6, channels=1)
        heir = inherited(bigger, blank)
        for name, parameter in small.named_parameters():
            assert torch.allclose(heir.get_parameter(name), parameter, atol=1e-6), (init, name)
        heir_out = inherited(bigger, blank)
        recalibrate(heir_out, [digits.train_x[:500]])
        assert torch.allclose(heir_out.eval()(digits.test_x), small(digits.test_x), atol=1e-4)
        result = shrink(bigger, blank, digits, epochs=1)
        assert accuracy(result, digits) > accuracy(small, digits)


def test_a_network_without_a_record_gives_what_fits() -> None:
    small, other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 2))
    heir = inherited(other, small)
    assert torch.equal(heir[0].weight, other[0].weight[:4]) and torch.equal(heir[1].weight, other[1].weight[:, :4])


def test_recalibration_sets_statistics_and_nothing_else() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5))
    x = torch.tensor([[0.0, 1.0], [2.0, 5.0]])
    recalibrate(model, [x])
    norm = model[0]
    assert norm.running_mean.tolist() == [1.0, 3.0] and norm.running_var.tolist() == [2.0, 8.0]
    assert model.training and model[1].training and norm.momentum == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 1, "seconds": 1.0}, "both given"),
        ({"epochs": -1}, "not a valid duration"),
        ({"seconds": math.inf}, "not a valid duration"),
        ({"temperature": 0.0}, "temperature = 0"),
        ({"lr": math.nan}, "lr = nan"),
        ({"logit_weight": -1.0}, "logit_weight = -1"),
        ({"batch": 1}, "batch = 1"),
    ],
)
def test_options_that_can_not_be_used(digits: Data, options: dict[str, float], message: str) -> None:
    model = cnn1(4, channels=1)
    with pytest.raises(GrowError, match=message):
        shrink(model, model, digits, **options)  # type: ignore[arg-type]


def test_bad_networks_and_data_are_explained(digits: Data) -> None:
    model = cnn1(4, channels=1)
    cases = [
        (cnn1(4, channels=1, classes=7), model, digits, "2x7, but the small one an output of shape 2x10"),
        (cnn1(4, channels=3), model, digits, "does not accept an example input of shape 2x1x8x8"),
        (model, cnn1(4, channels=3), digits, "does not accept an example input"),
        (model, model, [], "no batches"),
        (model, model, iter(()), "no batches"),
        (model, model, [(digits.train_x[:8], torch.full((8,), 10))], "classes 10 to 10, but the networks have 10"),
        (model, model, 7, "int is not training data"),
    ]
    for bigger, small, loader, message in cases:
        with pytest.raises(GrowError, match=message):
            shrink(bigger, small, loader, epochs=1)  # type: ignore[arg-type]
    frozen = cnn1(4, channels=1).requires_grad_(False)
    with pytest.raises(GrowError, match="nothing to train"):
        shrink(model, frozen, digits, epochs=1)


class TestInTheJobsOwnWay:
    """Without settings, a shrunk network goes on as the job does: its optimizer, its rate, its data in their order."""

    def shrunk_run(self, digits: Data, recipe: Recipe) -> tuple[Run, nn.Module, str]:
        torch.manual_seed(0)
        run = Run(cnn1(8, channels=1), digits, recipe, VirtualClock(), budget=10.0)
        for _ in range(2):
            run.train_epoch()
        small = copy.deepcopy(run.model)
        run.grow([Surgery("deepen", "0")])
        for _ in range(4):
            run.train_epoch()
        what, problem = shrunk(run, small, 0.5, None, loss=None, seed=0)
        assert not problem
        return run, small, what

    @pytest.mark.parametrize("optimizer", ["sgd", "adam"])
    def test_optimizer_rate_and_time_are_those_of_the_job(self, digits: Data, optimizer: str) -> None:
        rate = 0.05 if optimizer == "sgd" else 0.003
        run, small, what = self.shrunk_run(digits, Recipe(lr=rate, optimizer=optimizer))
        assert type(run.optimizer).__name__.lower() == optimizer and run.optimizer.state
        assert run.clock.now() == pytest.approx(8.0) and list(run.model.state_dict()) == list(small.state_dict())
        assert {id(p) for group in run.optimizer.param_groups for p in group["params"]} == {
            id(p) for p in run.model.parameters()
        }
        assert run.course.since == 6.0 and run.lr == pytest.approx(rate / 2)  # reset at 6, half-way to the end at 10
        assert "small network from before growth" in what or "grown network's weights" in what
        before = accuracy(run.model, digits)
        while run.time_left > 0:
            run.train_epoch()
        assert accuracy(run.model, digits) > before - 0.05

    def test_the_order_of_the_data_goes_on(self, digits: Data) -> None:
        run, *_ = self.shrunk_run(digits, Recipe(lr=0.05))
        fresh = torch.Generator().manual_seed(0)
        assert not torch.equal(run.generator.get_state(), fresh.get_state())

    def test_a_grown_network_that_is_no_better_does_not_teach(self, digits: Data) -> None:
        torch.manual_seed(0)
        run = Run(cnn1(8, channels=1), digits, Recipe(lr=0.05), VirtualClock(), budget=8.0)
        for _ in range(4):
            run.train_epoch()
        small = copy.deepcopy(run.model)
        run.grow([Surgery("deepen", "0")])
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter.add_(torch.randn_like(parameter))  # it has forgotten all
        what, problem = shrunk(run, small, 1.0, None, loss=None, seed=0)
        assert not problem and "no better" in what and "before growth" in what
        assert accuracy(run.model, digits) >= accuracy(small, digits) - 0.02

    def test_if_it_fails_the_job_goes_on_as_before_growth(self, digits: Data) -> None:
        run = Run(cnn1(8, channels=1), digits, Recipe(lr=0.05), VirtualClock(), budget=8.0)
        run.train_epoch()
        small = copy.deepcopy(run.model)
        run.grow([Surgery("deepen", "0")])
        course = run.course

        def broken(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no loss today")

        what, problem = shrunk(run, small, 1.0, None, loss=broken, seed=0)
        assert problem == "no loss today" and not what and run.course == course
        assert fingerprint(run.model)[1:] == fingerprint(small)[1:]
        run.train_epoch()
