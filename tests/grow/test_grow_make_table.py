"""Tables made by real trainings: arms branch from one checkpoint, and an interrupted table is continued."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from argosy.errors import UnknownName
from argosy.grow.data import Data, load
from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import Table
from argosy.grow.tables.make import make
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.run import Run
from argosy.seeding import stream

SMALL = {"model_options": {"width": 4}, "workers": 1, "budget": 3.0, "recipe": Recipe(lr=0.05)}


@pytest.fixture(scope="module")
def digits() -> Data:
    torch.set_num_threads(1)
    return load("digits", train=192)


@pytest.fixture(scope="module")
def table(digits: Data) -> Table:
    return make("cnn1", digits, "early_middle", decisions=2, runs=2, seed=7, **SMALL)


def test_every_sequence_is_there_with_its_times(table: Table) -> None:
    assert len(table) == 16 and table.runs == 2
    assert table.options == (Surgery("deepen", "0"), Surgery("deepen", "4"), Surgery("deepen", "9"), None)
    # the start, .325 of 3 epochs, is met by the first epoch's end
    np.testing.assert_array_equal(table.time_left, np.tile([2.0, 1.0], (16, 1)))
    assert table.about["network"] == {"options": {"classes": 10, "channels": 1, "width": 4}, "input": [1, 8, 8]}
    assert "0" in table.graph.names
    assert table.noise() > 0


def test_a_sequence_is_what_training_it_alone_gives(table: Table, digits: Data) -> None:
    from argosy.grow.models import build

    seed = int(stream(7, "growth table run", 1).integers(2**31))
    torch.manual_seed(seed)
    run = Run(build("cnn1", width=4, channels=1), digits, SMALL["recipe"], VirtualClock(), seed, budget=3.0)
    run.train_epoch()
    run.grow([Surgery("deepen", "4")])
    run.train_epoch()
    run.grow([])
    run.train_epoch()
    row = table.index((1, 3))
    assert (run.evaluate("validation"), run.evaluate("test")) == (table.validation[row, 1], table.test[row, 1])


def test_the_arms_without_growth(table: Table, digits: Data) -> None:
    none = table.index((3, 3))
    np.testing.assert_array_equal(table.arms["none_plain"]["test"], table.test[none])  # this recipe resets by growth
    assert (table.arms["none_reset"]["test"] != table.arms["none_plain"]["test"]).any()
    always = make(
        "cnn1",
        digits,
        "early_middle",
        decisions=2,
        runs=2,
        seed=7,
        options=[None, Surgery("deepen", "0")],
        **SMALL | {"recipe": Recipe(lr=0.05, reset_for_nothing=True)},
    )
    np.testing.assert_array_equal(always.test[always.index((0, 0))], table.arms["none_reset"]["test"])
    assert always.options == (None, Surgery("deepen", "0")) and always.nothing == 0


def test_growth_that_is_paid_for_leaves_less_time(digits: Data) -> None:
    options = [Surgery("deepen", "4"), None]
    paid = make("cnn1", digits, "early_middle", decisions=2, runs=1, options=options, clock="parameters", **SMALL)
    free, grown = paid.time_left[paid.index((1, 1))], paid.time_left[paid.index((0, 1))]
    assert free.tolist() == [2, 1] and grown[0] == 2 and 0 < grown[1] < 1
    dear = make(
        "cnn1",
        digits,
        "early_middle",
        decisions=2,
        runs=1,
        options=options,
        clock=VirtualClock(ratios={"deepen": 5.0}),
        **SMALL,
    )
    assert dear.time_left[dear.index((0, 1))].tolist() == [2, 0]  # the second decision comes too late


def test_an_interrupted_table_goes_on(digits: Data, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    how = {**SMALL, "decisions": 1, "runs": 2, "options": [Surgery("deepen", "0")], "output": path}
    seen: list[tuple[int, int]] = []

    def stop_after_two(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make("cnn1", digits, "early", progress=stop_after_two, **how)
    assert seen == [(0, 4), (0, 4), (1, 4), (2, 4)] and not path.exists()
    partial = tmp_path / "t.json.partial"
    with partial.open("a") as file:
        file.write('{"run": 1, "first": 0, "fo')  # power went away while this was written
    seen.clear()
    table = make("cnn1", digits, "early", progress=lambda *step: seen.append(step), **how)
    assert seen == [(2, 4), (2, 4), (3, 4), (4, 4)] and not partial.exists()
    whole = make("cnn1", digits, "early", **how | {"output": None})
    np.testing.assert_array_equal(table.test, whole.test)
    np.testing.assert_array_equal(Table.read(path).validation, whole.validation)


def test_parts_of_other_settings_are_not_mixed_in(digits: Data, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    partial = tmp_path / "t.json.partial"
    how = {**SMALL, "decisions": 1, "runs": 1, "options": [Surgery("deepen", "0")], "output": path}
    partial.write_text(json.dumps({"model": "cnn1", "budget": 99}) + "\n")
    with pytest.raises(GrowError, match=r"begun with other settings: budget, .*recipe") as caught:
        make("cnn1", digits, "early", **how)
    assert str(partial) in str(caught.value)
    partial.write_text("scribble\n")
    with pytest.raises(GrowError, match="not JSON"):
        make("cnn1", digits, "early", **how)


@pytest.mark.slow
def test_processes_give_the_same_table(digits: Data) -> None:
    how = {**SMALL, "decisions": 1, "runs": 1, "options": [Surgery("deepen", "0")]}
    alone = make("cnn1", digits, "early", **how)
    together = make("cnn1", digits, "early", **how | {"workers": 2})
    np.testing.assert_array_equal(alone.test, together.test)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"decisions": 0}, "decisions = 0 is too small"),
        ({"runs": 0}, "runs = 0 is too small"),
        ({"budget": 0.0}, "budget must be above 0, not 0"),
        ({"clock": "gold"}, "'gold' is not known"),
        ({"model_options": {"legs": 4}}, "cannot be built"),
        ({"options": [None]}, "nothing to decide"),
        ({"options": [Surgery("deepen", "77")]}, "77"),
    ],
)
def test_bad_settings(wrong: dict, message: str, digits: Data) -> None:
    with pytest.raises(GrowError, match=message):
        make("cnn1", digits, "early", **{**SMALL, "decisions": 1, "runs": 1, **wrong})


def test_an_unknown_scenario(digits: Data) -> None:
    with pytest.raises(UnknownName, match=r"(?s)unknown scenario 'erly'.*did you mean early"):
        make("cnn1", digits, "erly", **SMALL)
