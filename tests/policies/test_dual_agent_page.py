"""The page on the dual-agent scheduler: its commands and code run, and code prints what the page says it prints."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from argosy.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "dual-agent.md").read_text("utf-8")


def test_the_code_prints_what_the_page_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```\s*```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == PAGE.count("```python") == 2
    namespace: dict[str, Any] = {}
    for number, (code, printed) in enumerate(blocks, 1):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, f"dual-agent.md, block {number}", "exec"), namespace)
        assert out.getvalue() == printed, f"block {number}"


@pytest.mark.slow(10)
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    ours = [line for line in lines if line.startswith("argosy ")]
    assert ours
    for line in ours:
        found = CliRunner().invoke(app, shlex.split(line)[1:])
        assert found.exit_code == 0, found.output
        assert "dual-agent" in found.output
