from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Argosy

ROWS = "".join(f"j{i},{300 * i},{2000 if i % 7 else 20000},{1 + 3 * (i % 3 == 0)},u{i % 3}\n" for i in range(60))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "week.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,user\n" + ROWS)
    return path


def test_advice_for_a_trace(argosy: Argosy, trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    few = ("-t", trace, "-c", "small", "-p", "fifo,tiresias-las", "--draws", 1)
    shown = argosy("advise", *few, "--report", page)
    assert shown.code == 0, shown.err
    assert shown.out.startswith(("Best policy that can be run: tiresias-las", "Keep fifo"))
    assert "srtf ★" in shown.out
    assert "Best policy that can be run" in page.read_text() or "Keep fifo" in page.read_text()
    found = json.loads(argosy("advise", *few, "-o", "json").out)
    assert found["advice"]["baseline"] == "fifo"
    assert found["seeds"] == [0, 1]
    assert found["policies"][0]["runs"][0]["settings"]["estimator"] == "history"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--baseline", "actual"), "does not say when jobs really started"),
        (("-p", "fifo,nothing"), "nothing"),
        (("--draws", "-1"), "--draws -1 is too small"),
        (("-p", "fifo", "--baseline", "las"), "baseline 'las'"),
    ],
)
def test_wrong_questions(argosy: Argosy, trace: Path, options: tuple[str, ...], message: str) -> None:
    answer = argosy("advise", "-t", trace, "-c", "small", *options)
    assert answer.code == 2
    assert message in answer.err
