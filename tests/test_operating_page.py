"""The commands on the page of operators' questions run as they stand, in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "cli"))

from live_daemon import live_daemon

PAGE = (Path(__file__).parents[1] / "docs" / "operating.md").read_text("utf-8")
FILES = re.compile(r"`([\w-]+\.\w+)`[^\n]*:\n\n```\w+\n(.*?)```", re.DOTALL | re.MULTILINE)
LIVE = [line for block in re.findall(r"```sh live\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line]
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line]


def test_the_page_has_commands_and_files() -> None:
    assert len(COMMANDS) >= 3
    assert [name for name, _ in FILES.findall(PAGE)] == ["log.csv", "cluster.yaml", "job.yaml"]


@pytest.mark.slow(20)
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    for name, text in FILES.findall(PAGE):
        (tmp_path / name).write_text(text)
    for command in COMMANDS:
        words = shlex.split(command, comments=True)
        assert words[0] == "argosy"
        run = [sys.executable, "-m", "argosy.cli.main", *words[1:]]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.slow(60)
def test_the_commands_to_a_daemon(tmp_path: Path) -> None:
    """They run in the order of the page, after three short jobs have ended."""
    for name, text in FILES.findall(PAGE):
        (tmp_path / name).write_text(text)
    with live_daemon(tmp_path / "home", "--nodes", "1", "--slots", "4") as daemon:
        environment = os.environ | {"ARGOSY_HOME": str(daemon.home)}

        def run(*words: str) -> str:
            command = [sys.executable, "-m", "argosy.cli.main", *words]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
            assert done.returncode == 0, f"{words}\n{done.stderr}"
            return done.stdout

        for seconds in (1, 2, 3):
            run("submit", "--run", f"fake seconds={seconds}")
        run("wait", "1", "2", "3", "--timeout", "5m")
        said = {command: run(*shlex.split(command, comments=True)[1:]) for command in LIVE}
    assert "3 jobs under fifo" in said["argosy fidelity"]
    assert "actual" in next(text for command, text in said.items() if command.startswith("argosy replay"))
    assert "promote" in said["argosy audit"]
