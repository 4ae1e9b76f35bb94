"""The commands on the page of operators' questions run as they stand, in the order of the page."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "operating.md").read_text("utf-8")
FILES = re.compile(r"^`([\w-]+\.\w+)`[^\n]*:\n\n```\w+\n(.*?)```", re.DOTALL | re.MULTILINE)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line]


def test_the_page_has_commands_and_files() -> None:
    assert len(COMMANDS) >= 3
    assert [name for name, _ in FILES.findall(PAGE)] == ["log.csv", "cluster.yaml"]


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
