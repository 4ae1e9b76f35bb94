"""The free csv format, the registry and `argosy import` itself."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from argosy.cli.import_ import import_trace
from argosy.errors import InputError, TraceError, UnknownName
from argosy.workload.files import read_trace
from argosy.workload.importers import get_importer, importer_names

FORMATS = ["acme", "csv", "gavel", "helios", "pai", "pai2023", "philly", "pollux", "sacct", "tiresias"]
ODD = "id,created,secs,num_gpu,junk\nb,2024-01-31 08:00:10,60,2,x\na,2024-01-31T08:00:00,1.5,0.5,y\n"
MAP = ["--map", "job_id=id", "--map", "submit_s=created", "--map", "duration_s=secs", "--map", "gpus=num_gpu"]

app = typer.Typer()
app.command()(import_trace)


def call(*arguments: object, fails: type[Exception] | None = None) -> str:
    """Return what the command prints on stderr, or the error that it raises."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=True)
    if fails is not None:
        assert isinstance(result.exception, fails), result.output
        return str(result.exception)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    return result.stderr


def write(tmp_path: Path, text: str, name: str = "odd.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_every_format_is_found_and_described() -> None:
    assert importer_names() == FORMATS
    for name in FORMATS:
        found = get_importer(name)
        assert (found.name, bool(found.summary), bool(found.reference)) == (name, True, True)


def test_help_names_every_format_and_needs_no_polars() -> None:
    help_text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).stdout
    assert all(name in help_text for name in FORMATS)
    code = "import sys, argosy.cli.import_; sys.exit('polars' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_format_suggests(tmp_path: Path) -> None:
    message = call("phily", tmp_path / "x", "-o", tmp_path / "o.csv", fails=UnknownName)
    assert "did you mean philly" in message


def test_csv_with_mapping_and_dates(tmp_path: Path) -> None:
    said = call("csv", write(tmp_path, ODD), *MAP, "-o", tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text() == (
        "job_id,submit_s,duration_s,gpus,status\na,0.0,1.5,0.5,completed\nb,10.0,60.0,2.0,completed\n"
    )
    assert "2 jobs over 0.0 hours" in said
    assert "1.25 on average, 2 at most" in said
    assert len(read_trace(tmp_path / "o.csv")) == 2


def test_csv_shifts_seconds_and_deadlines_to_the_first_submission(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,gpus,deadline_s\na,1700000000,5,1,1700000100\nb,1700000007,5,1,\n"
    frame = get_importer("csv").run([write(tmp_path, text)], on_error="fail").trace.frame
    assert frame.select("submit_s", "deadline_s").rows() == [(0.0, 100.0), (7.0, None)]


def test_csv_takes_dates_of_parquet(tmp_path: Path) -> None:
    times = [datetime(2024, 1, 1, 0, 0, 30), datetime(2024, 1, 1)]
    path = tmp_path / "t.parquet"
    pl.DataFrame({"job_id": ["b", "a"], "submit_s": times, "duration_s": [1, 2], "gpus": [1, 1]}).write_parquet(path)
    frame = get_importer("csv").run([path], on_error="fail").trace.frame
    assert frame.select("job_id", "submit_s").rows() == [("a", 0.0), ("b", 30.0)]


def test_csv_still_refuses_negative_times(tmp_path: Path) -> None:
    path = write(tmp_path, "job_id,submit_s,duration_s,gpus\na,-1,5,1\n")
    with pytest.raises(TraceError, match="submit_s must be a time ≥ 0, is -1"):
        get_importer("csv").run([path], on_error="fail")


def test_bad_rows_fail_or_are_skipped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path, ODD + "".join(f"c{i},now,1,1,z\n" for i in range(7)))
    out = write(tmp_path, "precious", "o.csv")
    message = call("csv", path, *MAP, "-o", out, fails=TraceError)
    assert f"{path}:4: submit_s is not a time: 'now'" in message
    assert out.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["o.csv", "odd.csv"]
    said = call("csv", path, *MAP, "-o", out, "--on-error", "skip")
    assert "7 bad rows skipped:" in said
    assert f"{path}:4: submit_s is not a time: 'now'" in said
    assert "… and 2 more" in said
    assert len(read_trace(out)) == 2
    one = write(tmp_path, ODD + "c,now,1,1,z\n")
    assert "  1 bad row skipped:" in call("csv", one, *MAP, "-o", out, "--on-error", "skip")


def test_notes_are_told(tmp_path: Path) -> None:
    path = write(tmp_path, "name,time,application,num_replicas,batch_size\na,0,ncf,1,256\n")
    assert "note: work is in samples" in call("pollux", path, "-o", tmp_path / "o.parquet")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--map", "gpus"], "is not OURS=THEIRS"),
        (["--map", "=x"], "is not OURS=THEIRS"),
        (["--map", "gpus=a", "--map", "gpus=b"], "gives 'gpus' twice"),
        (["--map", "gpuz=num_gpu"], "unknown trace column 'gpuz'"),
        (["--map", "gpus=nun_gpu"], "has no column 'nun_gpu'"),
    ],
)
def test_bad_mappings(tmp_path: Path, arguments: list[str], reason: str) -> None:
    message = call("csv", write(tmp_path, ODD), *arguments, "-o", tmp_path / "o.csv", fails=InputError)
    assert reason in message
    assert "→" in message


def test_mapping_is_only_for_csv(tmp_path: Path) -> None:
    assert "--map is for the format csv" in call(
        "helios", write(tmp_path, ODD), "--map", "gpus=n", "-o", tmp_path / "o.csv", fails=InputError
    )


def test_output_that_can_not_be_written(tmp_path: Path) -> None:
    path = write(tmp_path, ODD)
    assert "cannot be written" in call("csv", path, *MAP, "-o", tmp_path / "none" / "o.csv", fails=InputError)
    assert "unknown kind of trace file" in call("csv", path, *MAP, "-o", tmp_path / "o.txt", fails=InputError)
    assert os.listdir(tmp_path) == ["odd.csv"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_refuses_what_it_is_not(tmp_path: Path, name: str) -> None:
    files = {
        "none": None,
        "empty": b"",
        "garbage": bytes(range(256)),
        "other": b"a;b;c\n1;2;3\n",
        "cut": b"\x1f\x8b\x08",
    }
    for file, content in files.items():
        path = tmp_path / file
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(TraceError) as caught:
            get_importer(name).run([path], on_error="skip")
        assert caught.value.exit_code == 2
        assert caught.value.hint
