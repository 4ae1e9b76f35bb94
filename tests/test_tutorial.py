"""The tutorial's commands and code run as they stand, and the index names every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
README = Path(__file__).parents[1] / "README.md"


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def commands(block: str) -> str:
    """Return a console block as a script: lines with a prompt, and their continuations."""
    script, document = [], False
    for line in block.splitlines():
        if line.startswith("$ "):
            script.append(line[2:])
            document = "<<'END'" in line
        elif document or (script and script[-1].endswith("\\")):
            script.append(line)
            document = document and line != "END"
    return "\n".join(script)


def shell(script: str, folder: Path) -> str:
    """Return what a shell prints that has `argosy` on its path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    bash = ["bash", "-euo", "pipefail", "-c", script]
    run = subprocess.run(bash, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output after all of the tutorial's commands."""
    folder = tmp_path_factory.mktemp("tutorial")
    console = blocks(DOCS / "tutorial.md", "console")
    return folder, shell("\n".join(commands(block) for block in console), folder)


def test_the_tutorial_uses_every_command_it_should() -> None:
    script = "\n".join(commands(block) for block in blocks(DOCS / "tutorial.md", "console"))
    commands_used = ("argosy import", "argosy generate", "argosy simulate", "argosy compare")
    for used in (*commands_used, "--why", "--sweep", "--estimator history"):
        assert used in script


@pytest.mark.slow(20)
def test_the_tutorial_runs_as_it_stands(printed: tuple[Path, str]) -> None:
    folder, out = printed
    for name in ("morning.csv", "ours.csv", "week.csv", "events.jsonl", "srtf.json", "runs.json"):
        assert (folder / name).stat().st_size > 0
    for name in ("out/report.html", "out/sweep.html"):
        assert "<h1>" in (folder / name).read_text("utf-8")
    assert "Job j081 under fifo" in out
    assert "by offered load" in out


@pytest.mark.slow(20)
def test_the_story_it_asks_for_is_one_of_waiting(printed: tuple[Path, str]) -> None:
    story = printed[1].partition("Job j081 under fifo")[2].partition("In short")[0]
    assert "waits" in story or "waiting" in story


@pytest.mark.slow(20)
def test_the_python_code_runs(
    printed: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(printed[0])
    (code,) = blocks(DOCS / "tutorial.md", "python")
    exec(compile(code, "tutorial.md", "exec"), {})
    assert re.search(r"^\d+\.\d h$", capsys.readouterr().out, re.MULTILINE)


def test_the_readmes_commands_run(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(README.parent / "examples")
    lines = "\n".join(commands(block) for block in blocks(README, "console")).splitlines()
    ours = [line for line in lines if line.startswith("argosy")]
    assert len(ours) > 2
    assert "Job j081 under fifo" in shell("\n".join(ours), tmp_path)


@pytest.mark.parametrize("page", sorted([README, *DOCS.rglob("*.md")]), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_index_names_every_page() -> None:
    index = (DOCS / "index.md").read_text("utf-8")
    missing = [page.name for page in DOCS.glob("*.md") if f"]({page.name})" not in index]
    assert missing in ([], ["index.md"])


def test_the_design_names_files_that_exist() -> None:
    source = Path(__file__).parents[1] / "src" / "argosy"
    there = [path.relative_to(source).as_posix() for path in source.rglob("*.py")]
    named = re.findall(r"`([\w/]+\.py)`", (DOCS / "design.md").read_text("utf-8"))
    assert len(named) > 50
    others = ("tests/", "benchmarks/")
    missing = [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in there)]
    assert [name for name in missing if not name.startswith(others)] == []
