from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from argosy.errors import InputError
from argosy.report.comparison import Comparison
from argosy.report.html import page, write_report
from argosy.sim.metrics import DEFINITIONS

NASTY = "</script><b>&'\"\\ queue"


class Structure(HTMLParser):
    """Collect which elements open and close, and which resources they would fetch."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text(comparison: Comparison) -> str:
    return page(comparison)


def test_the_page_is_well_formed_and_fetches_nothing(text: str) -> None:
    structure = Structure()
    structure.feed(text)
    assert structure.open == []
    assert structure.fetched == []
    assert len(text) < 3_000_000


def test_it_holds_a_valid_specification_for_every_figure(text: str) -> None:
    specs = re.findall(r'<script type="application/json" id="(chart-\d+)">(.*?)</script>', text, re.S)
    assert [name for name, _ in specs] == re.findall(r'data-spec="(chart-\d+)"', text)
    assert len(specs) == 10  # differences, four distributions, sweep, two of winners, two maps
    for _, spec in specs:
        assert "vega-lite" in json.loads(spec)["$schema"]


def test_it_says_who_was_compared_how_and_what_they_saw(text: str) -> None:
    assert "argosy compare --policies fifo,sjf" in text
    assert "★ sees true durations" in text
    assert "first-fit" in text
    for name in DEFINITIONS:
        assert f">{name}<" in text


def test_every_wide_table_scrolls_in_a_frame_that_can_say_so(text: str) -> None:
    text = text.partition("<script")[0]
    assert text.count("<table>") == text.count('<div class="wide"><div class="scroll" tabindex="0"><table>') > 0
    assert "scroll sideways: more columns" in text  # shown where the script finds that columns are cut


def test_hostile_names_stay_text(comparison: Comparison) -> None:
    hostile = tuple(
        replace(
            result,
            trace=NASTY,
            policy=f"{result.policy}{NASTY}",
            jobs=result.jobs.with_columns(pl.lit(NASTY).alias("queue")),
            settings={NASTY: NASTY},
        )
        for result in comparison.results
    )
    text = page(Comparison(hostile, command=NASTY))
    structure = Structure()
    structure.feed(text)
    assert structure.open == []
    assert "</script><b>" not in text
    assert structure.seen.count("script") == 2 + len(re.findall(r"data-spec=", text))


def test_one_policy_and_one_seed_make_a_page_too(comparison: Comparison) -> None:
    text = page(Comparison(comparison.results[:1], window=(0.0, 500.0)))
    assert "One policy, fifo." in text
    assert "window" in text
    assert "Who won" not in text


def test_a_path_that_can_not_be_written(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_report(comparison, tmp_path / "missing" / "report.html")
    path = tmp_path / "report.html"
    write_report(comparison, path)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
