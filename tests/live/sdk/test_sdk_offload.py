"""A pause: all workers move their state to host memory after the same step, and later continue unchanged."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import sdk_crew
import torch
from torch import nn

from argosy.sdk.gradients.all_reduce import FlatReducer
from argosy.sdk.gradients.exact import ExactCombiner
from argosy.sdk.offload import Offload
from argosy.sdk.training import Training

SCRIPT = Path(__file__).with_name("sdk_train.py")
ELSEWHERE = torch.device("meta")  # the only other device that there is everywhere


def rest(crew: sdk_crew.Crew, *workers: int, number: int) -> None:
    for worker in workers:
        crew.send(worker, op="rest", number=number)
    for worker in workers:
        crew.wait(worker, "rested", number=number)


def test_all_rest_after_the_same_step_and_go_on(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    undisturbed = crew_of(SCRIPT, EPOCHS="20")
    undisturbed.begin(0, 1)
    assert undisturbed.code(0) == 0
    crew = crew_of(SCRIPT, EPOCHS="20")
    crew.begin(0, 1)
    for number in (1, 2, 3):
        rest(crew, 0, 1, number=number)
        for worker in (0, 1):
            crew.kill(worker, signal.SIGSTOP)
        time.sleep(0.1)
        for worker in (0, 1):
            crew.kill(worker, signal.SIGCONT)
            crew.send(worker, op="wake")
    assert crew.code(0) == crew.code(1) == 0
    for number in (1, 2, 3):
        assert len({crew.wait(worker, "rested", number=number)[1]["step"] for worker in (0, 1)}) == 1
    ends = [torch.load(one.folder / "end-0.pt") for one in (undisturbed, crew)]
    assert ends[0]["step"] == ends[1]["step"] == 80
    assert all(torch.equal(ends[0]["weights"][name], ends[1]["weights"][name]) for name in ends[0]["weights"])


def test_one_that_rests_can_be_suspended(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0, 1)
    rest(crew, 0, 1, number=4)
    for worker in (0, 1):
        crew.send(worker, op="suspend", deadline_s=10.0)
    assert crew.wait(0, "left")[1]["saved"] is True
    assert crew.code(0) == crew.code(1) == 0


def test_a_rest_that_ends_before_all_have_heard_of_it(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0, 1)
    crew.send(0, op="rest", number=1)
    crew.wait(0, "rested", number=1)  # worker 1 has agreed, waits to be told, and goes on
    crew.send(0, op="wake")
    step = crew.wait_step(0, 0)
    crew.wait_step(1, step + 5)


def test_newcomers_rest_too(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0)
    crew.start(1)
    crew.wait(1, "ready")
    rest(crew, 0, 1, number=1)
    for worker in (0, 1):
        crew.send(worker, op="wake")
    version = crew.publish(0, 1)
    for worker in (0, 1):
        crew.wait(worker, "switched", version=version)


def test_everything_is_moved() -> None:
    for combiner in (FlatReducer(), ExactCombiner()):
        training = Training(combiner)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        optimizer = torch.optim.Adam(model.parameters())
        averaged = torch.optim.swa_utils.AveragedModel(model)
        training.add((model, optimizer), {"averaged": averaged}, torch.device("cpu"))
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        Offload(training, ELSEWHERE)
        tensors = [*model.state_dict().values(), *averaged.state_dict().values()]
        tensors += [one for state in optimizer.state.values() for one in state.values()]
        tensors += [one.grad for one in model.parameters() if one.grad is not None]
        assert {one.device for one in tensors} == {ELSEWHERE}


def test_on_a_cpu_nothing_is_touched() -> None:
    training = Training(FlatReducer())
    model = nn.Linear(3, 4)
    training.add((model,), {}, torch.device("cpu"))
    pointers = [one.data_ptr() for one in model.parameters()]
    Offload(training).end()
    assert [one.data_ptr() for one in model.parameters()] == pointers
