"""Validation, verification, and the records of a training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from recipes_help import tiny_recipe, tiny_student

from argosy.errors import InputError
from argosy.learn.envs.episodes import TRAINING_SEEDS
from argosy.learn.training.page import write_page
from argosy.learn.training.progress import CURVE, ProgressGroup, ProgressLog
from argosy.learn.training.train import train
from argosy.learn.training.validation import Validation
from argosy.learn.training.verify import recipe_of, verify
from argosy.learn.training.workers import Workers
from argosy.scenario import read_scenario
from argosy.sim.run import simulate
from argosy.zoo import Weights


def test_a_verdict_is_what_simulating_finds(tmp_path: Path) -> None:
    recipe, cases, student = tiny_student(tmp_path, windows=2)
    actor = student.actor(torch.Generator().manual_seed(0))
    validate = Validation(recipe, student, cases, Workers(1))
    validation = validate("test", 3, actor.arrays())
    source = read_scenario(recipe.scenario)
    seeds = [window.seed for window in validate.windows]
    assert len(seeds) == 2 and not any(TRAINING_SEEDS[0] <= seed < TRAINING_SEEDS[1] for seed in seeds)
    teacher = ("drf:slot_s=1200", validation.teacher_hours)
    for policy, hours in ((student.policy(actor.arrays()), validation.hours), teacher):
        spent = []
        for seed in seeds:
            jobs = simulate(source.trace(seed), source.cluster, policy, source.settings.with_seed(seed)).jobs
            spent.append((jobs["finish_s"] - jobs["submit_s"]).mean() / 3600)
        assert hours[recipe.scenario] == pytest.approx(np.mean(spent))
    assert validation.score > 1.0
    assert (validation.stage, validation.update) == ("test", 3)


def test_windows_of_other_scenarios_and_loads(tmp_path: Path) -> None:
    recipe, cases, student = tiny_student(tmp_path, loads=True, judged=("dl2-testbed",), windows=3)
    labels = [window.label for window in Validation(recipe, student, cases, Workers(1)).windows]
    assert labels == [recipe.scenario] * 3 + ["loads"] * 3 + ["dl2-testbed"] * 3


def test_a_scenario_to_judge_on_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown scenario 'dl2-5000'"):
        train(tiny_recipe(tmp_path, judged=("dl2-5000",)), workers=1)


def test_a_teacher_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown policy 'socrates'"):
        train(tiny_recipe(tmp_path, teacher="socrates"))


def test_weights_are_verified_by_making_them_again(tmp_path: Path) -> None:
    trained = train(tiny_recipe(tmp_path), workers=1)
    assert trained.weights is not None
    found = verify(trained.weights, workers=1)
    assert found.same and found.reached
    assert found.again == found.shipped
    about = trained.weights.about
    boast = {**about, "score": {**about["score"], "score": 0.9 * about["score"]["score"]}}
    other = {name: array + 1 for name, array in trained.weights.arrays.items()}
    found = verify(Weights(other, boast), workers=1)
    assert not found.same and not found.reached


def test_weights_without_a_recipe_cannot_be_verified() -> None:
    with pytest.raises(InputError, match="do not say how they were made"):
        recipe_of(Weights({}, {"network": "score"}))


def test_what_is_written_down(tmp_path: Path) -> None:
    with ProgressLog(tmp_path / "log") as log:
        trained = train(tiny_recipe(tmp_path), workers=1, progress=ProgressGroup(log))
    lines = [json.loads(line) for line in (tmp_path / "log" / CURVE).read_text().splitlines()]
    assert [line["update"] for line in lines if line["stage"] == "es" and "mean" in line] == [1, 2, 3]
    assert [line["score"] for line in lines if "score" in line] == [validation.score for validation in trained.curve]
    (events,) = (tmp_path / "log").glob("events.out.tfevents.*")
    assert events.stat().st_size > 500


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to the folder"):
        ProgressLog(tmp_path / "file" / "log")


def test_the_page(tmp_path: Path) -> None:
    trained = train(tiny_recipe(tmp_path), workers=1)
    write_page(trained, tmp_path / "page.html", "argosy train dl2+ --updates 2")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Learning curve" in page and "argosy train dl2+" in page
