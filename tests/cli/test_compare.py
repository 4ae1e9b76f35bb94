from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Argosy

from argosy.cli.compare import parse_policies, parse_sweep
from argosy.errors import InputError


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        (None, None),
        ("load=0.6..1.4", [0.6, 0.8, 1.0, 1.2, 1.4]),
        ("load=0.5..1:3", [0.5, 0.75, 1.0]),
        ("load=1.2,0.6,0.6", [0.6, 1.2]),
    ],
)
def test_sweeps(text: str | None, loads: list[float]) -> None:
    assert parse_sweep([text] if text else None) == ({"load": loads} if loads else {})


@pytest.mark.parametrize("text", ["load", "load=a..b", "load=0..1", "load=-1", "load=1..2:1", "load=nan"])
def test_wrong_sweeps(text: str) -> None:
    with pytest.raises(InputError, match="sweep") as caught:
        parse_sweep([text])
    assert "load=0.6..1.4" in str(caught.value)


def test_lists_of_policies() -> None:
    assert parse_policies(" fifo, las:quantum_s=60 ,") == ["fifo", "las:quantum_s=60"]
    with pytest.raises(InputError, match="'fifo' is named twice"):
        parse_policies("fifo,srtf,fifo")
    with pytest.raises(InputError, match="no policy in ','"):
        parse_policies(",")


def test_table_report_and_json(argosy: Argosy, trace: Path, tmp_path: Path) -> None:
    report, figures = tmp_path / "out" / "report.html", tmp_path / "out" / "report.json"
    arguments = ["-t", trace, "-c", "small", "-p", "fifo,srtf", "--report", report, "--json", figures]
    answer = argosy("compare", *arguments, "--sweep", "load=0.5,1", "-j", "1")
    assert answer.code == 0
    assert "fifo" in answer.out and "srtf ★" in answer.out and "JCT mean" in answer.out
    assert "by offered load" in answer.out
    assert f"report: {report}" in answer.err and f"figures: {figures}" in answer.err
    found = json.loads(figures.read_text())
    assert [policy["name"] for policy in found["policies"]] == ["fifo", "srtf"]
    assert found["baseline"] == "fifo"
    assert [(p["load"], p["policy"]) for p in found["sweep"]] == [
        (0.5, "fifo"),
        (0.5, "srtf"),
        (1.0, "fifo"),
        (1.0, "srtf"),
    ]
    assert found["command"].startswith("argosy compare -t ")
    assert "<title>fifo, srtf" in report.read_text()


def test_parameters_make_different_policies(argosy: Argosy, trace: Path) -> None:
    names = ["las:quantum_s=60", "las:quantum_s=900"]
    arguments = ["-t", trace, "-c", "small", "-p", ",".join(names), "--baseline", names[1], "-o", "json"]
    found = json.loads(argosy("compare", *arguments, "-j", "1").out)
    assert [policy["name"] for policy in found["policies"]] == names
    assert found["baseline"] == names[1]


def test_seeds_that_change_nothing_are_not_run(argosy: Argosy, trace: Path) -> None:
    answer = argosy("compare", "-t", trace, "-c", "small", "-p", "fifo,srtf", "--seeds", "3", "-o", "json")
    assert json.loads(answer.out)["seeds"] == [0]
    assert "nothing is random" in answer.err and "running only seed 0" in answer.err


@pytest.mark.parametrize(
    "more",
    [
        ["-p", "random"],
        ["-p", "fifo", "--placer", "random"],
        ["-p", "srtf", "--estimator", "noisy:0.5"],
        ["-p", "fifo", "--drifting"],
    ],
)
def test_seeds_that_may_change_something_are_run(argosy: Argosy, trace: Path, more: list[str]) -> None:
    answer = argosy("compare", "-t", trace, "-c", "small", "--seeds", "2", "-j", "1", "-o", "json", *more)
    assert json.loads(answer.out)["seeds"] == [0, 1]
    assert answer.err == ""


def test_seeds_make_other_jobs_when_generating(argosy: Argosy) -> None:
    arguments = ["--like", "philly", "--jobs", "30", "--load", "0.8", "-c", "small", "-p", "fifo", "-j", "1"]
    found = json.loads(argosy("compare", *arguments, "--seed", "4", "--seeds", "2", "-o", "json").out)
    assert [run["trace"] for run in found["policies"][0]["runs"]] == ["philly-30-seed4", "philly-30-seed5"]


def test_processes_give_the_same_as_one(argosy: Argosy) -> None:
    arguments = ["--like", "philly", "--jobs", "60", "--load", "1", "-c", "small", "-p", "fifo,srtf"]
    alone, together = (json.loads(argosy("compare", *arguments, "-o", "json", "-j", n).out) for n in ("1", "2"))
    for found in (alone, together):
        for policy in found["policies"]:
            for run in policy["runs"]:
                del run["cpu_s"]
                run["metrics"] = {k: v for k, v in run["metrics"].items() if not k.startswith("decision_")}
    assert [p["runs"] for p in alone["policies"]] == [p["runs"] for p in together["policies"]]


def test_a_failing_policy_does_not_stop_the_others(
    argosy: Argosy, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object, view: object) -> None:
        raise ZeroDivisionError("rank by zero")

    monkeypatch.setattr("argosy.policies.las.Las.rank", broken)
    figures = tmp_path / "out.json"
    answer = argosy("compare", "-t", trace, "-c", "small", "-p", "fifo,las", "-j", "1", "--json", figures)
    assert answer.code == 1
    assert "error: las (seed 0): ZeroDivisionError: rank by zero\n" in answer.err
    assert answer.err.endswith("1 of 2 runs failed\n")
    assert "fifo" in answer.out
    assert [policy["name"] for policy in json.loads(figures.read_text())["policies"]] == ["fifo"]


def test_the_window_reaches_results_and_sweep(argosy: Argosy, trace: Path) -> None:
    arguments = ["-t", trace, "-c", "small", "-p", "fifo", "--window", "0..35", "--sweep", "load=0.5,1"]
    found = json.loads(argosy("compare", *arguments, "-j", "1", "-o", "json").out)
    assert found["window_s"] == [0, 35]
    assert found["policies"][0]["runs"][0]["metrics"]["jobs"] == 4
    assert all(point["metrics"]["jobs"] < 6 for point in found["sweep"])


def test_nothing_is_left_to_vary_when_all_jobs_arrive_at_once(argosy: Argosy, tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\na,0,10,1\nb,0,10,1\n")
    answer = argosy("compare", "-t", path, "-c", "small", "-p", "fifo", "--sweep", "load=0.5,1", "-j", "1")
    assert answer.code == 1
    assert "all jobs of 'burst' arrive at once" in answer.err


PAST = "job_id,submit_s,duration_s,gpus,start_s,end_s\na,0,3600,8,60,3660\nb,10,3600,16,3700,7300\n"


def test_the_past_beside_policies(argosy: Argosy, tmp_path: Path) -> None:
    trace = tmp_path / "week.csv"
    trace.write_text(PAST)
    shown = argosy("compare", "-t", trace, "-c", "small", "-p", "actual,fifo", "--seeds", 2)
    assert shown.code == 0, shown.err
    assert "How well the simulation reproduces what happened" in shown.out
    found = json.loads(argosy("compare", "-t", trace, "-c", "small", "-p", "actual,fifo", "-o", "json").out)
    assert found["reproduction"][0]["policy"] == "fifo"
    assert found["policies"][0]["aggregate"]["first_wait_mean_s"]["mean"] == (60 + 3690) / 2
    swept = argosy("compare", "-t", trace, "-c", "small", "-p", "actual,fifo", "--sweep", "load=0.5,1")
    assert swept.code == 0, swept.err


def test_a_trace_without_a_past(argosy: Argosy, tmp_path: Path) -> None:
    trace = tmp_path / "week.csv"
    trace.write_text("job_id,submit_s,duration_s,gpus\na,0,3600,8\n")
    alone = argosy("compare", "-t", trace, "-c", "small", "-p", "actual")
    assert alone.code == 2
    assert "does not say when jobs really started" in alone.err
    assert argosy("simulate", "-t", trace, "-c", "small", "-p", "actual", "--why", "a").code == 2
    scenario = argosy("compare", "--scenario", "philly-rigid", "-p", "actual,fifo")
    assert scenario.code == 2
    assert "a scenario has no past" in scenario.err
