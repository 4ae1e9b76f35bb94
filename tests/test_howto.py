"""The page on adding a policy is run from top to bottom, and what it prints is what it says it prints."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import argosy.registry
from argosy.cluster.cluster import Cluster
from argosy.cluster.view import INFORMATION, JOB_COLUMNS, NODE_COLUMNS
from argosy.policies.base import POLICIES, Policy, create
from argosy.policies.fifo import Fifo
from argosy.registry import Registry
from argosy.sim.check import check_policy
from argosy.sim.run import simulate
from argosy.sim.settings import Settings
from argosy.workload.trace import Job, Trace

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "add-a-policy.md").read_text("utf-8")
EXAMPLE = ROOT / "examples" / "my_policy.py"
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)


@pytest.fixture
def names() -> Iterator[None]:
    """Remove the policies that a test registers."""
    before = {name: POLICIES[name] for name in POLICIES}
    yield
    POLICIES._things.clear()
    POLICIES._things.update(before)


@pytest.mark.slow(13)
@pytest.mark.usefixtures("names")
def test_the_page_runs_from_top_to_bottom() -> None:
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```python") >= 9
    assert PAGE.count("```text") == sum(bool(printed) for _, printed in blocks) >= 2
    namespace: dict[str, Any] = {}
    for number, (code, printed) in enumerate(blocks, 1):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, f"add-a-policy.md, block {number}", "exec"), namespace)
        assert out.getvalue() == printed, f"block {number}"


def test_the_page_lists_every_column_and_every_kind_of_information() -> None:
    for name, (information, _) in (*JOB_COLUMNS.items(), *NODE_COLUMNS.items()):
        assert f"| `{name}` | `{information}` |" in PAGE, name
    for name, meaning in INFORMATION.items():
        assert f"| `{name}` | {meaning} |" in PAGE, name


def test_the_page_lists_every_declaration() -> None:
    for attribute in ("preemptive", "backfill", "placer", "key", "every_s", "static", "eager", "seeded"):
        default = getattr(Policy, attribute)
        shown = f'"{default}"' if isinstance(default, str) else str(default)
        assert f"| `{attribute}` | `{shown}` |" in PAGE


@pytest.mark.usefixtures("names")
def test_the_example_file_is_the_policy_of_the_page() -> None:
    spec = f"{EXAMPLE}:PatientSjf"
    assert check_policy(spec).unread == ()
    jobs = [Job("first", 0, 10, 1), Job("long", 1, 6, 1), Job("short", 9, 3, 1)]
    for patience, expected in ((0.5, [10, 16, 19]), (0, [10, 19, 13])):
        policy = create(f"{spec}:patience={patience}")
        result = simulate(Trace.of_jobs(jobs), Cluster.uniform(1, 1), policy, Settings.ideal())
        assert result.jobs["finish_s"].to_list() == expected


def test_the_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert links
    for target in links:
        assert (ROOT / "docs" / target).exists(), target


def test_entry_points_bring_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point as in the page's pyproject.toml registers a policy; here it names fifo's class."""
    group = re.search(r'entry-points\."([^"]+)"', PAGE)
    assert group is not None
    asked: list[str] = []

    def installed(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return [EntryPoint("from-elsewhere", "argosy.policies.fifo:Fifo", group)]

    monkeypatch.setattr(argosy.registry, "entry_points", installed)
    registry: Registry[type[Policy]] = Registry("policy", None, POLICIES._group)
    assert registry["from-elsewhere"] is Fifo
    assert asked == [group[1]]
