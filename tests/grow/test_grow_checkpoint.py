"""Runs are saved and restored exactly and completely, and never by unpickling."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from training_help import digits, same_weights, small_net

from argosy.grow.errors import GrowError
from argosy.grow.surgery.history import surgeries_of
from argosy.grow.surgery.record import Surgery
from argosy.grow.training import checkpoint
from argosy.grow.training.clock import RealClock, VirtualClock
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.run import Run

GROWTH = (Surgery("deepen", "0"), Surgery("deepen", "4"), Surgery("replicate", factor=2.0), Surgery("widen", "0", 1.5))


def new(recipe=None, *, net=None, clock=None):
    return Run(net or small_net(dropout=0.2), digits(), recipe, clock or VirtualClock(growth="parameters"), 3, budget=9)


def trained(recipe=None):
    run = new(recipe)
    run.train_epoch()
    run.grow(GROWTH)
    run.train_epoch()
    return run


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_run_goes_on_as_if_nothing_had_happened(tmp_path, optimizer):
    run = trained(Recipe(optimizer=optimizer))
    path = tmp_path / "run.safetensors"
    run.save(path)
    other = new(Recipe(optimizer=optimizer), net=small_net(seed=9, dropout=0.2))
    other.load(path)
    assert other.surgeries == run.surgeries == surgeries_of(other.model) == GROWTH
    run.grow([Surgery("deepen", "4")])
    other.grow([Surgery("deepen", "4")])
    assert [other.train_epoch() for _ in range(2)] == [run.train_epoch() for _ in range(2)]
    assert same_weights(run.model, other.model)
    assert other.clock.state() == run.clock.state()
    assert (other.epochs, other.adapting, other.course) == (run.epochs, run.adapting, run.course)


def test_the_grown_network_is_rebuilt_anywhere(tmp_path):
    run = trained()
    run.save(tmp_path / "a")
    net = small_net(seed=4, dropout=0.2)
    grown = checkpoint.load(tmp_path / "a", net, digits().val_x[:8])
    assert same_weights(grown, run.model)
    assert checkpoint.surgeries(tmp_path / "a") == GROWTH
    partly = checkpoint.load(tmp_path / "a", Run(net, digits()).model, digits().val_x[:8])
    assert same_weights(partly, run.model)
    assert surgeries_of(net) == ()


def test_a_partly_grown_network_is_grown_further(tmp_path):
    run = trained()
    run.save(tmp_path / "a")
    half = new()
    half.grow(GROWTH[:2])
    assert same_weights(checkpoint.load(tmp_path / "a", half.model, half.example), run.model)
    half.grow([Surgery("deepen", "4")])
    with pytest.raises(GrowError, match="grown in another way"):
        checkpoint.load(tmp_path / "a", half.model, half.example)


def test_the_small_network_and_other_data_are_kept(tmp_path):
    run, small = trained(), small_net(seed=5, dropout=0.2)
    checkpoint.save(run, tmp_path / "a", more={"list": [1, None, "ü"]}, small=small)
    saved = checkpoint.resume(new(), tmp_path / "a")
    assert saved.more == {"list": [1, None, "ü"]}
    assert same_weights(saved.small, small)
    assert saved.kept is None


def test_the_state_from_before_growth_is_kept(tmp_path):
    run = new(Recipe(optimizer="adam"))
    run.train_epoch()
    before = run.fork()
    run.grow(GROWTH[:2])
    run.train_epoch()
    checkpoint.save(run, tmp_path / "a", kept=before)
    other = new(Recipe(optimizer="adam"))
    kept = checkpoint.resume(other, tmp_path / "a").kept
    assert other.surgeries == GROWTH[:2]
    assert kept.surgeries == ()
    for r, k in ((run, before), (other, kept)):
        r.go_back(k)
    assert run.clock.now() > 2.0, "the time stays spent"
    assert [other.train_epoch() for _ in range(2)] == [run.train_epoch() for _ in range(2)]
    assert same_weights(run.model, other.model)


def test_the_file_holds_tensors_and_json_only(tmp_path):
    path = tmp_path / "a"
    trained().save(path)
    with safe_open(str(path), framework="pt") as file:
        about = json.loads(file.metadata()["argosy"])
    assert about["surgeries"] == [s.to_dict() for s in GROWTH]
    assert Recipe.from_dict(about["recipe"]) == Recipe()


def test_the_last_good_one_is_kept(tmp_path):
    run = trained()
    path = tmp_path / "a"
    run.save(path)
    before = path.read_bytes()
    run.train_epoch()
    run.save(path)
    assert (tmp_path / "a.previous").read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"a", "a.previous"}


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    run = trained()
    path = tmp_path / "a"
    run.save(path)
    before = path.read_bytes()

    def fail(tensors, target, metadata):
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(KeyboardInterrupt):
        run.save(path)
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"a", "a.previous"}


def rename(content):
    assert b"adapting" in content
    return content.replace(b"adapting", b"adaptinG", 1)


def flip(content):
    return content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: b"",
        lambda c: c[:99],
        lambda c: c[:-1],
        lambda c: b"\x80" * 50,
        flip,
        rename,
        lambda c: pickle.dumps({1: 2}),
    ],
    ids=["empty", "header only", "one byte short", "noise", "one bit", "a name", "a pickle"],
)
def test_damage_is_found_and_the_file_named(tmp_path, damage):
    run = trained()
    path = tmp_path / "mine.safetensors"
    run.save(path)
    run.save(path)
    path.write_bytes(damage(path.read_bytes()))
    other = new()
    model = other.model
    with pytest.raises(GrowError) as error:
        other.load(path)
    assert "mine.safetensors: this checkpoint cannot be read" in str(error.value)
    assert "mine.safetensors.previous" in str(error.value)
    assert other.model is model
    other.load(tmp_path / "mine.safetensors.previous")


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(GrowError, match="no such checkpoint"):
        new().load(path)
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(GrowError, match="does not describe a training run"):
        new().load(path)
    save_file({"x": torch.zeros(2)}, path, metadata={"argosy": json.dumps({"format": 99})})
    with pytest.raises(GrowError, match="format 99"):
        new().load(path)


def test_another_network_recipe_or_clock_is_refused(tmp_path):
    path = tmp_path / "a"
    run = new()
    run.train_epoch()
    run.save(path)
    with pytest.raises(GrowError, match="another network than Linear"):
        checkpoint.load(path, nn.Linear(3, 2), torch.zeros(2, 3))
    with pytest.raises(GrowError, match="batch, lr differ"):
        new(Recipe(lr=0.02, batch=32)).load(path)
    with pytest.raises(GrowError, match="virtual clock"):
        new(clock=RealClock()).load(path)
