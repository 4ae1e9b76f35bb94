"""Recipes: complete, comparable, and refused where they make no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recipes_help import tiny_recipe

from argosy.errors import InputError, UnknownName
from argosy.learn.training.options import MEANING, OPTIONS, WARM_UP, parse_options
from argosy.learn.training.recipe import Recipe


def test_a_recipe_survives_json(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, judged=("dl2-100",), loads=True, curriculum=3)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.as_dict()))) == recipe


def test_it_says_all_numbers_even_the_usual_ones() -> None:
    assert Recipe.of("dl2+").options == WARM_UP["dl2+"] | OPTIONS["es"]
    assert set(MEANING) == {name for numbers in (*WARM_UP.values(), *OPTIONS.values()) for name in numbers}


def test_the_first_difference_is_named() -> None:
    recipe = Recipe.of("dl2+", seed=1)
    assert recipe.differs(Recipe.of("dl2+", seed=1, updates=7, patience=3)) is None
    assert recipe.differs(Recipe.of("dl2+", seed=2)) == "seed is 2 there and 1 here"
    other = Recipe.of("dl2+", seed=1, options={"sigma": 0.5})
    assert recipe.differs(other) == "sigma is 0.5 there and 0.03 here"


@pytest.mark.parametrize(
    ("system", "given", "message"),
    [
        ("dl3", {}, "unknown system to train 'dl3'"),
        ("dl2", {"algo": "a2c"}, "unknown algorithm 'a2c'"),
        ("dl2", {"options": {"sigma": 0.1}}, "unknown option of --algo dl2 'sigma'"),
        ("dl2+", {"options": {"pairs": 1.5}}, "must be a whole number"),
        ("dl2+", {"options": {"lr": -1.0}}, "must be 0 or more"),
        ("dl2+", {"updates": -1}, "--updates -1 is too small"),
        ("dl2+", {"jobs": 0}, "--jobs 0 is too small"),
        ("dl2+", {"curriculum": 5}, "this training has only one load"),
        ("dl2+", {"replay": False}, "--no-replay is for DL2's algorithm"),
        ("dl2+", {"algo": "ppo", "options": {"rollouts": 1}}, "compares rollouts, but there is only one"),
    ],
)
def test_what_makes_no_sense_is_refused(system: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe.of(system, **given)


def test_another_version_s_recipe_is_refused() -> None:
    stored = Recipe.of("dl2").as_dict()
    for wrong in ({**stored, "novel": 1}, {k: v for k, v in stored.items() if k != "judged"}):
        with pytest.raises(InputError, match="not a recipe of this version"):
            Recipe.from_dict(wrong)


def test_numbers_that_came_later_are_the_usual_ones() -> None:
    stored = Recipe.of("dl2").as_dict()
    older = {**stored, "options": {k: v for k, v in stored["options"].items() if k != "critic_lr"}}
    assert Recipe.from_dict(older) == Recipe.of("dl2")


def test_numbers_by_name() -> None:
    assert parse_options(["sigma=0.02", "pairs=8"]) == {"sigma": 0.02, "pairs": 8.0}
    for wrong in ("sigma", "sigma=much", "="):
        with pytest.raises(InputError, match="is not name=number"):
            parse_options([wrong])


def test_an_algorithm_that_is_not_the_usual_one_has_its_own_number_of_updates() -> None:
    assert Recipe.of("dl2").updates == 2000
    assert Recipe.of("dl2", algo="es").updates == 200
    assert Recipe.of("dl2", algo="es", updates=7).updates == 7
    with pytest.raises(UnknownName, match="dl2\\+"):
        Recipe.of("dl2+ ")
