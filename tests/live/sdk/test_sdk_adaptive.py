"""Batch sizes that a policy chooses: they come with a plan, and all workers take them after the same step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sdk_crew
import torch

import argosy
from argosy.errors import InputError
from argosy.sdk.gradients.all_reduce import FlatReducer
from argosy.sdk.gradients.combine import Piece
from argosy.sdk.step_times import StepTimes

SCRIPT = Path(__file__).with_name("sdk_adaptive.py")


def ends(crew: sdk_crew.Crew, *workers: int) -> list[dict[str, Any]]:
    for worker in workers:
        crew.wait(worker, "done")
    return [torch.load(crew.folder / f"end-{worker}.pt") for worker in workers]


def test_a_new_batch_comes_with_a_plan_and_no_sample_is_lost(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT, LR="linear")
    crew.begin(0, 1)
    crew.wait_step(0, 3)
    version = crew.publish(0, 1, batch=40)
    switched = {crew.wait(worker, "switched", version=version)[1]["step"] for worker in (0, 1)}
    assert len(switched) == 1  # after the same step
    crew.wait_step(0, switched.pop() + 2)
    crew.publish(0, 1, batch=16)
    found = ends(crew, 0, 1)
    sizes = [[batch for batch, _ in sorted(Counter(s[1] for s in end["seen"]).items())] for end in found]
    assert sizes == [[8, 16, 40]] * 2
    samples = Counter(number for end in found for _, _, numbers in end["seen"] for number in numbers)
    # a step that was split unevenly repeats a sample without weight; all others come once in each epoch
    assert set(samples) == set(range(512)) and samples.total() <= 2 * 512 + len(found[0]["seen"])
    for end in found:  # each step moves by 0.01 · batch / 8: by as much in all, whatever the batches were
        assert end["weight"] == pytest.approx(-0.01 * 2 * 512 / 8, rel=1e-5)
        assert end["steps"] < 2 * 512 / 8


def test_a_part_that_does_not_fit_is_taken_in_several_passes(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT, LR="linear", ARGOSY_BATCH=json.dumps({"smallest": 8, "per_gpu": 8}))
    crew.begin(0, 1)
    version = crew.publish(0, 1, batch=64)
    for worker in (0, 1):
        crew.wait(worker, "switched", version=version)
    found = ends(crew, 0, 1)
    for end in found:
        assert max(len(numbers) for _, _, numbers in end["seen"]) == 8
        assert end["weight"] == pytest.approx(-0.01 * 2 * 512 / 8, rel=1e-5)
    large = Counter(step for step, batch, _ in found[0]["seen"] if batch == 64)
    assert max(large.values()) == 4
    last = [m for m in crew.all("report") if m["metrics"].get("batch") == 64]
    assert last and last[-1]["metrics"]["passes"] == 4 and last[-1]["metrics"]["workers"] == 2


def test_what_the_policy_must_know_is_reported(crew_of: Callable[..., sdk_crew.Crew]) -> None:
    crew = crew_of(SCRIPT)
    crew.begin(0)
    ends(crew, 0)
    metrics = crew.all("report")[-1]["metrics"]
    assert {"workers": 1.0, "batch": 8.0, "passes": 1.0, "lr_factor": 1.0}.items() <= metrics.items()
    assert 0.01 < metrics["pass_s"] <= metrics["step_s"]


def test_passes_add_up_to_the_gradient_of_the_whole_part() -> None:
    torch.manual_seed(0)
    network, samples = torch.nn.Linear(3, 1), torch.randn(10, 3)
    network(samples).square().mean().backward()
    whole = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
    reducer, votes = FlatReducer(), torch.zeros(4)
    reducer.bind([network], list(network.parameters()))
    reducer.pieces = 3
    for number, part in enumerate(samples.split([5, 3, 2])):
        network.zero_grad()
        network(part).square().mean().backward()
        piece = Piece(part, len(part), number, number == 2)
        reducer.begin(piece, 0)
        assert (reducer.combine(piece, votes) is None) == (number < 2)
    for parameter, gradient in zip(network.parameters(), whole):
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)


def test_times_are_told_after_some_steps_of_one_kind() -> None:
    times = StepTimes()
    times.on = True

    def step(samples: int) -> None:
        times.begin(2, samples, 1)
        with times.synchronising(True):
            pass
        times.end()

    for _ in range(4):
        step(64)
    assert times.metrics == {}
    step(64)
    assert times.metrics["batch"] == 64 and times.metrics["pass_s"] > 0
    step(128)
    assert times.metrics == {}  # another batch takes another time


def test_bad_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot be adaptive"):
        argosy.job(exact=True, batch="adaptive")
    with pytest.raises(InputError, match="'adaptiv'"):
        argosy.job(batch="adaptiv")  # type: ignore[arg-type]
    monkeypatch.setenv("ARGOSY_BATCH", json.dumps({"smallest": 16}))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 1)), batch_size=8)
    told = "batch_size is 8, but in the job file batches begin at 16"
    with pytest.raises(InputError, match=told), argosy.job(batch="adaptive") as job:
        next(iter(job.batches(loader, epochs=1)))
