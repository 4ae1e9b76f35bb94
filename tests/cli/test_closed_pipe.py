"""A reader that closes the pipe early, such as `head`, causes no error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

AS_USUAL = 141  # what a shell shows for a program that SIGPIPE ended


def run_unread(folder: Path, *arguments: str, everything: bool = False) -> tuple[int, str]:
    """Run a command whose standard output, or all of its output, nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    errors = writing if everything else subprocess.PIPE
    command = [sys.executable, "-m", "argosy.cli.start", *arguments]
    running = subprocess.Popen(command, stdout=writing, stderr=errors, text=True, cwd=folder)
    os.close(writing)
    _, err = running.communicate(timeout=300)
    return running.returncode, err or ""


@pytest.mark.parametrize(
    "words", ["policies", "policies -o json", "--help", "compare --help", "zoo", "zoo --show dl2+", "doctor", "-V"]
)
def test_nothing_is_said(tmp_path: Path, words: str) -> None:
    assert run_unread(tmp_path, *words.split()) == (AS_USUAL, "")


def test_nor_where_messages_go_the_same_way(tmp_path: Path) -> None:
    assert run_unread(tmp_path, "generate", "--like", "philly", "-o", "x.csv", everything=True)[0] == AS_USUAL
    assert run_unread(tmp_path, "simulate", "-p", "fifo", everything=True)[0] == AS_USUAL


def test_what_was_read_is_whole(tmp_path: Path) -> None:
    line = subprocess.run(
        f"set -o pipefail; {sys.executable} -m argosy.cli.start policies | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert line.stdout.startswith("policy") and line.stderr == ""
    assert line.returncode in (0, AS_USUAL)  # 0: it was done before head had gone


def test_no_output_at_all(tmp_path: Path) -> None:
    command = f"{sys.executable} -m argosy.cli.start policies >&-"
    closed = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert (closed.returncode, closed.stderr) == (0, "")
