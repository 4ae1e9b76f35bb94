"""The dashboard's page shows every screen, and its figures are those that were measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import dashboard
from benchmarks.harness import RESULTS
from benchmarks.screenshots import IN_DOCS_EXTRA, MOST_BYTES, SCREENS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "dashboard.md").read_text("utf-8")


def test_every_screen_has_a_small_picture() -> None:
    for screen in (*SCREENS, *IN_DOCS_EXTRA):
        assert f"(images/dashboard-{screen}.png)" in PAGE
        assert (ROOT / "docs" / "images" / f"dashboard-{screen}.png").stat().st_size <= MOST_BYTES


def test_the_figures_are_those_that_were_measured() -> None:
    figures = json.loads((RESULTS / "dashboard.json").read_text("utf-8"))["figures"]
    for row in dashboard.table(figures):
        assert f"| {' | '.join(row)} |" in PAGE
