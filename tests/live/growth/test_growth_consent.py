"""Growth needs the consent of job file and script, and some scripts cannot grow."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import argosy
from argosy.errors import InputError
from argosy.sdk.checkpoints.files import steps
from argosy.sdk.growth.growth import consent
from argosy.sdk.growth.in_place_model import InPlaceModel
from argosy.sdk.training import Backwards


def test_script_and_job_file_must_both_say_yes() -> None:
    yes, no = {"ARGOSY_GROW": '{"allowed": true}'}, {"ARGOSY_GROW": '{"allowed": false, "time_budget": 60}'}
    assert consent(True, yes)
    assert not consent(False, yes) and not consent(True, no) and not consent(True, {})


def test_what_must_not_depend_on_the_slots_does_not_grow() -> None:
    with pytest.raises(InputError, match="exclude each other"), argosy.job(exact=True, grow=True):
        pass


def test_a_script_with_two_networks_trains_on_without_growth() -> None:
    torch.set_num_threads(1)
    with argosy.job(grow=True) as job:
        one, two = nn.Linear(2, 2), nn.Linear(2, 2)
        job.setup(one, two, torch.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1))
        for (x,) in job.batches(_loader(), epochs=1):
            two(one(x)).sum().backward()
        state = job._live.training.state()["growth"]
    assert "surgeries" not in state and state["base"] == 1


def test_a_grown_network_goes_on_by_hand_and_only_with_consent(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    with argosy.job(grow=True, checkpoints=tmp_path) as job:
        model, optimizer = _objects()
        job.setup(model, optimizer)
        for (x,) in job.batches(_loader(), epochs=1):
            grower = job._growth._grower if job._growth else None
            assert grower is not None
            if job.step == 1:  # by hand there are no spare slots: do what they would have brought about
                _deepen(grower._network)
                grower._left, grower._example = [1.0], torch.randn(2, 2)
                assert job._growth
                job._growth._use_new_parameters()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        job.checkpoint()
    assert steps(tmp_path)
    with argosy.job(grow=True, checkpoints=tmp_path) as job:
        again, optimizer = _objects()
        job.setup(again, optimizer)
        assert len(list(again.parameters())) == len(list(model.parameters())) == 6
        assert torch.equal(again(torch.ones(1, 2)), model(torch.ones(1, 2)))
    with pytest.raises(InputError, match="has grown"), argosy.job(checkpoints=tmp_path) as job:
        job.setup(*_objects())


def _objects() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _deepen(body: InPlaceModel) -> None:
    from argosy.grow import Surgery

    body.become(body.grown([Surgery("deepen", "0")], torch.randn(4, 2)))


def _loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(12, 2)), batch_size=4)


def test_a_parameter_is_watched_once_and_a_new_one_in_its_place_too() -> None:
    ended: list[int] = []
    watch = Backwards(lambda: ended.append(1))
    for _ in range(20):  # a freed parameter's address is soon another's
        model = nn.Linear(2, 2)
        watch.watch(model.parameters())
        watch.watch(model.parameters())
        model(torch.ones(1, 2)).sum().backward()
        del model
    assert len(ended) == 20
