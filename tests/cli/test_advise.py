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


def test_a_past_that_was_better_is_kept(argosy: Argosy, tmp_path: Path) -> None:
    """Starts and moves take time in a simulation, so no policy is as good as this past."""
    path = tmp_path / "log.csv"
    rows = ["1,0,3600,8,ann,0,3600", "2,600,3600,8,bob,600,4200", "3,1200,3600,8,cid,3600,7200"]
    path.write_text("\n".join(["job_id,submit_s,duration_s,gpus,user,start_s,end_s", *rows]) + "\n")
    machines = tmp_path / "cluster.yaml"
    machines.write_text("nodes:\n  - {count: 2, gpu: v100, gpus: 8, price_per_hour: 20, watts: {busy: 300}}\n")
    told = argosy("advise", "-t", path, "-c", machines, "-p", "fifo,tiresias-las", "--draws", 0)
    assert told.code == 0, told.err
    assert told.out.startswith("Keep what you have: no policy here that can be run is better than what happened.")
    assert "Nearest to it: fifo, +" in told.out
    assert " cost " in told.out and " energy " in told.out, "they are known here, so the table shows them"
    found = json.loads(argosy("advise", "-t", path, "-c", machines, "-p", "fifo", "--draws", 0, "-o", "json").out)
    assert (found["advice"]["best"], found["advice"]["nearest"]) == ("actual", "fifo")


def test_jobs_that_arrive_at_once_need_no_draws(argosy: Argosy, tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,user\n" + "".join(f"j{i},0,600,1,u\n" for i in range(9)))
    few = ("advise", "-t", path, "-c", "small", "-p", "fifo,srsf")
    refused = argosy(*few)
    assert refused.code == 2 and "--draws 0" in refused.err
    assert argosy(*few, "--draws", 0).code == 0
