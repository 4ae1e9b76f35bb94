"""The live benchmark's arithmetic: figures from the steps that workers recorded, and their tables."""

from __future__ import annotations

import json

import pytest
from benchmarks import live, live_elastic, live_tables
from benchmarks.harness import RESULTS, Options
from benchmarks.live_yard import Step, place, typical

from argosy.errors import UnknownName

STEPS = [
    Step(1.0, 1, 1, 0, 0.1),
    Step(2.0, 2, 1, 0, 0.2),
    Step(3.0, 3, 1, 0, 0.3),
    Step(5.5, 4, 2, 0, 0.4),
    Step(5.6, 4, 2, 1, 0.1),
    Step(6.0, 5, 2, 0, 0.5),
    Step(6.5, 6, 2, 0, 0.6),
]


def test_a_resize_is_timed_from_the_request_and_between_the_steps_around_it() -> None:
    found = live_elastic._resized(STEPS, 3.2, 2)
    assert (found["from"], found["to"], found["lost"]) == (1, 2, False)
    assert found["request_s"] == pytest.approx(2.3) and found["gap_s"] == pytest.approx(2.5)
    assert found["step_s"] == pytest.approx(0.5)


def test_lost_and_repeated_steps_are_found() -> None:
    assert live_elastic._in_order(STEPS)
    assert not live_elastic._in_order([*STEPS, Step(7.0, 8, 2, 0, 0.7)])  # seven is missing
    assert not live_elastic._in_order([*STEPS, Step(7.0, 6, 2, 0, 0.7)])  # six was done twice


def test_slots_of_a_size_fill_one_node_after_the_other() -> None:
    assert [(part.node, part.devices) for part in place(2, 3).parts] == [("n1", (0, 1)), ("n2", (0,))]
    assert typical([3.0, 1.0, 2.0]) == 2.0 and typical([]) == 0.0 and typical([1.0, 3.0]) == 2.0


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(UnknownName, match="resizes"):
        live.run(Options(None, True), ["resizes"])


def test_what_misses_its_target_says_so() -> None:
    made = {"load_average_before": 1.0, "load_average_after": 2.0}
    cases = [{"next_step_s": 0.2}, {"next_step_s": 1.4}]
    rows = live_tables.target_table({"kill": {"cases": cases, "steps_in_order": False, "made": made}})
    assert rows[1][3] == "1 of 2" and rows[2][1:4] == ("some", "none", "**no**") and rows[1][4] == "1.0 … 2.0"


def test_the_stored_figures_can_be_told() -> None:
    figures = json.loads((RESULTS / "live.json").read_text("utf-8"))["figures"]
    assert set(figures) <= set(live.PARTS)
    tables = [
        live_tables.target_table,
        live_tables.resize_table,
        live_tables.drift_table,
        live_tables.reliability_table,
        *([live_tables.soak_table] if "soak" in figures else []),
    ]
    for table in tables:
        rows = table(figures)
        assert len(rows) > 2 and len({len(row) for row in rows}) == 1
