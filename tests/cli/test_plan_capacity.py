from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Argosy

ROWS = "".join(f"j{i},{300 * (i // 8)},3000,4\n" for i in range(48))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "week.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\n" + ROWS)
    return path


def test_a_plan_and_its_picture(argosy: Argosy, trace: Path, tmp_path: Path) -> None:
    ask = ("plan-capacity", "-t", trace, "-c", "small", "--vary", "nodes=4..64:4", "--draws", 1)
    shown = argosy(*ask, "--target", "wait.p90 < 10m", "--picture", tmp_path / "curve.png")
    assert shown.code == 0, shown.err
    assert "meet wait.p90 < 10m under fifo-backfill" in shown.out
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(argosy(*ask, "--target", "wait.p90 < 10m", "-o", "json").out)
    assert found["smallest"] == max(point["value"] for point in found["points"] if not point["met"]) + 4
    never = argosy(*ask, "--target", "jct.mean < 1m")
    assert never.code == 1
    assert "No size tried meets jct.mean < 1m" in never.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--vary", "nodes=4..8:2", "--target", "wait < 5m"), "metric 'wait'"),
        (("--vary", "nodes", "--target", "wait.p90 < 5m"), "is not NAME=A..B:STEP"),
        (("--vary", "h900=4..8:2", "--target", "wait.p90 < 5m"), "'h900' cannot be varied here"),
        (("--vary", "load=1..2", "--target", "wait.p90 < 5m"), "in nodes or GPUs"),
        (("--vary", "v100=6..10:2", "--target", "wait.p90 < 5m"), "give a multiple of 4"),
    ],
)
def test_wrong_questions(argosy: Argosy, trace: Path, options: tuple[str, ...], message: str) -> None:
    answer = argosy("plan-capacity", "-t", trace, "-c", "small", *options)
    assert answer.code == 2
    assert message in answer.err


def test_a_sweep_of_two_things_is_a_heat_map(argosy: Argosy, trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ask = (
        "compare",
        "-t",
        trace,
        "-c",
        "small",
        "-p",
        "fifo,las",
        "--sweep",
        "nodes=4,8",
        "--sweep",
        "min_run_s=0,600",
    )
    answer = argosy(*ask, "--report", page, "-o", "json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)["sweep"]
    assert [(point["nodes"], point["min_run_s"]) for point in found[::2]] == [(4, 0), (4, 600), (8, 0), (8, 600)]
    assert "What if: nodes and min_run_s" in page.read_text()
    assert argosy(*ask).out.count("(across)") == 2


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("las.speed=1,2", "cannot use 'speed=1'"),
        ("h100=8..16:8", "cannot be varied here"),
        ("min_run_s=a", "must be a number"),
    ],
)
def test_wrong_sweeps(argosy: Argosy, trace: Path, sweep: str, message: str) -> None:
    answer = argosy("compare", "-t", trace, "-c", "small", "-p", "las", "--sweep", sweep)
    assert answer.code == 2
    assert message in answer.err
