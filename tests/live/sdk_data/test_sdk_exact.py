"""Exact mode: the same bits through any schedule of resizes, suspensions and kills. Real processes over gloo."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from argosy.errors import InputError
from argosy.sdk.gradients.combine import Piece
from argosy.sdk.gradients.exact import ExactCombiner
from argosy.sdk.gradients.noise import NoiseScale
from argosy.sdk.group.process_group import Group

BENCH = Path(__file__).with_name("exact_bench.py")
STEPS = 9
LIMIT = 120.0
NO_VOTES = torch.zeros(1, dtype=torch.float64)

Train = Callable[..., str]


@pytest.fixture(scope="module")
def train() -> Iterator[Train]:
    """Train through a schedule of phases (members, until[, killed worker]), and return a digest of the weights."""
    bench = subprocess.Popen(
        [sys.executable, str(BENCH)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert bench.stdin is not None and bench.stdout is not None

    def run(*phases: tuple[Any, ...]) -> str:
        assert bench.stdin is not None and bench.stdout is not None
        schedule = [{"members": p[0], "until": p[1], "kill": p[2] if len(p) > 2 else None} for p in phases]
        bench.stdin.write(json.dumps(schedule) + "\n")
        bench.stdin.flush()
        ready, _, _ = select.select([bench.stdout], [], [], LIMIT)
        assert ready, "the workers hang"
        digest: str = bench.stdout.readline()
        assert digest, "the bench has failed"
        return digest

    try:
        yield run
    finally:
        os.killpg(bench.pid, signal.SIGKILL)
        bench.wait()
        bench.stdin.close()
        bench.stdout.close()


@pytest.fixture(scope="module")
def undisturbed(train: Train) -> str:
    return train(([0], STEPS))


@pytest.mark.parametrize("world", [2, 3, 5])
def test_any_number_of_workers(train: Train, undisturbed: str, world: int) -> None:
    assert train((list(range(world)), STEPS)) == undisturbed


def test_resizes_moves_and_suspensions(train: Train, undisturbed: str) -> None:
    assert train(([0], 2), ([0, 1, 2], 4), ([2, 0], 6), ([3], 7), ([3, 1, 2, 0], STEPS)) == undisturbed


def test_kills(train: Train, undisturbed: str) -> None:
    assert train(([0, 1, 2], 3, 1), ([2, 0, 3], 6, 2), ([0, 3], 8, 0), ([3], STEPS)) == undisturbed


def test_a_random_schedule(train: Train, undisturbed: str) -> None:
    dice = random.Random(11)
    phases: list[tuple[Any, ...]] = []
    alive, until = list(range(5)), 0
    while until < STEPS - 1:
        until += 1
        held = set(phases[-1][0]) & set(alive) if phases else set(alive)  # somebody must bring the state along
        members = list({dice.choice(sorted(held)), *dice.sample(alive, dice.randint(1, min(4, len(alive))))})
        dice.shuffle(members)
        dies = dice.choice(members) if len(members) > 1 and len(alive) > 2 and dice.random() < 0.4 else None
        phases.append((members, until, dies) if dies is not None else (members, until))
        alive = [worker for worker in alive if worker != dies]
    survivors = sorted(set(phases[-1][0]) & set(alive))
    assert train(*phases, (survivors, STEPS)) == undisturbed


def test_another_schedule_of_steps_gives_another_digest(train: Train, undisturbed: str) -> None:
    assert train(([0], STEPS - 1)) != undisturbed


def bound(virtual: int = 2) -> tuple[ExactCombiner, nn.Linear]:
    net = nn.Linear(3, 1)
    combiner = ExactCombiner(virtual, seed=1)
    combiner.riders.append(NoiseScale())
    combiner.bind([net], list(net.parameters()))
    return combiner, net


def piece(combiner: ExactCombiner, net: nn.Linear, slot: int, x: torch.Tensor) -> torch.Tensor | None:
    part = Piece(x, len(x), slot, slot == combiner.slots()[0][-1])
    combiner.begin(part, 0)
    net.zero_grad()
    net(x).square().mean().backward()
    return combiner.combine(part, NO_VOTES)


def test_the_gradient_is_that_of_the_whole_batch() -> None:
    combiner, net = bound()
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    net(x).square().mean().backward()
    assert net.weight.grad is not None
    wanted = net.weight.grad.clone()
    assert piece(combiner, net, 0, x[:4]) is None
    assert piece(combiner, net, 1, x[4:]) is not None
    torch.testing.assert_close(net.weight.grad, wanted)
    rider = combiner.riders[0]
    assert isinstance(rider, NoiseScale) and rider.square.count == 1


def test_a_piece_without_samples_counts_for_nothing_even_if_it_is_infinite() -> None:
    combiner, net = bound()
    x = torch.ones(2, 3)
    net(x).square().mean().backward()
    assert net.weight.grad is not None
    wanted = net.weight.grad.clone()
    piece(combiner, net, 0, x)
    stand_in = Piece(x, 0, 1, True)
    combiner.begin(stand_in, 0)
    (net(x).sum() * torch.inf).backward()
    combiner.combine(stand_in, NO_VOTES)
    assert torch.equal(net.weight.grad, wanted)


def test_a_first_step_that_fails_leaves_no_trace_in_the_buffers() -> None:
    net = nn.BatchNorm1d(3)
    combiner = ExactCombiner(2)
    combiner.bind([net], list(net.parameters()))
    nn.init.constant_(net.get_buffer("running_var"), 5.0)  # weights that the script loads after setup
    combiner.regroup(Group(None, 0, 1))
    combiner.begin(Piece(None, 2, 0, False), 0)
    net(torch.randn(4, 3))
    assert net.running_mean is not None and net.running_mean.any()
    combiner.regroup(Group(None, 0, 1))  # somebody was lost, before the gradients were there
    assert not net.running_mean.any() and net.running_var is not None and net.running_var.tolist() == [5.0] * 3
    for slot in (0, 1):
        part = Piece(None, 2, slot, slot == 1)
        combiner.begin(part, 0)
        net(torch.full((2, 3), float(slot)) + torch.tensor([[0.0], [1.0]])).sum().backward()
        combiner.combine(part, NO_VOTES)
    torch.testing.assert_close(net.running_mean, torch.full((3,), 0.05))  # of virtual rank 0
    kept = combiner.state()
    other = nn.BatchNorm1d(3)
    again = ExactCombiner(2)
    again.bind([other], list(other.parameters()))
    again.load(kept)
    assert torch.equal(again.state()["buffers"], kept["buffers"]) and kept["buffers"].any()
    again.begin(Piece(None, 2, 0, False), 1)
    again.combine(Piece(None, 2, 0, False), NO_VOTES)
    again.begin(Piece(None, 2, 1, True), 1)
    assert other.running_mean is not None
    torch.testing.assert_close(other.running_mean, torch.full((3,), 0.15))  # of virtual rank 1


def test_what_exact_mode_can_not_do_is_refused() -> None:
    combiner, net = bound()
    with pytest.raises(InputError, match="one backward"):
        piece(combiner, net, 0, torch.ones(2, 3))
        net(torch.ones(2, 3)).sum().backward()
        combiner.combine(Piece(None, 2, 0, False), NO_VOTES)
    combiner, net = bound()
    with pytest.raises(InputError, match="no gradients"):
        combiner.begin(Piece(None, 2, 0, False), 0)
        combiner.begin(Piece(None, 2, 1, True), 0)
    with pytest.raises(InputError, match="virtual ranks"):
        bound(virtual=2)[0].load(bound(virtual=4)[0].state())
    with pytest.raises(InputError, match="virtual=0"):
        ExactCombiner(virtual=0)
