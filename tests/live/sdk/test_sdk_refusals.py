"""What the SDK refuses, and its messages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_sdk_alone import parts, train
from torch import nn

import argosy
from argosy.errors import InputError


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"batch": "huge"}, "unknown batch mode"),
        ({"virtual": 0}, "virtual"),
        ({"every": -1.0}, "every"),
    ],
)
def test_wrong_settings_are_named(what: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        argosy.job(**what)


def test_what_can_not_be_saved_is_refused_at_once() -> None:
    class Odd:
        def state_dict(self) -> dict[str, object]:
            return {"x": parts}

        def load_state_dict(self, state: dict[str, object]) -> None: ...

    model, _, _ = parts()
    with argosy.job() as job:
        with pytest.raises(InputError, match="odd cannot be saved"):
            job.setup(model, odd=Odd())
        with pytest.raises(InputError, match="no state_dict"):
            job.setup(model, thing=3)
        with pytest.raises(InputError, match="LBFGS"):
            job.setup(torch.optim.LBFGS(model.parameters()))


def test_outside_of_the_job_nothing_works_and_says_why() -> None:
    job = argosy.job()
    with pytest.raises(InputError, match="not open"):
        job.setup(nn.Linear(1, 1))
    with argosy.job() as job:
        model, optimizer, loader = parts()
        job.setup(model, optimizer)
        next(iter(job.batches(loader, epochs=1)))
        with pytest.raises(InputError, match="too late"):
            job.setup(nn.Linear(1, 1))


def test_a_checkpoint_of_another_script_is_refused(tmp_path: Path) -> None:
    train(tmp_path, epochs=1)
    with argosy.job(checkpoints=tmp_path) as job:
        job.setup(nn.Linear(1, 1))
        job.checkpoint()
    model, optimizer, loader = parts()
    with pytest.raises(InputError, match="1 modules 0 optimizers"), argosy.job(checkpoints=tmp_path) as job:
        job.setup(model, optimizer)
        next(iter(job.batches(loader)))
