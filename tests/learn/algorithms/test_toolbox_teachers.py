"""Learning from teachers: cloning, DAgger where cloning fails, and teachers that know more than their students."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from toolbox_help import actor, same, score, weights
from torch import nn

from argosy.errors import InputError
from argosy.learn.algorithms import masked
from argosy.learn.algorithms.clone import Clone
from argosy.learn.algorithms.collect import Teaching, episodes
from argosy.learn.algorithms.dagger import Dagger
from argosy.learn.algorithms.replay import Batch
from argosy.learn.algorithms.toy_envs import Ledge, Queue


def lessons(count: int = 12, **how: bool) -> object:
    return episodes([Queue(**how) for _ in range(count)], None, list(range(count)), teaching=Teaching(1.0))  # type: ignore[arg-type]


def cloned(seed: int = 0) -> nn.Module:
    policy = actor(9, 4, seed=seed)
    clone = Clone(policy, batch=64, steps=120, seed=seed)
    report = clone.update(lessons())  # type: ignore[arg-type]
    assert report["accuracy"] > 0.8
    return policy


def test_a_clone_does_as_its_teacher() -> None:
    assert score(cloned()) == Queue().best


def test_same_seed_same_weights_bit_by_bit() -> None:
    assert same(weights(cloned()), weights(cloned()))
    assert not same(weights(cloned()), weights(cloned(1)))


def off_the_path(policy: nn.Module) -> float:
    return score(policy, Ledge, 40)


def test_dagger_is_not_lost_where_a_clone_is() -> None:
    calm = episodes([Ledge(calm=True) for _ in range(4)], None, [0, 1, 2, 3], teaching=Teaching(1.0))
    student = actor(16, 2)
    clone = Clone(student, batch=64, steps=60)
    for _ in range(4):
        report = clone.update(calm)
    assert report["accuracy"] == 1.0  # on the teacher's path it makes no mistake
    assert off_the_path(student) < 5.0
    student = actor(16, 2)
    dagger = Dagger(Clone(student, batch=64, steps=60), [Ledge() for _ in range(4)])
    for _ in range(4):
        dagger.round()
    assert dagger.rounds == 4
    assert off_the_path(student) == 8.0


def test_dagger_goes_on_from_its_state() -> None:
    def start() -> tuple[nn.Module, Dagger]:
        student = actor(16, 2)
        return student, Dagger(Clone(student, batch=32, steps=5), [Ledge(), Ledge()])

    student, dagger = start()
    dagger.round()
    other, resumed = start()
    resumed.restore(dagger.state())
    assert dagger.round() == resumed.round()
    assert same(weights(student), weights(other))


def test_a_student_guesses_what_only_its_teacher_knows() -> None:
    """The teacher sees how much work is left; the student sees only which jobs there are, and learns probabilities."""
    got = lessons(60, hidden=True)
    first = got.observation[got.slot_start[got.time[got.slot_start] == 0.0]]  # type: ignore[attr-defined]
    assert (first == first[0]).all()  # to the student all episodes begin alike
    policy = actor(9, 4)
    Clone(policy, batch=1024, lr=1e-2, steps=150).update(got)  # type: ignore[arg-type]
    mask = torch.tensor([[True, True, True, True]])
    chances = masked.log_probabilities(policy(torch.from_numpy(first[:1])), mask).exp()[0].detach()
    begun = got.advice[got.time == 0.0]  # type: ignore[attr-defined]
    shares = np.bincount(begun[begun < 3], minlength=3) / 60
    assert chances[:3].tolist() == pytest.approx(shares.tolist(), abs=0.05)
    assert float(chances[3]) < 0.02


def test_without_a_teacher_the_label_is_what_was_done() -> None:
    got = lessons()
    plain = replace(got, advice=np.full_like(got.advice, -1))  # type: ignore[attr-defined, type-var]
    results = []
    for data in (got, plain):
        policy = actor(9, 4)
        Clone(policy, steps=3).update(data)  # type: ignore[arg-type]
        results.append(weights(policy))
    assert same(*results)


def test_batches_can_be_augmented() -> None:
    def mirrored(batch: Batch, generator: torch.Generator) -> Batch:
        """Jobs in the opposite order."""
        order = torch.tensor([2, 1, 0, 3])
        return {
            "observation": batch["observation"].flip(1),
            "mask": batch["mask"][:, order],
            "label": order[batch["label"]],
        }

    got = episodes([Queue()], None, [0], teaching=Teaching(1.0))
    policy = actor(9, 4)
    Clone(policy, steps=150, augment=mirrored).update(got)
    seen, mask = torch.from_numpy(got.observation).flip(1), torch.from_numpy(got.mask)[:, [2, 1, 0, 3]]
    expected = torch.tensor([2, 1, 0, 3])[torch.from_numpy(got.advice)]
    assert torch.equal(masked.best(policy(seen), mask), expected)


def test_what_is_refused() -> None:
    got = lessons(1)
    wrong = replace(got, advice=np.zeros_like(got.advice))  # type: ignore[attr-defined, type-var]
    with pytest.raises(InputError, match="label that the mask does not allow"):
        Clone(actor(9, 4)).update(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="share must be from 0 to 1"):
        Dagger(Clone(actor(9, 4)), [Queue()], share=2.0)
    with pytest.raises(InputError, match="steps must be above 0"):
        Clone(actor(9, 4), steps=0)
