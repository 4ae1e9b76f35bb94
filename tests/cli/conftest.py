"""Fixtures that run the command line inside the test, as a person would from a shell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import Answer, Argosy

from argosy.cli.main import main


@pytest.fixture
def argosy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Argosy:
    """Calls `argosy` with arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARGOSY_DEBUG", raising=False)

    def call(*arguments: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["argosy", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Six jobs for a cluster of 16 GPUs; two must wait."""
    path = tmp_path / "jobs.csv"
    rows = ["a,0,4000,8", "b,10,3000,8", "c,20,500,8", "d,30,100,1", "e,40,200,16", "f,50,50,0.5"]
    path.write_text("\n".join(["job_id,submit_s,duration_s,gpus", *rows]) + "\n")
    return path
