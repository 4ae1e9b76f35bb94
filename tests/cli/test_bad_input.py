"""Common mistakes in input: each gives a message with the value and a next step, and exit code 2."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from command_line import Answer, Argosy

HEAD = "job_id,submit_s,duration_s,gpus\n"
GOOD = HEAD + "a,0,10,1\n"


def refused(answer: Answer, *texts: str) -> None:
    """Exit code 2, nothing on stdout, one message with these texts and an arrow to the next step."""
    code, out, err = answer.code, answer.out, answer.err
    assert code == 2, err
    assert out == ""
    assert err.startswith("error: ")
    assert "\n  → " in err
    assert "Traceback" not in err
    for text in texts:
        assert text in err


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        ("a,-1,10,1\n", ["jobs.csv:2", "submit_s must be a time ≥ 0", "-1"]),
        ("a,0,-10,1\n", ["jobs.csv:2", "duration_s must be ≥ 0", "-10"]),
        ("a,,10,1\n", ["jobs.csv:2", "submit_s is missing"]),
        ("a,0,,1\n", ["jobs.csv:2", "neither duration_s nor work"]),
        ("a,0,nan,1\n", ["jobs.csv:2", "duration_s", "NaN"]),
        ("a,0,10,0\n", ["jobs.csv:2", "asks for nothing"]),
        ("a,0,10,1\nb,0,10,1\na,0,10,1\n", ["jobs.csv:4", "duplicate job_id a"]),
        ("a,0,10,17\n", ["job 'a' asks for 17 GPUs", "16 GPUs", "--oversized skip"]),
        ("a,0,ten,1\n", ["jobs.csv:2", "ten"]),
        ("", ["jobs.csv", "no rows"]),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_traces(argosy: Argosy, tmp_path: Path, command: str, rows: str, texts: list[str]) -> None:
    (tmp_path / "jobs.csv").write_text(HEAD + rows)
    report = tmp_path / "report.html"
    report.write_text("mine")
    policies = {"simulate": "fifo", "compare": "fifo,las"}[command]
    workers = ["-j", "1"] if command == "compare" else []
    arguments = ["-t", "jobs.csv", "-c", "small", "-p", policies, "--report", report, *workers]
    refused(argosy(command, *arguments), *texts)
    assert report.read_text() == "mine"


def test_cpu_jobs_are_fine(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,duration_s,gpus,cpus\na,0,10,0,4\n")
    assert argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "fifo").code == 0


def test_oversized_jobs_can_be_skipped_and_are_counted(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(GOOD + "b,0,10,17\n")
    answer = argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "fifo", "--oversized", "skip")
    assert answer.code == 0
    assert "refused" in answer.out


def test_bad_rows_name_the_command_that_leaves_them_out(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(GOOD + "b,-1,10,1\n")
    answer = argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "fifo")
    command = answer.err.partition(": argosy ")[2].split()
    assert command == ["import", "csv", "jobs.csv", "-o", "clean.csv", "--on-error", "skip"]
    assert argosy(*command).code == 0
    assert argosy("simulate", "-t", "clean.csv", "-c", "small", "-p", "fifo").code == 0


def test_an_unknown_gpu_type(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,duration_s,gpus,gpu_type\na,0,10,1,h900\n")
    refused(argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "fifo"), "'h900'", "v100")


def test_a_truncated_gzip(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv.gz").write_bytes(gzip.compress(GOOD.encode())[:-12])
    answer = argosy("simulate", "-t", "jobs.csv.gz", "-c", "small", "-p", "fifo")
    refused(answer, "jobs.csv.gz", "gzip data is cut off or damaged")


def test_an_endless_line(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(GOOD + "b," + "7" * 3_000_000 + ",10,1\n")
    answer = argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "fifo")
    refused(answer, "jobs.csv:3", "a line is longer than")


def test_an_empty_file(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").touch()
    refused(argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "fifo"), "jobs.csv", "empty")


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["-t", "no.csv", "-c", "small", "-p", "fifo"], ["no.csv", "no such file"]),
        (["-t", "jobs.csv", "-c", "smal", "-p", "fifo"], ["'smal'", "did you mean small?"]),
        (["-t", "jobs.csv", "-c", "empty.yaml", "-p", "fifo"], ["empty.yaml", "the cluster has no nodes"]),
        (["-t", "jobs.csv", "-c", "small", "-p", "fiffo"], ["unknown policy 'fiffo'", "did you mean fifo"]),
        (["-t", "jobs.csv", "-c", "small", "-p", "las:quantum=3"], ["'quantum=3'", "quantum_s=600.0"]),
        (["-c", "small", "-p", "fifo"], ["neither --trace nor --like"]),
        (["-t", "jobs.csv", "--like", "philly", "-c", "small", "-p", "fifo"], ["both --trace and --like"]),
        (["-t", "jobs.csv", "--load", "2", "-c", "small", "-p", "fifo"], ["--load 2", "--sweep"]),
        (["--like", "filly", "-c", "small", "-p", "fifo"], ["'filly'", "did you mean philly?"]),
        (["-t", "jobs.csv", "-c", "small", "-p", "fifo", "--estimator", "magic"], ["estimator 'magic'"]),
        (["-t", "jobs.csv", "-c", "small", "-p", "fifo", "--window", "3d"], ["'3d'", "FROM..TO"]),
        (["-t", "jobs.csv", "-c", "small", "-p", "fifo", "--window", "3d..1d"], ["'3d..1d' is empty"]),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_wrong_wishes(argosy: Argosy, tmp_path: Path, command: str, arguments: list[str], texts: list[str]) -> None:
    (tmp_path / "jobs.csv").write_text(GOOD)
    (tmp_path / "empty.yaml").write_text("nodes: []\n")
    refused(argosy(command, *arguments), *texts)


@pytest.mark.parametrize("option", ["--seed -1", "--seeds 0", "--workers -2"])
def test_numbers_that_are_too_small(argosy: Argosy, tmp_path: Path, option: str) -> None:
    (tmp_path / "jobs.csv").write_text(GOOD)
    answer = argosy("compare", "-t", "jobs.csv", "-c", "small", "-p", "fifo", *option.split())
    refused(answer, f"{option} is too small")


def test_an_unknown_baseline(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(GOOD)
    answer = argosy("compare", "-t", "jobs.csv", "-c", "small", "-p", "fifo,las", "--baseline", "lass")
    refused(answer, "baseline 'lass'", "did you mean las?")


@pytest.mark.parametrize(
    ("command", "option"),
    [("simulate", "--report"), ("simulate", "--log"), ("compare", "--report"), ("compare", "--json")],
)
@pytest.mark.parametrize("path", ["jobs.csv/out.html", "folder"])
def test_outputs_are_tried_before_simulating(
    argosy: Argosy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, option: str, path: str
) -> None:
    (tmp_path / "jobs.csv").write_text(GOOD)
    (tmp_path / "folder").mkdir()

    def too_late(*arguments: object, **more: object) -> None:
        raise AssertionError("the simulation has begun")

    monkeypatch.setattr("argosy.sim.engine.Engine.__init__", too_late)
    answer = argosy(command, "-t", "jobs.csv", "-c", "small", "-p", "fifo", option, path)
    refused(answer, path, "cannot be written")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "jobs.csv"]


def test_trying_an_output_leaves_it_as_it_was(argosy: Argosy, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(HEAD + "a,0,10,17\n")
    (tmp_path / "kept.html").write_text("mine")
    answer = argosy("simulate", "-t", "jobs.csv", "-c", "small", "-p", "fifo", "--report", "kept.html")
    assert answer.code == 2
    assert (tmp_path / "kept.html").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["jobs.csv", "kept.html"]
