"""`argosy generate` as a function of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from argosy.cli.generate import generate
from argosy.errors import InputError, UnknownName
from argosy.workload.trace import Trace

app = typer.Typer()
app.command()(generate)


def test_writes_the_trace_and_a_summary_on_stderr(tmp_path: Path) -> None:
    path = tmp_path / "week.csv"
    run = CliRunner().invoke(app, ["--like", "philly", "--jobs", "500", "--seed", "1", "-o", str(path)])
    assert run.exit_code == 0, run.output
    assert run.stdout == ""
    assert "500 jobs of " in run.stderr
    assert "GPU-hours" in run.stderr
    assert str(path) in run.stderr
    assert len(Trace.read(path)) == 500


def test_a_written_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    for like in ("pai", "dl2"):
        path = tmp_path / f"{like}.parquet"
        arguments = ["--like", like, "--jobs", "50", "--gpus", "32", "--load", "0.5", "-o", str(path)]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        assert Trace.read(path).offered_load(32) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--like", "filly"], UnknownName),
        (["--like", "philly", "--jobs", "-1"], InputError),
        (["--like", "philly", "--days", "-1"], InputError),
        (["--like", "philly", "--load", "-0.5", "--gpus", "8"], InputError),
    ],
)
def test_bad_wishes_write_nothing(tmp_path: Path, arguments: list[str], error: type[InputError]) -> None:
    path = tmp_path / "kept.csv"
    path.write_text("mine")
    run = CliRunner().invoke(app, [*arguments, "-o", str(path)])
    assert isinstance(run.exception, error)
    assert path.read_text() == "mine"
