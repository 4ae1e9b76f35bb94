"""The page on learned policies: its commands run as they stand, and what it names exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks import joint, joint_newest
from benchmarks.__main__ import NAMES

from argosy.policies.base import create
from argosy.scenario import scenario_names

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "learning.md").read_text("utf-8")
PAGES = ("learning", "joint-scheduling", "learned-placement", "online-learning", "dual-agent")
COMMANDS = re.findall(r"^\$ (argosy .*)$", PAGE, re.MULTILINE)


def test_it_has_commands() -> None:
    assert [command.split()[1] for command in COMMANDS] == ["compare", "zoo"]


@pytest.mark.slow(20)
@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run_as_they_stand(command: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(command.split(), cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "argonaut" in run.stdout


def test_the_policies_that_it_recommends_exist() -> None:
    table = PAGE[PAGE.index("| your cluster | use | why |") : PAGE.index("None of them sees")]
    rows = [line.split(" | ") for line in table.splitlines()[2:] if line.strip()]
    names = {name for row in rows for name in re.findall(r"`([\w+-]+)`", row[1])}
    assert {"argonaut", "joint", "rubick", "dl2+", "dual-agent"} <= names
    for name in names:
        create(name)


@pytest.mark.parametrize("page", PAGES)
def test_the_benchmarks_that_pages_name_exist(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text("utf-8")
    for name, parts in re.findall(r"`python -m benchmarks ([\w-]+)(?: --parts ([\w,]+))?`", text):
        assert name in NAMES
        module = import_module(f"benchmarks.{name.replace('-', '_')}")
        assert not parts or set(parts.split(",")) <= set(module.PARTS)


def test_every_scenario_of_the_league_is_among_the_measured_ones() -> None:
    assert sorted(joint.SCENARIOS + joint_newest.SCENARIOS) == sorted(scenario_names())
    for page in ("learning", "league"):
        text = (DOCS / f"{page}.md").read_text("utf-8")
        assert all(f"`{name}`" in text for name in joint_newest.SCENARIOS)
