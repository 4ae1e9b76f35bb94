"""The page on training: its commands and its code run as they stand, and it names every number."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.learn.training.options import MEANING

PAGE = (Path(__file__).parents[3] / "docs" / "training.md").read_text("utf-8")


def commands() -> str:
    """Return the lines with a prompt, and their continuations."""
    script: list[str] = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                script.append(line[2:])
            elif script[-1].endswith("\\"):
                script.append(line)
    return "\n".join(script)


def patient(script: str) -> str:
    """Give trainings less time, but more again where a busy machine has no weights when it is over."""

    def tries(first: re.Match[str]) -> str:
        again = [f"{first[1]}{minutes}{first[2]} --resume" for minutes in (0.6, 2)]
        return " || ".join([f"{first[1]}0.3{first[2]}", *again])

    script, resumed = re.subn(r"--minutes 0\.3(?=[^$]*--resume$)", "--minutes 0.1", script, flags=re.MULTILINE)
    script, began = re.subn(r"^(argosy train .*--minutes )0\.6( \\\n.*)$", tries, script, flags=re.MULTILINE)
    assert (resumed, began) == (1, 1)
    return script


def test_every_number_is_named() -> None:
    for name in MEANING:
        assert f"`{name}`" in PAGE


@pytest.mark.slow(50)
def test_the_commands_run_as_they_stand(tmp_path: Path) -> None:
    """Except for the minutes, which a training that runs out of time uses up."""
    script = patient(commands())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    bash = ["bash", "-euo", "pipefail", "-c", script]
    run = subprocess.run(bash, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "× teacher" in run.stdout
    assert "out of time; to continue: argosy train dl2" in run.stderr
    for made in ("mine.safetensors", "dl2.safetensors", "curve.html", "log/curve.jsonl"):
        assert (tmp_path / made).stat().st_size > 0


@pytest.mark.slow
def test_the_code_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ((code, printed),) = re.findall(r"```python\n(.*?)```\s*```text\n(.*?)```", PAGE, re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "training.md", "exec"), {})
    assert out.getvalue() == printed
