"""Philly's JSON log, by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from argosy.errors import TraceError
from argosy.workload.importers import get_importer

read = get_importer("philly").run


def attempt(start: str | None, end: str | None, *servers: int) -> dict[str, Any]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(n)]} for i, n in enumerate(servers)]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(name: str, *attempts: dict[str, Any], **other: Any) -> dict[str, Any]:
    given = {"status": "Pass", "vc": "ee9e8c", "jobid": name, "attempts": list(attempts)}
    return given | {"submitted_time": "2017-10-07 01:11:39", "user": "ce2f4c"} | other


def write(tmp_path: Path, *jobs: object) -> Path:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(list(jobs), indent=4))
    return path


GOOD = attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8)


def test_every_field(tmp_path: Path) -> None:
    two = job(
        "application_1506638472019_14199",
        GOOD,  # 74 s
        attempt("2017-10-07 01:13:30", "2017-10-09 06:53:12", 8, 8),  # 2 d 5:39:42 = 193,182 s
    )
    later = job("application_2", attempt("2017-10-07 03:00:00", "2017-10-07 03:00:10", 2), status="Killed")
    later |= {"submitted_time": "2017-10-07 01:12:00", "user": None, "vc": "b436b2"}
    report = read([write(tmp_path, later, two)], on_error="fail")
    assert report.trace.name == "cluster_job_log"
    assert report.skipped == []
    assert report.notes == []
    first, second = report.trace.frame.rows(named=True)
    assert {k: v for k, v in first.items() if v is not None} == {
        "job_id": "application_1506638472019_14199",
        "submit_s": 0.0,
        "duration_s": 193_256.0,
        "gpus": 8.0,
        "user": "ce2f4c",
        "queue": "ee9e8c",
        "status": "completed",
        "start_s": 30.0,
        "end_s": 193_293.0,
        "attempts": "0-74 81-193263",
    }
    assert {k: v for k, v in second.items() if v is not None} == {
        "job_id": "application_2",
        "submit_s": 21.0,
        "duration_s": 10.0,
        "gpus": 2.0,
        "queue": "b436b2",
        "status": "killed",
        "start_s": 6_501.0,
        "end_s": 6_511.0,
    }


def test_what_is_no_finished_job_is_left_out_and_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        job("ok", GOOD),
        job("never"),
        job("never2"),
        job("still", GOOD, attempt("2017-10-07 02:00:00", None, 8)),
        job("half", attempt("None", "2017-10-07 02:00:00", 8)),
        job("bare", attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23")),
    )
    report = read([path], on_error="fail")
    assert report.trace.frame["job_id"].to_list() == ["ok"]
    assert report.notes == [
        "2 jobs left out: no scheduling attempt was recorded",
        "1 jobs left out: it had not ended when the log was written",
        "1 jobs left out: no attempt has both a start and an end",
        "1 jobs left out: no GPUs were recorded",
    ]


def test_an_attempt_without_times_in_the_middle_adds_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, job("a", attempt(None, None, 4), GOOD))
    assert read([path], on_error="fail").trace.frame.select("duration_s", "gpus").row(0) == (74.0, 4.0)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            job("x", attempt("2017-10-07 02:00:00", "2017-10-07 01:00:00", 1)),
            "an attempt ends 3600 s before it starts",
        ),
        (job("x", attempt("yesterday", "2017-10-07 01:00:00", 1)), "start_time is not a time: 'yesterday'"),
        (job("x", GOOD, submitted_time=None), "submitted_time is missing"),
        (job("x", GOOD, status="Odd"), "status is not a known status: 'Odd'"),
        (job("x", GOOD) | {"attempts": None}, "attempts is not a list of attempts"),
        (job("x", {**GOOD, "detail": [{"ip": "m1"}]}), "detail is not a list of servers with their gpus"),
        (job("x", GOOD) | {"jobid": None}, "jobid is missing"),
        (job("ok", GOOD), "duplicate job_id ok"),
        ("text", "is not a job: 'text'"),
    ],
)
def test_bad_jobs_with_their_line(tmp_path: Path, bad: object, reason: str) -> None:
    path = write(tmp_path, job("ok", GOOD), bad, job("last", GOOD))
    with pytest.raises(TraceError, match="cluster_job_log:") as caught:
        read([path], on_error="fail")
    assert caught.value.what == reason
    report = read([path], on_error="skip")
    assert report.trace.frame["job_id"].to_list() == ["ok", "last"]
    assert [why for _, why in report.skipped] == [reason]


def test_the_line_is_that_of_the_job_id(tmp_path: Path) -> None:
    path = write(tmp_path, job("ok", GOOD), job("bad", GOOD, status="Odd"))
    with pytest.raises(TraceError) as caught:
        read([path], on_error="fail")
    line = int(str(caught.value.where).rsplit(":", 1)[1])
    assert '"jobid": "bad"' in path.read_text().splitlines()[line - 1]


def test_one_line_and_gzip_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "log.json.gz"
    path.write_bytes(gzip.compress(json.dumps([job(f"j{i}", GOOD) for i in range(5000)]).encode()))
    assert len(read([path], on_error="fail").trace) == 5000  # about 2 MB without a line break


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"jobid": "a",\n "sta', "not valid JSON"),
        ("", "empty"),
        ('{"jobid": "a"}', "not an array"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "no rows"),
        ("\0\1\2", "zero bytes"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=reason) as caught:
        read([path], on_error="skip")
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_bad_json_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text('[{"jobid": "a",\n "sta')
    with pytest.raises(TraceError) as caught:
        read([path], on_error="fail")
    assert caught.value.where == f"{path}:2"
