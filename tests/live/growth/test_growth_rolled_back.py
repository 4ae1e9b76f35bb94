"""A live job whose network becomes worse by growing goes back to the network that it had."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy
from argosy.grow import FixedSequence, GrowError, Guard, Surgery
from argosy.sdk.growth.grower import Grower, Times
from argosy.sdk.growth.growth import Growth
from argosy.sdk.job import Job

TIMES = Times(50.0, 100.0, 1.0)
PICTURES = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
LOADER = DataLoader(TensorDataset(PICTURES, (PICTURES.sum(1) > 0).long()), batch_size=8)
At = dict[int, Callable[[Job], None]]


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


class Deepens:
    """An agent that deepens the first layer."""

    why = "a test"

    def decide(self, situation: Any) -> tuple[Surgery, ...]:
        return (Surgery("deepen", "0"),)


def _objects() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def _train(
    folder: Path, epochs: int, at: At, loss_of: Callable[[int, float], float | None] = lambda step, loss: loss
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Train by hand, and do something to the job after some steps."""
    with argosy.job(grow=True, checkpoints=folder) as job:
        model, optimizer = job.setup(*_objects())
        for x, y in job.batches(LOADER, epochs=epochs):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            job.report(loss=loss_of(job.step, loss.item()))
            if job.step in at:
                at[job.step](job)
    return model, optimizer


def _growth(job: Any) -> Any:
    return job._growth


def _grow(job: Any) -> None:
    """Do what spare slots would have brought about."""
    growth = _growth(job)
    growth._grower._agent = Deepens()
    growth._judged = growth._done().epochs
    assert growth._together(lambda: growth._grower.grow(TIMES, 1)), "the agent has grown it"


def _size(model: nn.Module) -> int:
    return sum(one.numel() for one in model.parameters())


def _poison(job: Any) -> None:
    with torch.no_grad():
        _growth(job)._grower._network.model[0].weight.fill_(float("inf"))


@pytest.mark.parametrize("how", ["a weight is not finite", "the loss has risen"])
def test_harmful_growth_is_rolled_back(tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept: dict[str, Any] = {}

    def grow(job: Any) -> None:
        network = _growth(job)._grower._network
        kept["model"], kept["optimizer"] = (
            copy.deepcopy(one.state_dict()) for one in (network.model, network.optimizer)
        )
        _grow(job)
        kept["grown"] = _size(network.model)

    def compare(job: Any) -> None:  # before the first step after the roll-back
        network = _growth(job)._grower._network
        for name, tensor in network.model.state_dict().items():
            assert torch.equal(tensor, kept["model"][name])
        mine = network.optimizer.state_dict()["state"]
        assert mine.keys() == kept["optimizer"]["state"].keys()
        for place, state in mine.items():
            assert torch.equal(state["exp_avg"], kept["optimizer"]["state"][place]["exp_avg"])
        kept["compared"] = True

    at: At = {30: grow}

    def loss_of(step: int, loss: float) -> float | None:
        if how == "a weight is not finite":
            return None  # the script reports no losses
        return 50.0 if 30 < step <= 60 else loss

    if how == "a weight is not finite":
        at[33] = _poison
    original = Growth._roll_back

    def roll_back(self: Any, reason: str) -> tuple[bool, str]:
        found = original(self, reason)
        compare(kept["job"])
        return found

    at[29] = lambda job: kept.update(job=job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Growth, "_roll_back", roll_back)
        model, _ = _train(tmp_path, 10, at, loss_of)
    told = capsys.readouterr().err
    assert f"argosy: growth is rolled back: {how}" in told
    assert kept["compared"]
    assert _size(model) == _size(_objects()[0]) < kept["grown"]
    assert all(bool(torch.isfinite(one).all()) for one in model.parameters())


def test_after_a_roll_back_the_job_does_not_grow_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def again(job: Any) -> None:
        growth = _growth(job)
        assert not growth._together(lambda: growth._grow(1))

    model, _ = _train(tmp_path, 10, {30: _grow, 31: _poison, 50: again})
    assert "because growth was rolled back before: the loss is not finite" in capsys.readouterr().err
    assert _size(model) == _size(_objects()[0])


def test_harmless_growth_passes_after_two_epochs(tmp_path: Path) -> None:
    seen: dict[int, bool] = {}

    def look(job: Any) -> None:
        seen[job.step] = _growth(job)._grower.probation is not None

    model, _ = _train(tmp_path, 8, {16: _grow, 25: look, 45: look})
    assert seen == {25: True, 45: False}
    assert _size(model) > _size(_objects()[0])


def test_a_job_restarted_on_probation_can_still_go_back(tmp_path: Path) -> None:
    small = _size(_objects()[0])
    grown, _ = _train(tmp_path, 4, {30: _grow, 31: lambda job: job.checkpoint()})
    assert _size(grown) > small
    model, _ = _train(tmp_path, 8, {38: _poison})
    assert _size(model) == small
    assert all(bool(torch.isfinite(one).all()) for one in model.parameters())


def test_a_network_too_large_to_keep_does_not_grow() -> None:
    model, optimizer = _objects()
    grower = Grower(model, optimizer, Guard(memory_gib=1e-9))
    grower._agent = Deepens()
    model(PICTURES).sum().backward()
    optimizer.step()
    with pytest.raises(GrowError, match="too large to be kept"):
        grower.grow(TIMES, 1)


def test_several_growths_on_probation_go_back_together() -> None:
    model, optimizer = _objects()
    grower = Grower(model, optimizer)
    before = copy.deepcopy(model.state_dict())

    grower._agent = Deepens()
    for _ in range(2):
        model(PICTURES).sum().backward()
        optimizer.step()
        if not grower.is_grown:
            before = copy.deepcopy(model.state_dict())
        assert grower.grow(TIMES, 1)[0]
    record = grower.state()
    other, others_optimizer = _objects()
    newcomer = Grower(other, others_optimizer)
    newcomer._agent = Deepens()
    newcomer.load(record)
    for one in (grower, newcomer):
        assert one.roll_back("a test", TIMES) == (True, "growth is rolled back: a test")
        assert not one.is_grown and one.probation is None
    for network in (model, other):
        assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert grower.roll_back("once more", TIMES)[0] is False


def test_only_the_last_growth_is_rolled_back_if_those_before_have_passed() -> None:
    model, optimizer = _objects()
    grower = Grower(model, optimizer)
    grower._agent = Deepens()

    def step() -> None:
        optimizer.zero_grad()
        model(PICTURES).square().sum().backward()
        optimizer.step()

    step()
    assert grower.grow(TIMES, 1)[0]
    grower.passed()
    step()
    weights = {name: one.detach().clone() for name, one in model.named_parameters()}
    moments = {name: optimizer.state[one]["exp_avg"].clone() for name, one in model.named_parameters()}
    assert grower.grow(TIMES, 1)[0]
    step()
    assert grower.roll_back("a test", TIMES)[0]
    assert grower.is_grown and len(grower.state()["surgeries"]) == 1
    for name, one in model.named_parameters():
        assert torch.equal(one, weights.pop(name))
        assert torch.equal(optimizer.state[one]["exp_avg"], moments[name])
    assert not weights


def test_a_surgery_that_is_refused_begins_no_probation() -> None:
    model, optimizer = _objects()
    grower = Grower(model, optimizer)
    grower._agent = FixedSequence([Surgery("deepen", "nowhere")])
    model(PICTURES).sum().backward()
    optimizer.step()
    with pytest.raises(GrowError, match="nowhere"):
        grower.grow(TIMES, 1)
    assert grower.probation is None and grower.state()["trial"]["before"] is None


def test_large_gradients_are_clipped_only_in_a_grown_network() -> None:
    model, optimizer = _objects()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    grower = Grower(model, optimizer)

    def step(size: float) -> float:
        optimizer.zero_grad()
        for one in model.parameters():
            one.grad = torch.full_like(one, size)
        before = model[-1].bias.detach().clone()
        optimizer.step()
        return float((model[-1].bias.detach() - before).abs().max())

    for _ in range(60):
        assert step(0.01) == pytest.approx(0.01, rel=1e-3)
    assert step(5.0) == pytest.approx(5.0)
    grower._agent = Deepens()
    model(PICTURES).sum().backward()
    grower.grow(TIMES, 1)
    assert grower.is_grown
    assert step(5.0) < 0.1
