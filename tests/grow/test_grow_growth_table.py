"""Tables of growth sequences: look-ups, and the refusal of incomplete tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from grow_tables import recorded_csv, toy_table

from argosy.grow.errors import GrowError
from argosy.grow.surgery.record import Surgery
from argosy.grow.tables.growth_table import Table, read_all, read_recorded


def test_answers_of_a_small_table() -> None:
    table = toy_table(runs=2)
    assert table.key == "cnn1/early"
    assert len(table) == 64 and table.decisions == 3 and table.runs == 2
    assert table.best_sequence() == (1, 0, 1)
    assert table.rank((1, 0, 1)) == 1
    assert table.regret((1, 0, 1)) == 0
    assert table.best() == table.mean((1, 0, 1)) > table.random_mean() > table.none() == table.mean((3, 3, 3))
    assert table.surgeries((0, 3, 2)) == (Surgery("deepen", "0"), None, Surgery("deepen", "9"))
    worst = table.sequences[table.means().argmin()]
    assert table.rank(worst) == 64
    assert table.regret(worst) == pytest.approx(table.best() - table.means().min())


def test_equal_sequences_share_a_rank() -> None:
    table = toy_table()
    flat = Table(**{**fields(table), "validation": np.full((64, 1), 0.5)})
    assert {flat.rank(row) for row in flat.sequences} == {1}


def test_a_look_up_is_one_of_the_runs_and_noise_is_known() -> None:
    table = toy_table(runs=3)
    rng = np.random.default_rng(0)
    seen = {table.look_up((0, 1, 2), rng) for _ in range(50)}
    assert seen == set(table.validation[table.index((0, 1, 2))])
    assert table.noise() == pytest.approx(0.01, rel=1e-6)
    assert toy_table(runs=1).noise() is None


def test_time_at_a_history_is_the_mean_over_what_may_follow() -> None:
    table = toy_table()
    assert table.time_at(()) == pytest.approx(table.time_left[:, 0].mean())
    assert table.time_at((2, 1)) == pytest.approx(table.time_left[(2 * 4 + 1) * 4 : (2 * 4 + 2) * 4, 2].mean())


def test_the_graph_is_that_of_the_network_before_growth() -> None:
    assert {"0", "4", "9"} <= set(toy_table().graph.names)
    with pytest.raises(GrowError, match="how its network was built"):
        _ = Table(**{**fields(toy_table()), "about": {}}).graph


def test_written_and_read_again(tmp_path: Path) -> None:
    table = toy_table(runs=2, arms=True)
    table.write(tmp_path / "a.json")
    again = Table.read(tmp_path / "a.json")
    for name in ("sequences", "time_left", "validation", "test"):
        np.testing.assert_array_equal(getattr(again, name), getattr(table, name))
    assert (again.options, again.budget, again.about) == (table.options, table.budget, table.about)
    np.testing.assert_array_equal(again.arms["none_plain"]["test"], table.arms["none_plain"]["test"])
    assert [t.key for t in read_all(tmp_path)] == [t.key for t in read_all(tmp_path / "a.json")] == ["cnn1/early"]


def test_a_folder_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    for scenario in ("late", "middle", "early"):
        Table(**{**fields(toy_table()), "scenario": scenario}).write(tmp_path / f"{scenario}.json")
    assert [table.scenario for table in read_all(tmp_path)] == ["early", "middle", "late"]


def drop_rows(document: dict) -> None:
    for name in ("sequences", "time_left", "validation", "test"):
        del document[name][5:7]


BROKEN = {
    "2 of 64 sequences are missing: \\(0, 1, 1\\), \\(0, 1, 2\\)": drop_rows,
    "it has no test": lambda d: d.pop("test"),
    "unknown options \\[7\\]": lambda d: d["sequences"].__setitem__(3, [0, 0, 7]),
    "more than once": lambda d: [d[n].append(d[n][0]) for n in ("sequences", "time_left", "validation", "test")],
    "time_left has the shape": lambda d: d["time_left"].pop(),
    "test has the shape": lambda d: d["test"].pop(),
    "1 values that are not accuracies": lambda d: d["validation"].__setitem__(8, [float("nan")]),
    "validation is not a regular array": lambda d: d["validation"].__setitem__(8, ["much"]),
    "not whole": lambda d: d["sequences"].__setitem__(0, [0, 0, 0.5]),
    "unknown operation 'melt'": lambda d: d["options"].__setitem__(0, {"op": "melt"}),
    "options of a table must differ": lambda d: d["options"].__setitem__(0, d["options"][1]),
    "budget must be above 0": lambda d: d.__setitem__("budget", 0),
    "its format is not": lambda d: d.pop("format"),
    "time_left has values": lambda d: d["time_left"].__setitem__(0, [1.0, float("nan"), 1.0]),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_table_that_is_not_whole_is_refused(message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    toy_table().write(path)
    document = json.loads(path.read_text())
    BROKEN[message](document)
    path.write_text(json.dumps(document))
    with pytest.raises(GrowError, match=message) as caught:
        Table.read(path)
    assert str(path) in str(caught.value)


def test_what_is_no_table_at_all(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{")
    with pytest.raises(GrowError, match="not JSON"):
        Table.read(tmp_path / "t.json")
    with pytest.raises(GrowError, match="cannot be read"):
        Table.read(tmp_path / "none.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GrowError, match="no table"):
        read_all(tmp_path / "empty")
    with pytest.raises(GrowError, match="has no sequence"):
        toy_table().mean((0, 0))


def test_recorded_tables(tmp_path: Path) -> None:
    path = recorded_csv(tmp_path / "r.csv")
    tables = read_recorded(path)
    assert [table.key for table in tables] == ["cnn1/early", "cnn2/late"]
    assert tables[0].budget == 400 and tables[0].nothing == 3
    assert tables[1].options[:3] == tuple(Surgery("deepen", site) for site in ("0", "3", "8"))
    assert {"0", "3", "8"} <= set(tables[1].graph.names)
    assert [table.key for table in read_all(path)] == ["cnn1/early", "cnn2/late"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "\n".join(text.splitlines()[:-2]), "2 of 64 sequences are missing"),
        (lambda text: text.replace("accuracy", "acc"), "columns are missing: accuracy"),
        (lambda text: text.replace("CNN2", "VGG"), "unknown model 'VGG'"),
        (lambda text: text.replace("\nCNN1,early,0,0,1", "\nCNN1,early,x,0,1"), "r.csv:3: this row is not valid"),
        (lambda text: "", "columns are missing"),
    ],
)
def test_recorded_tables_that_are_not_whole(change, message: str, tmp_path: Path) -> None:
    path = recorded_csv(tmp_path / "r.csv")
    path.write_text(change(path.read_text()))
    with pytest.raises(GrowError) as caught:
        read_recorded(path)
    assert message in str(caught.value) and "r.csv" in str(caught.value)


def fields(table: Table) -> dict:
    return {name: getattr(table, name) for name in table.__dataclass_fields__}
