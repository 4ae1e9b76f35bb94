"""Demonstrations: a teacher's own steps, and its corrections of a student's steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from recipes_help import tiny_student

from argosy.learn.algorithms.rollout import Rollout
from argosy.learn.training import demonstrations
from argosy.learn.training.cases import TrainingCases
from argosy.learn.training.collection_tasks import SHARE_OF_ENDS, DemonstrationTask, collect_demonstration, thin
from argosy.learn.training.demonstrations import demonstrate
from argosy.learn.training.imitation_stage import shuffle_rows
from argosy.learn.training.recipe import Recipe
from argosy.learn.training.student import Student
from argosy.mechanism.kernels import layout as L
from argosy.policies.base import create
from argosy.policies.learned.features import SERVERS, WORKERS
from argosy.seeding import stream
from argosy.sim.engine import Engine


@pytest.mark.parametrize("teacher", ["drf", "optimus:slot_s=1200", "themis", "srtf", "gavel-max-min"])
def test_any_policy_can_teach(tmp_path: Path, teacher: str) -> None:
    _, cases, student = tiny_student(tmp_path)
    rollout = collect_demonstration(DemonstrationTask(student, cases, 1_000_001, teacher))
    rows = np.arange(len(rollout))
    assert len(rollout) > 5
    assert (rollout.advice == rollout.action).all()
    assert rollout.mask[rows, rollout.advice].all()
    assert rollout.observation.shape[1:] == (8, len(student.types) + 5 + 3)


@pytest.mark.parametrize("teacher", ["drf:slot_s=1200", "srtf"])
def test_the_steps_of_a_slot_lead_to_what_the_teacher_gave(monkeypatch: pytest.MonkeyPatch, teacher: str) -> None:
    recipe = Recipe.of("dl2+", scenario="dl2-testbed", quick=True, jobs=15)
    cases = TrainingCases.of(recipe, None)
    student, source, seed = Student.of(recipe, cases), cases.source(3), 3
    monkeypatch.setattr(demonstrations, "JOB_SLOTS", 1e9)  # look at every slot
    rollout = demonstrate(student, source, seed, teacher, stream(0, "test"))
    given: list[list[tuple[int, int]]] = []
    slots: set[int] = set()

    def note(engine: Engine) -> None:
        slot = int(engine.now / 1200 + 1e-9)
        jobs = engine.view.jobs
        if slot not in slots and len(jobs):
            slots.add(slot)
            order, world = np.argsort(jobs.index), engine.world
            wanted = world.ji[L.WANT], world.ji[L.WANT_PS]
            workers, servers = wanted if "size" in policy.answers else (world.jf[L.HELD], world.ji[L.PS_HELD])
            given.append([(int(w), int(u)) for w, u in zip(workers[order], servers[order], strict=True)])

    policy = create(teacher)
    policy.uses = policy.uses | {"demand", "placement"}
    policy.static = policy.eager = False
    Engine(source.trace(seed), source.cluster, policy, source.settings.with_seed(seed), watch=note).run()
    taken = [after_slot(rollout, first, last, len(student.types), student.cap) for first, last in spans(rollout)]
    assert len(taken) > 10
    shown = [[pair for pair in slot if pair[0]] for slot in given]
    for slot in taken:
        assert slot in shown


def spans(rollout: Rollout) -> list[tuple[int, int]]:
    return list(zip(rollout.first.tolist(), rollout.last.tolist(), strict=True))


def after_slot(rollout: Rollout, first: int, last: int, types: int, cap: int) -> list[tuple[int, int]]:
    """Workers and servers of the jobs that got any, after the last step of a slot."""
    row, kind = divmod(int(rollout.action[last]), 3)
    table = (rollout.observation[last, :, types + WORKERS : types + SERVERS + 1] * cap).round().astype(int)
    if row < len(table):
        table[row] += [kind != 1, kind != 0]
    return [(int(w), int(u)) for w, u in table if w or u]


def test_a_pupil_is_corrected_where_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstrations, "JOB_SLOTS", 20)
    _, cases, student = tiny_student(tmp_path)
    arrays = student.actor(torch.Generator().manual_seed(0)).arrays()
    alone = collect_demonstration(DemonstrationTask(student, cases, 1_000_001, "drf", arrays, share=0.0, samples=10**6))
    led = collect_demonstration(DemonstrationTask(student, cases, 1_000_001, "drf", arrays, share=1.0, samples=10**6))
    assert (led.action == led.advice).all()
    assert 0.0 < (alone.action == alone.advice).mean() < 0.9
    again = collect_demonstration(DemonstrationTask(student, cases, 1_000_001, "drf", arrays, share=0.0, samples=10**6))
    assert (again.action == alone.action).all()


@pytest.mark.parametrize("teacher", ["srtf", "gandiva", "gavel-max-min"])
def test_also_those_who_do_not_size_can_correct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, teacher: str) -> None:
    monkeypatch.setattr(demonstrations, "JOB_SLOTS", 20)
    _, cases, student = tiny_student(tmp_path)
    arrays = student.actor(torch.Generator().manual_seed(0)).arrays()
    rollout = collect_demonstration(DemonstrationTask(student, cases, 1_000_001, teacher, arrays, share=0.5))
    assert rollout.mask[np.arange(len(rollout)), rollout.advice].all()
    assert (rollout.advice < 3 * student.rows).any()


def test_thinning_keeps_the_ends(tmp_path: Path) -> None:
    _, cases, student = tiny_student(tmp_path)
    whole = collect_demonstration(DemonstrationTask(student, cases, 1_000_001, "optimus:slot_s=1200", samples=10**6))
    end = 3 * student.rows
    few = thin(whole, 20, stream(1, "test"))
    assert len(few) == 20
    assert len(few.mask) == len(few.observation) == 20
    share = (whole.advice == end).mean()
    assert (few.advice == end).mean() >= min(SHARE_OF_ENDS, share)
    assert thin(whole, 10**6, stream(1, "test")) is whole


def test_shuffled_rows_are_the_same_jobs(tmp_path: Path) -> None:
    _, cases, student = tiny_student(tmp_path, "dl2", algo="dl2")
    rollout = collect_demonstration(DemonstrationTask(student, cases, 1_000_001, "drf", samples=10**6))
    batch = {
        "observation": torch.from_numpy(rollout.observation),
        "mask": torch.from_numpy(rollout.mask),
        "label": torch.from_numpy(rollout.advice),
    }
    moved = shuffle_rows(batch, torch.Generator().manual_seed(0))
    rows, count = student.rows, torch.arange(len(rollout))
    assert not torch.equal(moved["observation"], batch["observation"])
    grants = batch["label"] < 3 * rows
    assert torch.equal(moved["label"][~grants], batch["label"][~grants])
    before, after = (b["observation"][count, (b["label"] // 3).clamp(max=rows - 1)] for b in (batch, moved))
    assert torch.equal(before[grants], after[grants])
    assert torch.equal(batch["label"][grants] % 3, moved["label"][grants] % 3)
    assert moved["mask"][count, moved["label"]].all()
    assert torch.equal(moved["mask"].sum(1), batch["mask"].sum(1))
