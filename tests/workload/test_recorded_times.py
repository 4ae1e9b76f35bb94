"""Importers keep when jobs really started and ended; jobs that were requeued are one job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from argosy.errors import InputError, TraceError
from argosy.workload.importers import get_importer
from argosy.workload.trace import Job, Trace, attempts_text, read_attempts

HEAD = "JobID|User|JobName|Submit|Start|End|Elapsed|State|AllocTRES\n"


def day(clock: str) -> str:
    return f"2024-01-01T{clock}:00"


def row(job: int, submit: str, start: str, end: str, elapsed: str, state: str, user: str = "ann", gpus: int = 4) -> str:
    times = "|".join(day(t) if ":" in t else t for t in (submit, start, end))
    return f"{job}|{user}|train|{times}|{elapsed}|{state}|gres/gpu={gpus}\n"


def sacct(tmp_path: Path, *rows: str) -> list[dict[str, Any]]:
    path = tmp_path / "jobs.txt"
    path.write_text(HEAD + "".join(rows))
    return get_importer("sacct").run([path], on_error="fail").trace.frame.rows(named=True)


def csv(tmp_path: Path, text: str, **options: Any) -> list[dict[str, Any]]:
    path = tmp_path / "log.csv"
    path.write_text(text)
    return get_importer("csv").run([path], on_error="fail", **options).trace.frame.rows(named=True)


def ran(job: dict[str, Any]) -> tuple[Any, ...]:
    return job["submit_s"], job["start_s"], job["end_s"], job["duration_s"], job["attempts"]


def test_a_requeued_slurm_job_is_one_job_with_its_attempts(tmp_path: Path) -> None:
    jobs = sacct(
        tmp_path,
        row(1, "00:00", "00:10", "01:10", "01:00:00", "PREEMPTED"),
        row(2, "00:05", "00:05", "06:05", "06:00:00", "COMPLETED", gpus=2),
        row(1, "01:10", "02:00", "03:00", "01:00:00", "NODE_FAIL"),
        row(1, "03:00", "04:00", "06:00", "02:00:00", "COMPLETED"),
    )
    first, second = jobs
    assert ran(first) == (0.0, 600.0, 21_600.0, 14_400.0, "0-3600 6600-10200 13800-21000")
    assert (first["job_id"], first["status"], first["gpus"]) == ("1", "completed", 4.0)
    assert ran(second) == (300.0, 300.0, 21_900.0, 21_600.0, None)


def test_the_same_number_of_another_user_is_another_job(tmp_path: Path) -> None:
    rows = [row(1, "00:00", "00:10", "01:10", "01:00:00", "COMPLETED", user) for user in ("ann", "bob")]
    with pytest.raises(TraceError, match="duplicate job_id 1"):
        sacct(tmp_path, *rows)


def test_a_slurm_job_that_still_runs_has_run_until_now(tmp_path: Path) -> None:
    (job,) = sacct(tmp_path, row(1, "00:00", "00:10", "Unknown", "01:00:00", "RUNNING"))
    assert ran(job) == (0.0, 600.0, 4_200.0, 3_600.0, None)


def test_a_suspended_slurm_job_keeps_its_place_until_it_ends(tmp_path: Path) -> None:
    (job,) = sacct(tmp_path, row(1, "00:00", "00:10", "02:10", "01:00:00", "COMPLETED"))
    assert ran(job) == (0.0, 600.0, 7_800.0, 3_600.0, None)


@pytest.mark.parametrize("name", ["created,started,finished", "Submitted_at,start_time,END", "submit_s,start_s,end_s"])
def test_a_table_with_created_started_finished(tmp_path: Path, name: str) -> None:
    text = f"id,{name},gpus\na,2024-01-31 08:00,2024-01-31 08:30,2024-01-31 10:00,2\n"
    (job,) = csv(tmp_path, text)
    assert ran(job) == (0.0, 1_800.0, 7_200.0, 5_400.0, None)


def test_jobs_that_never_started_are_left_out(tmp_path: Path) -> None:
    text = "id,created,started,finished,gpus\na,0,5,9,1\nb,1,,,1\nc,2,8,,1\n"
    jobs = csv(tmp_path, text)
    assert [job["job_id"] for job in jobs] == ["a"]


def test_units_delimiters_and_formats_of_time(tmp_path: Path) -> None:
    (job,) = csv(tmp_path, "id;submitted;duration;gpus\na;10;90;1\n", unit="min", delimiter=";")
    assert job["duration_s"] == 5_400.0
    (job,) = csv(tmp_path, "id\tsubmitted\telapsed\tgpus\na\t1700000000000\t5000\t1\n", unit="ms", delimiter="tab")
    assert job["duration_s"] == 5.0
    text = "id|created|started|finished|gpus\na|02/01/2024 10:00|02/01/2024 11:00|03/01/2024 11:00|1\n"
    (job,) = csv(tmp_path, text, delimiter="|", time_format="%d/%m/%Y %H:%M")
    assert ran(job) == (0.0, 3_600.0, 90_000.0, 86_400.0, None)
    (job,) = csv(tmp_path, "id,created,duration,gpus\na,31.01.2024 10:00,1-02:00:30,1\n")
    assert job["duration_s"] == 93_630.0


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("id,created,started,finished,gpus\na,03/04/2024,1,2,1\n", {}, "submit_s is not a time: '03/04/2024'"),
        ("id,created,started,finished,gpus\na,10,5,9,1\n", {}, "start_s 5.0 lies before submit_s 10.0"),
        ("id,created,started,finished,gpus\na,0,5,4,1\n", {}, "duration_s must be ≥ 0, is -1.0"),
        ("id,created,gpus\na,0,1\n", {}, "nor both 'start_s' and 'end_s'"),
        (
            "job_id,submit_s,duration_s,gpus,saves\na,0,1,1,often\n",
            {},
            "saves must be none, step or interval, is often",
        ),
        ("job_id,submit_s,duration_s,gpus,attempts\na,0,1,1,5\n", {}, "attempts must be like '0-600 900-4000', is 5"),
    ],
)
def test_times_that_cannot_be(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        csv(tmp_path, text, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("options", [{"unit": "week"}, {"delimiter": "ab"}, {"delimiter": '"'}])
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        csv(tmp_path, "id,created,duration,gpus\na,0,1,1\n", **options)


def test_attempts_as_text() -> None:
    assert attempts_text(10.0, [(10.0, 20.5), (30.0, 40.0)]) == "0-10.5 20-30"
    assert read_attempts("0-10.5 20-30") == [(0.0, 10.5), (20.0, 30.0)]
    assert attempts_text(10.0, [(10.0, 20.0)]) is None
    assert attempts_text(10.0, [(10.0, 20.0), (15.0, 30.0)]) is None  # they overlap


def test_windows_keep_the_past_and_other_loads_forget_it() -> None:
    trace = Trace.of_jobs([Job("a", 0.0, 5.0, 1), Job("b", 100.0, 5.0, 1, start_s=110.0, end_s=115.0)])
    later = trace.window(50.0, 200.0).frame.row(0, named=True)
    assert (later["submit_s"], later["start_s"], later["end_s"]) == (50.0, 60.0, 65.0)
    assert trace.at_load(2.0).frame["start_s"].null_count() == 2
