"""A script's network and optimizer are grown in place and stay the same objects."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from argosy.grow import GrowError, Surgery, surgeries_of
from argosy.sdk.growth.grower import Grower, Times
from argosy.sdk.growth.in_place_model import InPlaceModel
from argosy.sdk.growth.recent_inputs import RecentInputs, agreement, learned

DEEPEN, WIDEN = Surgery("deepen", "features.0"), Surgery("widen", "features.0", 1.5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.features(x).mean((2, 3)))
        return found


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def _trained(optimizer_of: type[torch.optim.Optimizer] = torch.optim.AdamW) -> tuple[Net, torch.optim.Optimizer]:
    model = Net()
    groups = [{"params": model.features.parameters(), "lr": 0.02}, {"params": model.head.parameters(), "lr": 0.01}]
    optimizer = optimizer_of(groups)  # type: ignore[call-arg]
    _train(model, optimizer, 5)
    return model, optimizer


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> float:
    for _ in range(steps):
        x = torch.randn(16, 1, 6, 6)
        y = (x[:, 0, 0, 0] > 0).long() + (x.mean((1, 2, 3)) > 0)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def _answers(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = copy.deepcopy(model).eval()(x)
    return found


def test_the_scripts_objects_grow_and_go_back() -> None:
    model, optimizer = _trained()
    body, x = InPlaceModel(model, optimizer), torch.randn(8, 1, 6, 6)
    before, momentum = _answers(model, x), optimizer.state[model.head.weight]["exp_avg"].clone()
    names = [name for name, _ in model.named_parameters()]
    body.become(body.grown([DEEPEN, WIDEN], x))
    assert torch.allclose(_answers(model, x), before, atol=1e-5)
    assert surgeries_of(model) == (DEEPEN, WIDEN)
    held = [one for group in optimizer.param_groups for one in group["params"]]
    assert {id(one) for one in held} == {id(one) for one in model.parameters()}
    assert [group["lr"] for group in optimizer.param_groups] == [0.02, 0.01]
    assert len(optimizer.param_groups[0]["params"]) > 4 and len(optimizer.param_groups[1]["params"]) == 2
    assert torch.equal(optimizer.state[model.head.weight]["exp_avg"][:, :4], momentum)  # the copies come behind
    _train(model, optimizer, 5)
    model.features.eval()
    body.become(body.small(body.original))
    assert [name for name, _ in model.named_parameters()] == names and not surgeries_of(model)
    assert torch.equal(_answers(model, x), before)  # the network from before the growth, with its weights
    assert not model.features[1].training and model.head.training  # modes are the script's
    _train(model, optimizer, 2)
    assert len(optimizer.param_groups[0]["params"]) == 4


def test_the_same_surgeries_make_room_for_the_same_state() -> None:
    model, optimizer = _trained()
    body, x = InPlaceModel(model, optimizer), torch.randn(8, 1, 6, 6)
    body.become(body.grown([WIDEN], x))
    _train(model, optimizer, 3)
    body.become(body.grown([DEEPEN], x))
    _train(model, optimizer, 3)
    other, others_optimizer = _trained()
    newcomer = InPlaceModel(other, others_optimizer)
    assert newcomer.rebuild([WIDEN, DEEPEN], torch.randn(2, 1, 6, 6))
    assert not newcomer.rebuild([WIDEN, DEEPEN], None)
    other.load_state_dict(model.state_dict())
    others_optimizer.load_state_dict(optimizer.state_dict())
    assert torch.equal(_answers(other, x), _answers(model, x))
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(optimizer.state[one]["exp_avg"], others_optimizer.state[two]["exp_avg"])
    assert newcomer.rebuild([DEEPEN], torch.randn(2, 1, 6, 6)) and surgeries_of(other) == (DEEPEN,)
    assert newcomer.rebuild([], None) and not surgeries_of(other)


def test_a_surgery_that_is_refused_changes_nothing() -> None:
    model, optimizer = _trained(torch.optim.SGD)
    body, x = InPlaceModel(model, optimizer), torch.randn(8, 1, 6, 6)
    before = dict(model.named_parameters())
    with pytest.raises(GrowError):
        body.grown([DEEPEN, Surgery("widen", "head", 2.0)], x)  # the second would change the outputs
    assert all(before[name] is parameter for name, parameter in model.named_parameters())


def test_the_agent_grows_it_and_it_is_distilled_back() -> None:
    model, optimizer = _trained()
    grower = Grower(model, optimizer)
    small = sum(one.numel() for one in model.parameters())
    _train(model, optimizer, 5)
    numbers = torch.get_rng_state()
    changed, story = grower.grow(Times(50.0, 100.0, 1.0), gained=1)
    assert changed and grower.is_grown and story.startswith("the agent ") and "outputs kept" in story
    assert torch.equal(torch.get_rng_state(), numbers)
    _train(model, optimizer, 40)
    kept = grower.state()
    assert grower.shrink(Times(50.0, 100.0, 1.0), hurry=lambda: True)[0] is False  # it has to leave first
    assert grower.is_grown
    changed, story = grower.shrink(Times(50.0, 100.0, 1.0), hurry=lambda: False)
    assert changed and not grower.is_grown and "agreement" in story
    assert sum(one.numel() for one in model.parameters()) == small
    other, others_optimizer = _trained()
    newcomer = Grower(other, others_optimizer)
    assert newcomer.load(kept) and newcomer.is_grown
    assert str(newcomer.state()["surgeries"]) == str(kept["surgeries"])
    with pytest.raises(GrowError, match="no time"):
        grower.grow(Times(0.0, 100.0, 1.0), gained=1)


def test_a_small_network_learns_the_answers_of_a_grown_one() -> None:
    bigger, small = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3)), nn.Sequential(nn.Linear(4, 3))
    inputs = [torch.randn(5, 4) for _ in range(40)] + [torch.randn(1, 4)]
    found = learned(bigger, small, inputs, seconds=1.0, hurry=lambda: False)
    assert agreement(bigger, found, inputs) > max(agreement(bigger, small, inputs), 0.6)


def test_only_training_steps_are_remembered_and_not_too_many() -> None:
    lessons, model = RecentInputs(), nn.Linear(4, 2)
    lessons.watch(model)
    with pytest.raises(GrowError, match="not been called"):
        lessons.inputs  # noqa: B018
    with torch.no_grad():
        model(torch.zeros(3, 4))
    for number in range(50):
        model(torch.full((100, 4), float(number)))
    model.eval()(torch.zeros(3, 4))
    assert [float(one[0, 0]) for one in lessons.inputs] == [float(number) for number in range(30, 50)]
    lessons.look_away()
    model.train()(torch.zeros(3, 4))
    assert len(lessons.inputs) == 20
    two = nn.Bilinear(4, 4, 2)
    lessons.watch(two)
    two(torch.zeros(3, 4), torch.zeros(3, 4))
    with pytest.raises(GrowError, match="other than one tensor"):
        lessons.inputs  # noqa: B018
