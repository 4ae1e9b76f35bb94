"""The trainer of RLTune: rewards and advantages by hand, a toy that beats its base heuristic, and the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from argosy.errors import InputError
from argosy.learn.training import rltune
from argosy.learn.training.rltune import RlTuneRecipe, Windows, advantages, recipe_of, reward, train
from argosy.policies.rltune.network import SHAPES, Actor
from argosy.policies.rltune.policy import RlTune
from argosy.zoo import Weights, find

TOY = """
title: a toy
description: three times the work that there are GPUs for
jobs: {like: philly, count: 40, quick: 40, load: 3.0, seed: 5}
changes: {shortest: 10m, longest: 2h, largest_gpus: 8}
cluster:
  nodes: [{count: 2, gpu: v100, gpus: 8}]
"""


def test_the_reward_of_the_specification() -> None:
    assert reward(5.0, 3.5) == pytest.approx(0.3)
    assert reward(3.5, 5.0) == pytest.approx(-0.3)
    assert reward(-0.8, -0.9) == pytest.approx(0.1)  # utilisation: never divided by less than 1


def test_advantages_by_hand() -> None:
    """Two episodes, of two steps and of one; gamma 1, lambda 0.5."""
    values, episode = np.array([0.2, 0.4, 0.1]), np.array([0, 0, 1])
    advantage, outcome = advantages(values, episode, np.array([1.0, -0.5]), 1.0, 0.5)
    assert outcome.tolist() == [1.0, 1.0, -0.5]
    assert advantage == pytest.approx([0.2 + 0.5 * 0.6, 0.6, -0.6])


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> RlTuneRecipe:
    file = tmp_path_factory.mktemp("toy") / "toy.yaml"
    file.write_text(TOY)
    return RlTuneRecipe(
        scenarios=(str(file),),
        score="turnaround",
        jobs=40,
        windows=4,
        epochs=6,
        episodes=10,
        actor_lr=3e-3,
        steps=40,
        validation_windows=4,
        every=3,
    )


@pytest.fixture(scope="module")
def trained(toy: RlTuneRecipe) -> Weights:
    return train(toy)


def test_a_toy_training_beats_its_base_heuristic_on_unseen_windows(toy: RlTuneRecipe, trained: Weights) -> None:
    windows, actor = Windows(toy), Actor.of(trained)
    (name,) = toy.scenarios
    over = [windows.run(name, seed, RlTune(actor)) / windows.base(name, seed) for seed in range(6)]
    assert np.mean(over) < 0.9, over
    first = trained.about["curve"][0]
    assert first[0] == 0 and trained.about["score"]["over_base"] < first[1]  # it was learned, not drawn


def test_the_same_recipe_gives_the_same_bits(toy: RlTuneRecipe) -> None:
    short = replace(toy, epochs=1, episodes=3, validation_windows=1)
    first, again, other = train(short), train(short), train(replace(short, seed=1))
    assert all(np.array_equal(first.arrays[name], again.arrays[name]) for name in SHAPES)
    assert not np.array_equal(first.arrays["w1"], other.arrays["w1"])
    assert recipe_of(first) == short


def test_progress_is_told(toy: RlTuneRecipe) -> None:
    told: list[str] = []
    train(replace(toy, epochs=1, episodes=2, validation_windows=1), progress=told.append)
    assert len(told) == 3 and all(line.startswith("epoch") for line in told)


def test_ctrl_c_keeps_the_best_weights_so_far(toy: RlTuneRecipe) -> None:
    short = replace(toy, epochs=3, episodes=2, validation_windows=1, every=1)

    def interrupted(line: str) -> None:
        if line.startswith("epoch 2: kl"):
            raise KeyboardInterrupt

    stopped = train(short, progress=interrupted)
    assert recipe_of(stopped).epochs == 2
    whole = train(replace(short, epochs=2))
    assert all(np.array_equal(stopped.arrays[name], whole.arrays[name]) for name in SHAPES)
    with pytest.raises(KeyboardInterrupt):  # before there is anything worth keeping
        train(short, progress=lambda line: interrupted("epoch 2: kl"))


def test_the_shipped_weights_say_how_they_were_made() -> None:
    weights = find("rltune")
    recipe = recipe_of(weights)
    assert weights.about["seed"] == recipe.seed and weights.about["score"]["over_base"] < 1
    low, high = weights.about["window"]["training_seeds"]
    assert low >= rltune.TRAINING_SEED and high - low == recipe.windows
    assert weights.about["window"]["validation_seeds"][0] == rltune.VALIDATION_SEED


def test_what_cannot_be_learned_from_is_refused(toy: RlTuneRecipe) -> None:
    with pytest.raises(InputError, match="nothing to learn"):
        train(replace(toy, jobs=2, windows=1, epochs=1, episodes=1, validation_windows=1))
    with pytest.raises(InputError, match="do not say how they were made"):
        recipe_of(Weights({}, {"network": "rltune"}))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("episodes", 0, "episodes must be at least 1, is 0"),
        ("clip", 0.0, "clip must be > 0"),
        ("actor_lr", float("inf"), "actor_lr must be > 0"),
        ("score", "jct", "score must be one of bounded-slowdown"),
        ("scenarios", (), "at least one scenario"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(name: str, value: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        RlTuneRecipe(**{name: value})


def test_a_loss_that_is_no_number_stops_training(toy: RlTuneRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rltune, "reward", lambda base, ours: float("nan"))
    with pytest.raises(InputError, match="not a finite number"):
        train(replace(toy, epochs=1, episodes=2, validation_windows=1))


def test_importing_the_policy_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = "import sys; from argosy.policies.base import create; create('rltune'); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
