from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from argosy.league.page import markdown, page, pictures, scenario_facts, write_markdown
from argosy.league.plots import ALL, heat_map, wins_and_losses
from argosy.league.table import League


class Structure(HTMLParser):
    """Collect which elements open and close, and which resources they would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(broken: League) -> str:
    return page(broken)


def test_the_page_is_well_formed_and_fetches_nothing(text: str) -> None:
    structure = Structure()
    structure.feed(text)
    assert structure.open == []
    assert structure.fetched == []


def test_it_shows_failures_stars_and_definitions(text: str) -> None:
    assert "las in busy (seed 1)" in text and "rank by &lt;zero&gt; | bad" in text
    assert '<td class="failed"' in text
    assert "srtf ★" in text and "fifo ★" not in text
    assert "Finish-time fairness" in text
    assert "las runs as las:quantum_s=120" in text
    specs = re.findall(r'<script type="application/json" id="chart-\d+">(.*?)</script>', text, re.S)
    assert len(specs) == 2
    assert all("vega-lite" in json.loads(spec)["$schema"] for spec in specs)


def cells(chart: Any) -> list[dict[str, Any]]:
    """Return the data of a chart, wherever Altair put them."""
    spec = chart.to_dict()
    inline = [part["data"]["values"] for part in [spec, *spec["layer"]] if "values" in part.get("data", {})]
    return [row for rows in [*spec.get("datasets", {}).values(), *inline] for row in rows]


def test_the_heat_map_has_every_cell(broken: League) -> None:
    data = cells(heat_map(broken, choices=False))
    assert len(data) == 3 * (2 + 1)
    by = {(cell["policy"], cell["scenario"]): cell for cell in data}
    assert by["las", "busy"]["failed"] and by["las", "busy"]["text"] == "failed"
    assert by["las", ALL]["text"] == "–"
    assert by["fifo", "busy"]["shade"] == 0
    assert by["srtf ★", "busy"]["shade"] < 0  # blue
    assert {key for key, cell in by.items() if cell["best"]} >= {("fifo", "busy")}


def test_blue_is_better_also_where_more_is_better(league: League) -> None:
    chosen = [c for c in cells(heat_map(league)) if (c["figure"], c["reference"]) == ("useful", "fifo")]
    assert len(chosen) == 9
    for cell in chosen:
        assert (cell["ratio"] - 1) * cell["shade"] <= 0


def test_every_policy_stands_among_wins_and_losses(league: League) -> None:
    data = [cell for cell in cells(wins_and_losses(league)) if "policy" in cell]
    assert {cell["policy"] for cell in data} == {"fifo", "las", "srtf ★"}
    for cell in data:
        assert {"wins": cell["ratio"] < 1, "loses": cell["ratio"] > 1, "between": True}[cell["end"]]


def test_markdown_with_pictures_beside_it(broken: League, tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    write_markdown(broken, path)
    written = path.read_text()
    for picture in pictures(path):
        assert f"]({picture.name})" in written
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert "rank by <zero> \\| bad" in written
    widths = [line.replace("\\|", "").count("|") for line in written.splitlines() if line.startswith("| policy")]
    rows = [line.replace("\\|", "").count("|") for line in written.splitlines() if line.startswith("| srtf ★")]
    assert widths == rows and len(rows) == 4  # matrix, standings, two scenarios


def test_facts_tell_what_is_special(league: League) -> None:
    facts = scenario_facts(league.season.scenario("busy"))
    assert facts[0] == "40 jobs like philly, at load 1.5"
    assert facts[1] == "2 nodes with 8 v100 GPUs"
    assert "las runs as las:quantum_s=120" in facts
    assert markdown(league, "x.md").count("- 40 jobs like philly") == 2
