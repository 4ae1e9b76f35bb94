"""Absurd numbers in options: each is refused with the value and a next step, or is taken literally."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from command_line import Argosy

LIKE = ("--like", "philly", "-c", "small")
HEAD = "job_id,submit_s,duration_s,gpus\n"


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("--jobs 100000000000", ["100,000,000,000 jobs need about 37,252 GiB of memory", "ask for at most"]),
        (f"--jobs {10**40}", ["jobs need about"]),
        ("--jobs 50 --days 1e308", ["would arrive over 1e+308 days, more than 36,525", "fewer days"]),
        ("--jobs 50 --days 100000000000", ["would arrive over 1e+11 days"]),
        ("--jobs 50 --gpus 64 --load 1e-300", ["days, more than 36,525", "a larger load"]),
        ("--jobs 50 --days nan", ["days must be a number above 0, is nan"]),
        ("--jobs 50 --gpus inf", ["gpus must be a number above 0, is inf"]),
    ],
)
def test_generated_jobs(argosy: Argosy, tmp_path: Path, words: str, texts: list[str]) -> None:
    answer = argosy("generate", "--like", "philly", "-o", "x.csv", *words.split())
    assert answer.code == 2 and answer.err.startswith("error: ")
    for text in texts:
        assert text in answer.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["simulate", "compare"])
@pytest.mark.parametrize("words", ["--jobs 100000000000", "--days 1e18", "--load 1e-300"])
def test_generated_jobs_that_are_simulated(argosy: Argosy, command: str, words: str) -> None:
    jobs = [] if "--jobs" in words else ["--jobs", "20"]
    answer = argosy(command, *LIKE, *jobs, "-p", "fifo", *words.split())
    assert answer.code == 2 and "\n  → " in answer.err


@pytest.mark.parametrize("option", ["--seed", "--max-preemptions", "--max-retries"])
def test_whole_numbers_that_are_too_large(argosy: Argosy, option: str) -> None:
    answer = argosy("simulate", *LIKE, "--jobs", "20", "-p", "fifo", option, str(10**19))
    assert answer.code == 2
    assert f"{option.removeprefix('--').replace('-', '_')} must be ≤ {2**62}, is {10**19}" in answer.err


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("b,1e18,10,1,,", "submit_s"),
        ("b,0,1e18,1,,", "duration_s"),
        ("b,0,1,1,1e18,", "deadline_s"),
        ("b,0,1,1,,1e300", "expected_s"),
        ("b,1700000000000,10,1,,", "submit_s"),
    ],
)
def test_times_beyond_all_clocks(argosy: Argosy, tmp_path: Path, row: str, column: str) -> None:
    (tmp_path / "jobs.csv").write_text(f"{HEAD.strip()},deadline_s,expected_s\na,0,10,1,,\n{row}\n")
    answer = argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "fifo")
    assert answer.code == 2
    assert f"jobs.csv:3: {column} is beyond 1e+12 s (in milliseconds?), is " in answer.err


@pytest.mark.parametrize(
    ("column", "value", "most"),
    [("gpus", "1e308", "1e+09"), ("max_gpus", "1e308", "1e+09"), ("weight", "1e99", "1e+09"), ("ps", "99999", "10000")],
)
def test_amounts_beyond_all_clusters(argosy: Argosy, tmp_path: Path, column: str, value: str, most: str) -> None:
    row = {"job_id": "a", "submit_s": "0", "duration_s": "10", "gpus": "1", column: value}
    (tmp_path / "jobs.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    answer = argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "fifo")
    assert answer.code == 2
    assert f"jobs.csv:2: {column} must be ≤ {most}, is " in answer.err


def test_the_longest_times_are_simulated_without_a_warning(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(HEAD + "a,1e12,10,1\nb,1e12,1e12,1\nc,0,1e-9,1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "srtf")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_other_separators_are_recognised(argosy: Argosy, tmp_path: Path, mark: str, word: str) -> None:
    (tmp_path / "jobs.csv").write_text((HEAD + "a,0,10,1\n").replace(",", mark))
    for words in ("simulate -t jobs.csv -c small -p fifo", "import csv jobs.csv -o x.csv"):
        answer = argosy(*words.split())
        assert answer.code == 2
        assert f"jobs.csv:1: its columns are separated by {word}, not by commas" in answer.err
        assert "save it with commas" in answer.err


@pytest.mark.parametrize("words", ["--seeds 100000000000", "--workers 100000"])
@pytest.mark.parametrize(
    "command", ["compare --like philly -c small -p fifo --jobs 9", "league --quick -p fifo", "grow study"]
)
def test_more_than_a_machine_can_serve(argosy: Argosy, command: str, words: str) -> None:
    answer = argosy(*command.split(), *words.split())
    assert answer.code == 2 and f"{words} is too large\n  → give " in answer.err


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("grow table", "--width 100000000000"),
        ("grow table", "--size 10000000000000000000"),
        ("grow table", "--decisions 100000000000"),
        ("grow table", "--runs 100000000000"),
        ("grow table", "--seed -1"),
        ("grow demo", "--seed 10000000000000000000"),
        ("grow train -t none", "--seed -1"),
    ],
)
def test_growth(argosy: Argosy, command: str, option: str) -> None:
    answer = argosy(*command.split(), *option.split())
    assert answer.code == 2 and f"error: {option} is too " in answer.err


def test_memory_that_is_not_there(argosy: Argosy, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy() -> None:
        raise MemoryError("Unable to allocate 62.1 GiB")

    monkeypatch.setattr("argosy.cli.policies.known", greedy)
    answer = argosy("policies")
    assert answer.code == 1
    assert answer.err.startswith("error: there is not enough memory: Unable to allocate 62.1 GiB\n  → ")
