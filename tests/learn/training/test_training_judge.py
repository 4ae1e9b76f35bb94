"""Validation, verification, and what is written down of a training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from recipes_help import tiny_pupil, tiny_recipe

from argosy.errors import InputError
from argosy.learn.envs.episodes import TRAINING_SEEDS
from argosy.learn.training.judge import Judge
from argosy.learn.training.page import write_page
from argosy.learn.training.train import train
from argosy.learn.training.verify import recipe_of, verify
from argosy.learn.training.watch import CURVE, Log, Several
from argosy.learn.training.workers import Workers
from argosy.scenario import read_scenario
from argosy.sim.run import simulate
from argosy.zoo import Weights


def test_a_verdict_is_what_simulating_finds(tmp_path: Path) -> None:
    recipe, ground, pupil = tiny_pupil(tmp_path, windows=2)
    actor = pupil.actor(torch.Generator().manual_seed(0))
    judge = Judge(recipe, pupil, ground, Workers(1))
    verdict = judge("test", 3, actor.arrays())
    source = read_scenario(recipe.scenario)
    seeds = [window.seed for window in judge.windows]
    assert len(seeds) == 2 and not any(TRAINING_SEEDS[0] <= seed < TRAINING_SEEDS[1] for seed in seeds)
    for policy, hours in ((pupil.policy(actor.arrays()), verdict.hours), ("drf:slot_s=1200", verdict.teacher_hours)):
        spent = []
        for seed in seeds:
            jobs = simulate(source.trace(seed), source.cluster, policy, source.settings.with_seed(seed)).jobs
            spent.append((jobs["finish_s"] - jobs["submit_s"]).mean() / 3600)
        assert hours[recipe.scenario] == pytest.approx(np.mean(spent))
    assert verdict.score > 1.0
    assert (verdict.stage, verdict.update) == ("test", 3)


def test_windows_of_other_scenarios_and_loads(tmp_path: Path) -> None:
    recipe, ground, pupil = tiny_pupil(tmp_path, loads=True, judged=("dl2-testbed",), windows=3)
    labels = [window.label for window in Judge(recipe, pupil, ground, Workers(1)).windows]
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


def test_weights_without_a_recipe_can_not_be_verified() -> None:
    with pytest.raises(InputError, match="do not say how they were made"):
        recipe_of(Weights({}, {"network": "score"}))


def test_what_is_written_down(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        trained = train(tiny_recipe(tmp_path), workers=1, watch=Several(log))
    lines = [json.loads(line) for line in (tmp_path / "log" / CURVE).read_text().splitlines()]
    assert [line["update"] for line in lines if line["stage"] == "es" and "mean" in line] == [1, 2, 3]
    assert [line["score"] for line in lines if "score" in line] == [verdict.score for verdict in trained.curve]
    (events,) = (tmp_path / "log").glob("events.out.tfevents.*")
    assert events.stat().st_size > 500


def test_a_log_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can not be written"):
        Log(tmp_path / "file" / "log")


def test_the_page(tmp_path: Path) -> None:
    trained = train(tiny_recipe(tmp_path), workers=1)
    write_page(trained, tmp_path / "page.html", "argosy train dl2+ --updates 2")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Learning curve" in page and "argosy train dl2+" in page
