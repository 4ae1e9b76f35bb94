"""The same training in this process and on Ray: the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipes_help import same, tiny_recipe

from argosy.errors import InputError
from argosy.learn.training.train import train
from argosy.learn.training.workers import Workers

pytest.importorskip("ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_gives_the_same_weights(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, updates=2)
    here = train(recipe, workers=1)
    there = train(recipe, workers=2, ray="local")
    assert here.weights is not None and there.weights is not None
    assert same(here.weights.arrays, there.weights.arrays)
    assert here.curve == there.curve


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:1", "127.0.0.1:99999999"])
def test_an_address_without_ray_is_refused_at_once(address: str) -> None:
    with pytest.raises(InputError, match="there is no Ray cluster at"), Workers(1, address):
        pass
