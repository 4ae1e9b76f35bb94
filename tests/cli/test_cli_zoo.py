"""`argosy zoo` and `argosy train --verify`, with a zoo made by the test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Argosy
from test_cli_train import PLUS, TINY

from argosy.zoo import Weights, read, write


@pytest.fixture
def folder(argosy: Argosy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of a training that takes a second."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    assert argosy(*PLUS, "--updates", "1", "-o", "shipped/tiny.safetensors").code == 0
    monkeypatch.setattr("argosy.zoo.weights.FOLDER", shipped)
    return shipped


def test_the_zoo_says_what_for_and_how(argosy: Argosy, folder: Path) -> None:
    table = argosy("zoo")
    assert table.code == 0
    for word in ("tiny", "dl2+", "tiny.yaml", "× floor", "KiB", "500,000", "argosy train dl2+"):
        assert word in table.out
    (entry,) = json.loads(argosy("zoo", "-o", "json").out)
    about = read(folder / "tiny.safetensors").about
    assert entry["command"] == about["command"]
    assert entry["bytes"] == (folder / "tiny.safetensors").stat().st_size
    assert f"{about['score']['score']:.3f} × floor" in entry["score"]


def test_all_about_one(argosy: Argosy, folder: Path) -> None:
    shown = argosy("zoo", "--show", "tiny", "-o", "json")
    assert json.loads(shown.out) == read(folder / "tiny.safetensors").about
    assert "network: score" in argosy("zoo", "--show", "tiny").out
    assert "did you mean tiny" in argosy("zoo", "--show", "tinny").err


def test_verified(argosy: Argosy, folder: Path) -> None:
    answer = argosy("train", "--verify", "tiny", "--workers", "1")
    assert answer.code == 0, answer.err
    assert "the same weights, bit for bit" in answer.out


def test_not_verified(argosy: Argosy, folder: Path) -> None:
    path = folder / "tiny.safetensors"
    found = read(path)
    boast = {**found.about, "score": {**found.about["score"], "score": 0.9 * found.about["score"]["score"]}}
    write(Weights(found.arrays, boast), path)
    answer = argosy("train", "--verify", "tiny", "--workers", "1")
    assert answer.code == 1
    assert "the score was not reached" in answer.err


OWN = {
    "spotlight": ("updates=2", "gangs=2", "validation=4"),
    "dual-agent": ("updates=1", "jobs=12", "runs=2", "validation=1", "every=1"),
    "rltune": (
        "scenarios=overload",
        "jobs=96",
        "windows=2",
        "epochs=1",
        "episodes=2",
        "steps=2",
        "validation_windows=1",
    ),
}


@pytest.mark.parametrize("system", OWN)
def test_systems_with_a_trainer_of_their_own_are_verified(
    argosy: Argosy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    options = [word for option in OWN[system] for word in ("--set", option)]
    assert argosy("train", system, *options, "-o", "small.safetensors").code == 0
    monkeypatch.setattr("argosy.zoo.weights.FOLDER", tmp_path)
    answer = argosy("train", "--verify", "small")
    assert answer.code == 0 and "the same weights, bit for bit" in answer.out, answer.err
    found = read(tmp_path / "small.safetensors")
    write(Weights(found.arrays, {**found.about, "recipe": {"seed": 0}}), tmp_path / "small.safetensors")
    damaged = argosy("train", "--verify", "small")
    assert damaged.code == 2 and "do not say how they were made" in damaged.err


def test_weights_that_can_not_be_verified(argosy: Argosy, folder: Path) -> None:
    path = folder / "tiny.safetensors"
    write(Weights(read(path).arrays, {"network": "score"}), path)
    answer = argosy("train", "--verify", "tiny")
    assert answer.code == 2
    assert "do not say how they were made" in answer.err
    assert argosy("zoo").code == 0
    assert "unknown shipped weights 'large'" in argosy("train", "--verify", "large").err


def test_a_file_that_is_none_of_weights(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "junk.bin").write_bytes(b"noise" * 99)
    (tmp_path / "folder").mkdir()
    for name, text in (("junk.bin", "the file is damaged"), ("folder", "this is not a file of weights")):
        answer = argosy("zoo", "--show", name)
        assert answer.code == 2
        assert f"{name}: {text}" in answer.err and "`argosy train` has written" in answer.err
