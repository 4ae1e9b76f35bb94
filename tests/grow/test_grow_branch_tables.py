"""Branch tables: they are made by real trainings, can be interrupted, and come back from their files as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from branch_tables import branch_table

from argosy.grow.data import Data
from argosy.grow.errors import GrowError
from argosy.grow.study import family, make_branches
from argosy.grow.study.family import Member, member, members
from argosy.grow.study.make_branches import Trial, begin, gains_of, train_member, write_table
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.branch_table import SHIPPED, BranchTable, DecisionPoint, read_all
from argosy.grow.training.clock import VirtualClock
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.run import Run

TINY = Member("mlp", "digits", 120, 8, Recipe(batch=32, lr=0.05), budget=5.0)


@pytest.fixture(scope="module", autouse=True)
def _small_data() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def digits() -> Data:
    data = TINY.load()
    return replace(data, val_x=data.val_x[:100], val_y=data.val_y[:100])


@pytest.fixture(scope="module")
def points(digits: Data) -> list[DecisionPoint]:
    return Trial(TINY, digits, 0, {}).points()


def test_arms_branch_from_the_run_that_does_not_grow(points: list[DecisionPoint], digits: Data) -> None:
    assert [p.scenario for p in points] == ["early", "middle", "late"]
    early, middle, late = points
    assert (early.time, middle.time, late.time) == (1.0, 3.0, 4.0)
    assert early.curve.score == middle.curve.score[:1] == late.curve.score[:1]
    assert early.nothing.validation == middle.nothing.validation == late.nothing.validation
    assert [p.nothing.epochs for p in points] == [4, 2, 1]
    seed = Trial(TINY, digits, 0, {}).seed
    run = Run(TINY.network(digits, seed), digits, TINY.recipe, VirtualClock(), seed, budget=5.0)
    while run.time_left > 0:
        run.train_epoch()
    assert run.evaluate("test") == early.nothing.test
    assert late.lr < middle.lr < early.lr


def test_the_first_run_tries_all_kinds_and_a_paid_growth_has_fewer_epochs(points: list[DecisionPoint]) -> None:
    arms = [arm for point in points for arm in point.arms]
    kinds = {s.op for arm in arms for s in arm.surgeries}
    assert kinds == {"deepen", "widen", "replicate"}
    assert any(len(arm.surgeries) == 2 for arm in arms)
    for arm in arms:
        point = next(p for p in points if arm in p.arms)
        if any(s.op == "replicate" for s in arm.surgeries):
            assert arm.epochs > point.nothing.epochs and arm.parameters == point.parameters
        elif arm.surgeries:
            assert arm.parameters > point.parameters
            assert arm.epochs == point.nothing.epochs or arm.price == "time"
    names = [arm.name for arm in points[0].arms]
    assert names[0] == "none" and names[1] == "reset"


def test_an_arm_is_what_training_it_alone_gives(points: list[DecisionPoint], digits: Data) -> None:
    point = points[1]
    arm = next(a for a in point.arms if a.surgeries and a.surgeries[0].op == "deepen" and a.price == "free")
    history = begin(TINY, digits, Trial(TINY, digits, 0, {}).seed)
    history.train_until(0.45)
    assert history.curve == point.curve
    history.grow(arm.surgeries, arm.reset)
    history.finish()
    assert history.run.evaluate("test") == arm.test
    assert history.situation((Surgery("deepen", "1"),)).done[0][0] == 2.0


def test_later_runs_try_the_best_and_a_second_decision(points: list[DecisionPoint], digits: Data) -> None:
    gains = gains_of([points])
    second = Trial(TINY, digits, 1, gains).points()
    for point in (p for p in second if not p.done):
        known = gains[point.scenario]
        tried = [(arm.surgeries, arm.reset, arm.price) for arm in point.arms]
        grown = [way for way in known if any(s.op != "replicate" for s in way[0])]
        best = sorted(grown, key=lambda way: -known[way])[: len(tried) - 2]
        assert set(tried[2:]) == set(best)
        assert len(tried) - 2 <= make_branches.LATER[0] < len(grown) or len(tried) - 2 == len(grown)
    for point in (p for p in second if p.done):
        assert point.scenario.endswith(", again") and len(point.curve.score) == round(point.time)
        assert point.nothing.surgeries == () and any(arm.reset and not arm.surgeries for arm in point.arms)
    assert any(p.done for p in second)


def test_an_interrupted_table_goes_on_where_it_stopped(
    tmp_path: Path, digits: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Member, "load", lambda self: digits)
    train_member(TINY, 0, tmp_path)
    partial = (tmp_path / "mlp-digits-sgd.json.partial").read_text()
    train_member(TINY, 0, tmp_path)  # it is there already
    assert (tmp_path / "mlp-digits-sgd.json.partial").read_text() == partial
    path = write_table(TINY, tmp_path, "the command")
    assert path is not None
    table = BranchTable.read(path)
    assert table.about["command"] == "the command" and len(table.runs) == 1 and table.counts["validation"] == 100
    assert table.graph.names == ("1", "3", "5") or len(table.graph.names) >= 3
    situation = table.situation(table.runs[0][0])
    assert situation.share_left == pytest.approx(0.8) and situation.recipe.batch == 32
    assert write_table(replace(TINY, draw=1), tmp_path, "") is None


def test_a_file_keeps_a_table(tmp_path: Path) -> None:
    table = branch_table()
    table.write(tmp_path / "table.json")
    again = BranchTable.read(tmp_path / "table.json")
    assert again.key == "mlp-fashion-mnist-sgd" and again.runs[0][0].curve.times == table.runs[0][0].curve.times
    again.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "table.json").read_bytes()
    assert [t.key for t in read_all(tmp_path)] == [again.key] * 2


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    branch_table().write(path)
    whole = json.loads(path.read_text())
    without = {**whole, "runs": [[{**whole["runs"][0][0], "arms": whole["runs"][0][0]["arms"][1:]}]]}
    for content in ("{", "[]", '{"format": "x"}', json.dumps({**whole, "budget": None}), json.dumps(without)):
        path.write_text(content)
        with pytest.raises(GrowError, match=r"table\.json"):
            BranchTable.read(path)
    with pytest.raises(GrowError, match="cannot be read"):
        BranchTable.read(tmp_path / "missing.json")
    with pytest.raises(GrowError, match="no branch table"):
        read_all(tmp_path / "nowhere")


def test_the_family_is_broad_and_repeatable() -> None:
    found = members()
    assert len({m.key for m in found}) == len(found) > 50
    assert {m.family for m in found} == set(family.FAMILIES)
    assert {m.data for m in found} == {*family.PICTURES, *family.TABULAR}
    assert member("plain", "cifar10", "sgd") == member("plain", "cifar10", "sgd")
    assert len({(m.recipe.lr, m.train, m.width) for m in found}) > 20


def test_the_tables_that_ship_cover_the_family() -> None:
    tables = read_all()
    assert {t.family for t in tables} == set(family.FAMILIES)
    assert all("make_branches" in t.about["command"] for t in tables)
    assert sum(path.stat().st_size for path in SHIPPED.glob("*")) < 1_000_000
    assert len(tables) >= 40 and all(t.runs for t in tables)
