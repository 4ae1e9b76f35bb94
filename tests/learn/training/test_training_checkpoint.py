"""Checkpoints: refused where they do not belong, and never unpickled."""

from __future__ import annotations

import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from recipes_help import tiny_recipe

from argosy.errors import InputError
from argosy.learn.training.checkpoint import Checkpoint, load, path_beside, save
from argosy.learn.training.train import train


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return a plausible checkpoint of the tiny recipe."""
    path = path_beside(tmp_path / "weights.safetensors")
    state = {"stage/updates": torch.tensor(1), "best/w1": torch.ones(2, 3)}
    notes = {"stage": 0, "curve": [], "best": None, "seconds": {}}
    save(Checkpoint(tiny_recipe(tmp_path), notes, state), path)
    return path


def test_what_is_saved_is_loaded(tmp_path: Path, kept: Path) -> None:
    found = load(kept, tiny_recipe(tmp_path))
    assert found.notes["stage"] == 0
    assert torch.equal(found.state["best/w1"], torch.ones(2, 3))
    assert kept.name == "weights.safetensors.training"


def test_more_updates_are_no_other_recipe(tmp_path: Path, kept: Path) -> None:
    assert load(kept, tiny_recipe(tmp_path, updates=99)).notes["stage"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "seed is 0 there and 4 here"),
        ({"teacher": "srtf"}, "teacher is drf there and srtf here"),
        ({"options": {"sigma": 0.5}}, "sigma is 0.03 there and 0.5 here"),
    ],
)
def test_another_recipe_is_named(tmp_path: Path, kept: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(kept, tiny_recipe(tmp_path, **change))


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch sprung",)


def hostile(kind: str) -> bytes:
    if kind == "pickle":
        return pickle.dumps(Trap())
    if kind == "huge header":
        return struct.pack("<Q", 2**62) + b"{}"
    return b"" if kind == "empty" else b"x" * 5000


@pytest.mark.parametrize("kind", ["pickle", "huge header", "empty", "noise"])
def test_a_hostile_file_is_refused(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    kept.write_bytes(hostile(kind))
    with pytest.raises(InputError, match="is not a checkpoint, or is damaged"):
        load(kept, tiny_recipe(tmp_path))
    assert not (tmp_path / "sprung").exists()


def test_a_checkpoint_with_missing_parts_is_refused(tmp_path: Path, kept: Path) -> None:
    with pytest.raises(InputError, match="does not fit this"):
        train(tiny_recipe(tmp_path), kept.with_suffix(""), workers=1, resume=True)
    recipe = tiny_recipe(tmp_path)
    save(Checkpoint(recipe, {"stage": 7}, {}), kept)
    with pytest.raises(InputError, match="the checkpoint is damaged"):
        train(recipe, kept.with_suffix(""), workers=1, resume=True)


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no interrupted training to resume"):
        train(tiny_recipe(tmp_path), tmp_path / "new.safetensors", resume=True)
    with pytest.raises(InputError, match="nothing to resume without an output"):
        train(tiny_recipe(tmp_path), resume=True)


def test_a_checkpoint_is_not_overwritten_by_accident(tmp_path: Path, kept: Path) -> None:
    with pytest.raises(InputError, match="there is already a checkpoint of an interrupted training"):
        train(tiny_recipe(tmp_path), kept.with_suffix(""))


def test_the_folder_with_real_data_must_fit_the_recipe(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    with pytest.raises(InputError, match="not for real data"):
        train(recipe, data=tmp_path)
    with pytest.raises(InputError, match="for real data"):
        train(replace(recipe, measured=True))
