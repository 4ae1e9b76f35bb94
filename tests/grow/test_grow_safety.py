"""Whatever the network, the recipe, the agent and the moment of a kill are: growth never ends a training."""

from __future__ import annotations

import functools
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks import growth_safety
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_networks import NetPlan, net_plans
from torch import nn

from argosy.grow.agents.baselines import RandomGrowth
from argosy.grow.errors import Diverged
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.distill import Distillation
from argosy.grow.training.feed import Loaders
from argosy.grow.training.guard import Guard
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.schedulers import TimedScheduler
from argosy.grow.training.trainer import Trainer


@functools.cache
def data(dims: int) -> Loaders:
    """Noisy patterns of three classes, as batches."""
    rng = torch.Generator().manual_seed(dims)
    patterns = torch.randn(3, 4, *([8] * dims), generator=rng)

    def some(batches: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        found = []
        for _ in range(batches):
            y = torch.randint(0, 3, (16,), generator=rng)
            found.append((patterns[y] + torch.randn(16, 4, *([8] * dims), generator=rng), y))
        return found

    return Loaders(some(3), some(3), some(1))


class Wild:
    """An agent that grows at random, sometimes with so much noise that the network is destroyed."""

    def __init__(self, seed: int, noise: float) -> None:
        self.random, self.noise = RandomGrowth(seed), noise

    def decide(self, situation):
        return tuple(replace(surgery, noise=self.noise) for surgery in self.random.decide(situation))

    def state(self):
        return self.random.state()

    def restore(self, state):
        self.random.restore(state)


class Killed(Exception):
    """Raised to interrupt a training, as a power cut would."""


recipes = st.builds(
    Recipe,
    lr=st.floats(-4, 3).map(lambda power: 10.0**power),
    optimizer=st.sampled_from(("sgd", "adam", "adamw")),
    schedule=st.sampled_from(("cosine", "decay", "constant")),
    warm_up=st.sampled_from((0, 30)),
    clip=st.sampled_from((None, 3.0)),
    carry_optimizer=st.booleans(),
)


@pytest.mark.slow(15)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=net_plans(),
    recipe=recipes,
    seed=st.integers(0, 99),
    noise=st.sampled_from((0.0, 0.0, 0.1, 1e3, 1e38)),
    repeat=st.integers(1, 2),
    down_at=st.sampled_from((None, 3.5, 5.0)),
    kill_at=st.sampled_from((None, 2, 3, 4)),
    kill_on=st.sampled_from(("epoch", "release", "shrink")),
    distillation=st.sampled_from((None, None, Distillation(batch=8))),
    guard=st.builds(Guard, probation=st.integers(1, 3), memory_gib=st.sampled_from((0.0, 1.0)), again=st.booleans()),
)
def test_growth_never_loses_the_job(
    plan: NetPlan,
    recipe: Recipe,
    seed: int,
    noise: float,
    repeat: int,
    down_at,
    kill_at,
    kill_on: str,
    distillation: Distillation | None,
    guard: Guard,
) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:

        def make(on_event=None) -> Trainer:
            scheduler = TimedScheduler(6, up_at=[2, 4], down_at=[down_at] if down_at else [], repeat=repeat)
            return Trainer(
                plan.build()[0],
                data(plan.dims),
                scheduler,
                Wild(seed, noise),
                recipe=recipe,
                clock=VirtualClock(growth="parameters"),
                guard=replace(guard, folder=folder),
                checkpoint=Path(folder) / "c",
                on_event=on_event,
                distil=0.5,
                distillation=distillation,
                progress=False,
            )

        def kill(event) -> None:
            if event.kind == kill_on and kill_at is not None and event.time >= kill_at:
                raise Killed

        training = make(kill)
        try:
            try:
                training.fit()
            except Killed:
                training = make()
                training.fit()
        except Diverged:
            grown = [d for d in training.history.decisions if d.surgeries and not d.refused]
            assert all(d.outcome == "rolled back" for d in grown) or not training.run.surgeries
            assert training.growing.trial is None, "growth ended the job"
            return
        check(training)


def check(training: Trainer) -> None:
    """The training went on to its end, and where growth was rolled back the network is as good as before."""
    history = training.history
    assert history.lines[-1].time == pytest.approx(6.0)
    assert history.test is not None and math.isfinite(history.test)
    assert finite(training.model)
    for decision in history.rolled_back:
        first = min(d.time for d in history.decisions if d.allocation == "up" and d.outcome == "rolled back")
        before = [line.validation for line in history.lines if line.time <= first and not line.discarded]
        after = next(line for line in history.lines if line.time >= decision.time and not line.discarded)
        if len(history.rolled_back) == 1:
            assert after.validation == before[-1]
            assert not training.run.surgeries or any(d.outcome == "kept" for d in history.decisions)


def finite(model: nn.Module) -> bool:
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def test_the_benchmark_says_on_which_data_it_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARGOSY_DATA", str(tmp_path))
    name = growth_safety._fashion().name
    told = capsys.readouterr().err
    assert name in ("digits", "fashion-mnist")  # some systems have Fashion-MNIST outside the cache
    assert ("uses the digits instead" in told) is (name == "digits")
    none = {"collapses": 0, "ended_by_an_error": 0}
    usual = {"growths": 12, "jobs": 5, "data": name, "new": none, "before": none}
    rows = growth_safety.table({"growths": usual, "anything": {"networks": 3, "lost": []}})
    assert f"measured: 12 in 5 jobs, {name}" in rows[1][0]
    assert rows[1][-1] == rows[2][-1] == "so far; too few"
    rows = growth_safety.table({"growths": usual | {"growths": 200}, "anything": {"networks": 500, "lost": [{}]}})
    assert rows[1][-1] == "yes" and rows[2][-1] == "**no**"
