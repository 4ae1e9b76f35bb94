from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Argosy

from argosy.cli.league import show
from argosy.league.run import Match, Score, Season
from argosy.league.table import League
from argosy.scenario import read_scenario

TINY = """
title: tiny
description: for tests
jobs: {like: philly, count: 30, quick: 15, load: 1.2}
changes: {longest: 2h, largest_gpus: 4}
cluster: {nodes: [{count: 2, gpu: v100, gpus: 4}]}
parameters: {las: {quantum_s: 120}}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return "tiny.yaml"


def test_table_and_files(argosy: Argosy, tiny: str, tmp_path: Path) -> None:
    files = ["--report", "out/l.html", "--markdown", "out/l.md", "--json", "out/l.json"]
    answer = argosy("league", "-s", tiny, "-p", "fifo,las,srtf", "--seeds", "2", "-j", "1", *files)
    assert answer.code == 0, answer.err
    assert "srtf ★" in answer.out and "Mean JCT relative to fifo, 2 seeds" in answer.out
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"l.html", "l.md", "l.json", "l-heat.png", "l-wins.png"}
    found = json.loads((tmp_path / "out" / "l.json").read_text())
    assert found["seeds"] == [0, 1] and found["command"].startswith("argosy league -s tiny.yaml")
    assert found["scenarios"][0]["jobs"] == 30


def test_quick_takes_fewer_jobs_and_one_seed(argosy: Argosy, tiny: str) -> None:
    found = json.loads(argosy("league", "-s", tiny, "-p", "fifo", "--quick", "-j", "1", "-o", "json").out)
    assert found["seeds"] == [0] and found["scenarios"][0]["jobs"] == 15


def test_the_list(argosy: Argosy) -> None:
    answer = argosy("league", "--list")
    assert answer.code == 0
    assert "hetero-108     Gavel's mix" in answer.out and "dl2-testbed" in answer.out
    assert "36 v100, 36 p100, 36 k80 GPUs" in answer.out


def test_a_failed_cell_is_shown(argosy: Argosy, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, view: object) -> None:
        raise ZeroDivisionError("rank by zero")

    monkeypatch.setattr("argosy.policies.las.Las.rank", broken)
    answer = argosy("league", "-s", tiny, "-p", "fifo,las", "--seeds", "1", "-j", "1")
    assert answer.code == 1
    assert "error: las in tiny (seed 0): ZeroDivisionError: rank by zero" in answer.err
    assert "1 of 2 runs failed" in answer.err
    assert "failed" in answer.out and "1.00" in answer.out


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["-s", "philly-rigd"], ["unknown scenario 'philly-rigd'", "did you mean philly-rigid?"]),
        (["-s", "no.yaml"], ["no.yaml", "no such file"]),
        (["-s", ","], ["no scenario in ','"]),
        (["-s", "packed,packed"], ["'packed' is named twice"]),
        (["-p", "fiffo"], ["unknown policy 'fiffo'", "did you mean fifo"]),
        (["-p", "las:quantum=3"], ["'quantum=3'"]),
        (["--data", "nowhere"], ["nowhere", "no such folder"]),
        (["-s", "packed", "--data", "."], ["alibaba_2023_pods.csv.gz", "the scenario packed needs this file"]),
        (["--seeds", "0"], ["--seeds 0 is too small"]),
        (["-p", "fifo", "--baseline", "las"], ["unknown baseline 'las'"]),
        (["--report", "mine.html/x.html"], ["mine.html", "cannot be written"]),
        (["--markdown", "."], ["cannot be written"]),
    ],
)
def test_wrong_wishes(argosy: Argosy, tmp_path: Path, arguments: list[str], texts: list[str]) -> None:
    for name in ("mine.html", "mine.json"):
        (tmp_path / name).write_text("mine")
    files = [] if "--report" in arguments else ["--report", "mine.html"]
    answer = argosy("league", *files, "--json", "mine.json", *arguments)
    assert answer.code == 2, answer.err
    assert answer.out == ""
    assert answer.err.startswith("error: ") and "\n  → " in answer.err
    for text in texts:
        assert text in answer.err
    assert (tmp_path / "mine.html").read_text() == (tmp_path / "mine.json").read_text() == "mine"


def test_compare_takes_a_scenario(argosy: Argosy, tiny: str) -> None:
    answer = argosy("compare", "--scenario", tiny, "-p", "fifo,las", "--baseline", "las", "-j", "1", "-o", "json")
    found = json.loads(answer.out)
    assert [policy["name"] for policy in found["policies"]] == ["fifo", "las:quantum_s=120"]
    assert found["baseline"] == "las:quantum_s=120"
    assert found["trace"] == "tiny-seed0"
    assert found["cluster"]["gpus"] == 8


@pytest.mark.parametrize(
    "option", ["--cluster small", "--like philly", "--load 1", "--jobs 3", "--drifting", "--min-run-s 5"]
)
def test_a_scenario_can_not_be_changed(argosy: Argosy, tiny: str, option: str) -> None:
    answer = argosy("compare", "--scenario", tiny, "-p", "fifo", *option.split())
    assert answer.code == 2
    assert f"already fixes what {option.split()[0]} sets" in answer.err


def test_compare_needs_a_cluster(argosy: Argosy) -> None:
    answer = argosy("compare", "--like", "philly", "-p", "fifo")
    assert answer.code == 2
    assert "no cluster is named" in answer.err and "--cluster small" in answer.err


def test_all_stands_for_every_policy(argosy: Argosy, tiny: str) -> None:
    from argosy.cli.compare import parse_policies
    from argosy.policies.base import POLICIES

    names = parse_policies("all")
    assert sorted(names) == list(POLICIES) and names[0] == "fifo"
    assert parse_policies("las, all,drf:slot_s=9")[:3] == ["las", "drf:slot_s=9", "fifo"]
    assert parse_policies("las,all").count("las") == 1


def test_the_table_cuts_no_figure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file it is as wide as it must be; a narrow terminal shows fewer scenarios, and the others are named."""
    names = [f"scenario{number}" for number in range(12)]
    scenario = read_scenario("mixed", quick=True)
    season = Season(tuple(replace(scenario, name=name) for name in names), ("fifo",), (0,))
    found = League(season, tuple(Score(Match(name, "fifo", 0), {"jct_mean_s": 1.0}) for name in names))
    show(found)
    text = capsys.readouterr().out
    assert "…" not in text and "no room" not in text and all(name in text for name in names)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    show(found)
    text = capsys.readouterr().out
    assert "…" not in text and "no room for" in text and "scenario11:" in text
