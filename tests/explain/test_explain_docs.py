"""The page about explanations shows what the program says."""

from __future__ import annotations

from pathlib import Path

from argosy.cluster.cluster import Cluster
from argosy.explain.story import story
from argosy.mechanism.plan import Why
from argosy.sim.settings import Settings
from argosy.workload.trace import Trace

PAGE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text("utf-8")


def test_the_story_on_the_page(tmp_path: Path) -> None:
    trace, told = PAGE.split("```csv\n")[1].split("```", 1)
    file = tmp_path / "jobs.csv"
    file.write_text(trace)
    shown = told.split("```\n", 2)[1]
    rules = Settings(consolidation="strict")
    assert story(Trace.read(file), Cluster.uniform(2, 4), "srtf", rules, "mine") == shown


def test_every_category_is_on_the_page() -> None:
    assert [why.name for why in Why if f"`{why.name}`" not in PAGE] == []
